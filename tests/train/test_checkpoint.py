"""A checkpoint is whole or refused, whatever happened to the one who wrote it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labkit.train import checkpoint  # noqa: E402

ROOT = Path(__file__).parents[2]
STATE = {"w": torch.arange(1000.0), "step": 3, "names": ["a", "b"], "rng": torch.get_rng_state()}


def same(a, b):
    return torch.equal(a["w"], b["w"]) and a["step"] == b["step"] and torch.equal(a["rng"], b["rng"])


def test_what_was_saved_comes_back_bit_for_bit_and_the_one_before_is_kept(tmp_path):
    for step in (1, 5, 12):
        checkpoint.save(tmp_path / "new", step, {**STATE, "step": step})
    assert [p.name for p in checkpoint.saved(tmp_path / "new")] == [
        "step-000000000005.ckpt",
        "step-000000000012.ckpt",
    ]
    step, state = checkpoint.latest(tmp_path / "new")
    assert step == 12 and same(state, {**STATE, "step": 12})


def test_an_optimizer_s_state_survives(tmp_path):
    model = torch.nn.Linear(5, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 5)).sum().backward()
    optimizer.step()
    checkpoint.save(tmp_path, 1, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    _, state = checkpoint.latest(tmp_path)
    twin = torch.nn.Linear(5, 2)
    twin.load_state_dict(state["model"])
    other = torch.optim.AdamW(twin.parameters())
    other.load_state_dict(state["optimizer"])
    for m, o in ((model, optimizer), (twin, other)):
        o.zero_grad()
        m(torch.full((1, 5), 2.0)).sum().backward()
        o.step()
    assert torch.equal(model.weight, twin.weight)


DAMAGE = {
    "cut short": lambda raw: raw[: len(raw) // 2],
    "empty": lambda raw: b"",
    "one bit flipped": lambda raw: raw[:-100] + bytes([raw[-100] ^ 1]) + raw[-99:],
    "grown": lambda raw: raw + b"x",
    "another file": lambda raw: b"hello, world\n",
    "only a first line": lambda raw: raw.split(b"\n")[0],
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_used(tmp_path, how):
    checkpoint.save(tmp_path, 1, {**STATE, "step": 1})
    newest = checkpoint.save(tmp_path, 2, {**STATE, "step": 2})
    newest.write_bytes(DAMAGE[how](newest.read_bytes()))
    with pytest.raises(checkpoint.CorruptCheckpoint, match="step-000000000002"):
        checkpoint.load(newest)
    with pytest.warns(UserWarning, match=r"step-000000000002.* the checkpoint before it is used"):
        step, state = checkpoint.latest(tmp_path)
    assert step == 1 and state["step"] == 1


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    """Each bit of the first line, where the step is, and some of the rest."""
    path = checkpoint.save(tmp_path, 12, {"w": torch.arange(3.0)})
    raw = path.read_bytes()
    line = raw.index(b"\n") + 1
    for i in (*range(line), *range(line, len(raw), 97)):
        for bit in range(8):
            path.write_bytes(raw[:i] + bytes([raw[i] ^ (1 << bit)]) + raw[i + 1 :])
            with pytest.raises(checkpoint.CorruptCheckpoint):
                checkpoint.load(path)


def test_a_job_that_went_back_behind_damaged_checkpoints_keeps_what_it_saves(tmp_path):
    for step in (10, 15, 20, 25):
        checkpoint.save(tmp_path, step, {"step": step}, keep=4)
    for path in checkpoint.saved(tmp_path)[-2:]:
        path.write_bytes(b"")
    path = checkpoint.save(tmp_path, 16, {"step": 16})
    assert path.exists()
    with pytest.warns(UserWarning):
        assert checkpoint.latest(tmp_path) == (16, {"step": 16})
    assert checkpoint.load(tmp_path / "step-000000000015.ckpt")[0] == 15


def test_others_files_are_left_alone_and_a_dead_writer_s_draft_is_not(tmp_path):
    (tmp_path / "paper.draft").write_text("mine")
    (tmp_path / "step-000000000001.ckpt.123.draft").write_text("half")
    checkpoint.save(tmp_path, 2, {})
    assert {p.name for p in tmp_path.iterdir()} == {"paper.draft", "step-000000000002.ckpt"}


@pytest.mark.parametrize("state", [{"loss": np.float64(0.5)}, [np.arange(3)], {"f": os.mkdir}])
def test_a_state_that_could_not_be_loaded_again_is_refused_when_it_is_saved(tmp_path, state):
    with pytest.raises(ValueError, match="state must hold tensors, numbers, strings and containers of them"):
        checkpoint.save(tmp_path, 1, state)
    assert not list(tmp_path.iterdir())


def test_without_a_whole_checkpoint_there_is_none(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "nowhere") is None
    path = checkpoint.save(tmp_path, 1, STATE)
    path.write_bytes(b"")
    with pytest.warns(UserWarning):
        assert checkpoint.latest(tmp_path) is None


def test_a_full_disk_leaves_everything_as_it_was(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, STATE)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, 2, STATE)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_job_killed_while_it_writes_leaves_whole_checkpoints_only(started, tmp_path):
    """Killed at many moments: whatever is found afterwards under a good name is whole."""
    code = (
        "import sys, torch\n"
        "from labkit.train import checkpoint\n"
        "w = torch.arange(300_000.0)\n"
        "print('ready', flush=True)\n"
        "for step in range(10**6):\n"
        "    checkpoint.save(sys.argv[1], step, {'w': w + step})\n"
        "    print(step, flush=True)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for lines in (3, 6):
        with started([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, env=env) as job:
            told = [job.stdout.readline() for _ in range(lines)]
            job.send_signal(signal.SIGKILL)
            job.wait()
        step, state = checkpoint.latest(tmp_path)
        assert step >= int(told[-1]), "what was reported as saved is there"
        assert torch.equal(state["w"], torch.arange(300_000.0) + step)
        for path in checkpoint.saved(tmp_path):
            checkpoint.load(path)
            path.unlink()


def _saved(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def test_a_checkpoint_runs_no_code_when_it_is_loaded(tmp_path, monkeypatch):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    with pytest.raises(ValueError, match="state must hold tensors"):
        checkpoint.save(tmp_path, 1, {"w": Trap()})
    monkeypatch.setattr(checkpoint, "_bytes_of", _saved)  # as somebody else's program would
    path = checkpoint.save(tmp_path, 1, {"w": Trap()})
    with pytest.raises(Exception, match=r"[Uu]nsupported|weights_only|Weights only"):
        checkpoint.load(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(("step", "keep"), [(-1, 2), (True, 2), (1.5, 2), (1, 0), (10**12, 2)])
def test_bad_numbers_are_refused(tmp_path, step, keep):
    with pytest.raises(ValueError, match=r"must be (a whole number|below 10\*\*12)"):
        checkpoint.save(tmp_path, step, STATE, keep)
    assert not list(tmp_path.iterdir())
