"""A job under torchrun: killed, restarted, and none the worse; on one host and on two."""

import contextlib
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labkit.comm import Processes, launch, netns  # noqa: E402
from labkit.comm.emulated import unavailable  # noqa: E402
from labkit_book.labs import job, slow_job  # noqa: E402
from labkit_book.labs.job import batch_of  # noqa: E402

ROOT = Path(__file__).parents[2]
# Workers of a restarted job meet in a store of their own: in torchrun's, gloo finds the addresses of the dead
# (pytorch/pytorch issue 135712).
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
RUN = [sys.executable, "-m", "torch.distributed.run"]
JOB = ["-m", "labkit_book.labs.job", "--steps", "24", "--every", "5"]
ONE = [*RUN, "--standalone", "--nproc-per-node=2", "--max-restarts=2"]


def test_the_ranks_of_the_slow_job_share_the_rows_of_a_step(tmp_path):
    path = tmp_path / "rows.npy"
    checksum = slow_job.write_data(path)
    slow_job.check_file(path, checksum)
    X, y = slow_job.batch(path, 3, 0, 1)
    halves = [slow_job.batch(path, 3, rank, 2) for rank in range(2)]
    assert torch.equal(torch.cat([half for half, _ in halves]), X) and X.shape == (1024, 64)
    assert torch.equal(torch.cat([labels for _, labels in halves]), y) and set(y.tolist()) == set(range(10))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OSError, match="is not the file that was written"):
        slow_job.check_file(path, checksum)


def test_the_job_is_a_program_with_options(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["job.py", "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(job.__file__, run_name="__main__")
    assert "--kill-rank" in capsys.readouterr().out


@pytest.mark.processes
def test_the_slow_job_says_its_speed_and_keeps_its_losses(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["slow_job.py", "--steps", "2", "--losses", str(kept := tmp_path / "losses.json")]
    )
    slow_job.main()
    losses = json.loads(kept.read_text())
    told = rf"^[\d.]+ ms a step, loss {losses[0]:.4f} to {losses[1]:.4f}\nmeasured: "
    assert losses[1] < losses[0] and re.search(told, capsys.readouterr().out)


def said(done):
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 1, done.stdout
    return json.loads(lines[0])


@pytest.fixture(scope="module")
def run(ran):
    return lambda *words: ran(words, timeout=250, env=ENV)


def launched(directory, T=24):
    """What the same job says when `launch` starts it, which takes a moment, where torchrun takes seconds."""

    def one(comm):
        from labkit_book.labs.job import train

        return train(directory, T=T, every=5)

    return launch(one, 2, world=Processes(device="cpu", threads=1)).results[0]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("job")
    return {**launched(directory), "directory": directory}


@pytest.mark.processes
def test_a_job_goes_on_from_its_newest_checkpoint_and_ends_with_the_same_bits(undisturbed, tmp_path):
    launched(tmp_path, T=13)
    again = launched(tmp_path)
    assert again["first"] == 13 and again["sha256"] == undisturbed["sha256"]


@pytest.mark.processes
@pytest.mark.weekly
def test_a_killed_worker_s_job_ends_with_the_same_bits(run, undisturbed, tmp_path):
    survived = said(run(*ONE, *JOB, "--directory", tmp_path, "--kill-rank", 1, "--kill-at", 13))
    assert (undisturbed["start"], undisturbed["first"]) == (0, 0)
    assert (survived["start"], survived["first"]) == (1, 10)
    assert survived["sha256"] == undisturbed["sha256"]


@pytest.fixture
def on_two_hosts(started):
    """torchrun --nnodes=2, an agent on each of two emulated hosts; both outcomes. ``words`` may name the ``{node}``."""

    def go(words):
        with contextlib.ExitStack() as stack:
            network, agents = netns.Network([1.25e7, 1.25e7]), []
            stack.callback(network.close)
            for node, way in enumerate(network.ways):
                agent = [
                    *RUN, "--nnodes=2", "--nproc-per-node=1", f"--node-rank={node}", "--rdzv-backend=static",
                    f"--master-addr={network.address(0)}", "--master-port=29500", *(w.format(node=node) for w in words),
                ]  # fmt: skip
                running = started(
                    agent, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env={**ENV, "GLOO_SOCKET_IFNAME": "eth0"},
                    preexec_fn=lambda way=way: netns.Network.enter(way),
                )  # fmt: skip
                agents.append(stack.enter_context(running))
            ended = [agent.communicate(timeout=250) for agent in agents]
        return [subprocess.CompletedProcess([], a.returncode, *e) for a, e in zip(agents, ended, strict=True)]

    return go


emulated = pytest.mark.skipif(unavailable() is not None, reason=f"no emulated network here: {unavailable()}")


@pytest.mark.processes
@pytest.mark.weekly
@emulated
def test_the_same_job_runs_on_two_hosts_and_only_rank_0_s_host_needs_the_directory(
    on_two_hosts, undisturbed, tmp_path
):
    first, second = on_two_hosts([*JOB, "--directory", f"{tmp_path}/{{node}}"])
    assert said(first)["sha256"] == undisturbed["sha256"]
    assert second.returncode == 0 and not (tmp_path / "1").exists()


@pytest.mark.processes
@pytest.mark.weekly
@emulated
def test_the_page_s_synchronous_sgd_runs_unchanged_on_one_host_and_on_two(run, on_two_hosts, tmp_path):
    page = (ROOT / "book" / "cluster.md").read_text()
    script = tmp_path / "sync_sgd.py"
    script.write_text(page.split("```python\n")[1].split("```")[0])
    alone = run(sys.executable, script)
    assert "2 processes" in alone.stdout, alone.stderr[-2000:]
    first, second = on_two_hosts([str(script)])
    assert first.returncode == second.returncode == 0, first.stderr[-2000:]
    assert first.stdout.splitlines()[-1] == alone.stdout.splitlines()[-1]
    assert first.stdout.splitlines()[-1].startswith("distance from the truth: 0.")
    assert second.stdout == ""


@pytest.fixture
def train_ddp(tmp_path):
    """The page's script with DistributedDataParallel."""
    page, script = (ROOT / "book" / "cluster.md").read_text(), tmp_path / "train_ddp.py"
    script.write_text(page.split("`train_ddp.py`")[1].split("```python\n")[1].split("```")[0])
    return script


def distance_by_closed_form():
    """The script's last line, by w_T = w* + (1 - eta H)^T (w_0 - w*) with H and w* of least squares."""
    torch.manual_seed(7)
    X, truth = torch.randn(4096, 20), torch.randn(20, 1)
    y = X @ truth + 0.1 * torch.randn(4096, 1)
    w = torch.nn.Linear(20, 1, bias=False).weight.detach().T
    slow = torch.linalg.matrix_power(torch.eye(20) - 0.05 * 2 / 4096 * X.T @ X, 30)
    best = torch.linalg.lstsq(X, y).solution
    return f"gloo, distance from the truth: {(best + slow @ (w - best) - truth).norm():.4f}"


@pytest.mark.processes
@pytest.mark.weekly
def test_the_page_s_ddp_takes_one_worker_s_steps_with_any_number_of_processes_and_reports(run, train_ddp):
    assert len(train_ddp.read_text().splitlines()) <= 35
    for K in (1, 4):
        done = run(*RUN, "--standalone", f"--nproc-per-node={K}", train_ddp)
        assert done.returncode == 0, done.stderr[-2000:]
        *report, last = done.stdout.splitlines()
        assert last == distance_by_closed_form()
        rows = [line.split()[0] for line in report if line.split()[0].isdigit()]
        assert rows == [str(rank) for rank in range(K)]


@pytest.mark.processes
@pytest.mark.weekly
@emulated
def test_the_page_s_ddp_runs_unchanged_on_two_hosts(on_two_hosts, train_ddp):
    first, second = on_two_hosts([str(train_ddp)])
    assert first.returncode == second.returncode == 0, first.stderr[-2000:]
    assert first.stdout.splitlines()[-1] == distance_by_closed_form() and second.stdout == ""


def test_every_epoch_s_batches_hold_every_example_once_and_depend_on_the_step_alone():
    N, B = 100, 20
    epoch = np.concatenate([batch_of(t, N, B, 7) for t in range(5)])
    assert sorted(epoch.tolist()) == list(range(100))
    assert not np.array_equal(batch_of(0, N, B, 7), batch_of(5, N, B, 7))
    assert np.array_equal(batch_of(7, N, B, 7), batch_of(7, N, B, 7))
