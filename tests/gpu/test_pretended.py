"""Pretended GPUs and nccl: they refuse what GPUs and nccl refuse, and what labkit does on GPUs works on them."""

import json
import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import pretended  # noqa: E402
from pretended.device import AVAILABLE  # noqa: E402

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not AVAILABLE, reason="this torch takes no device in Python"),
]

# Every case has a group of its own, for what has failed stays broken.
JOB = """
import json, os, sys, time, torch, torch.distributed as dist
rank, K = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("pretend", rank)
torch.pretend.set_device(device)
dist.init_process_group("cpu:gloo,pretend:pnccl")
right, left = (rank + 1) % K, (rank - 1) % K
for name, backend, body in json.loads(sys.argv[1]):
    x, into = torch.full((4,), float(rank), device=device), torch.zeros(4, device=device)
    group, began, happened = dist.new_group(backend=backend), time.monotonic(), "went well"
    try:
        exec(body)
    except Exception as error:
        happened = str(error)
    line = json.dumps([name, rank, time.monotonic() - began, happened]) + "\\n"
    os.write(1, line.encode())
"""
RECEIVE_FIRST = "works = [dist.irecv(into, left, group), dist.isend(x, right, group)]\n"
GROUPED = """
with dist.distributed_c10d._coalescing_manager(group, device, async_ops=True) as together:
    dist.irecv(into, left, group)
    dist.isend(x, right, group)
works = together.works
"""
WAIT = "for work in works: work.wait()\nassert into[0].item() == left\n"
LATE = "met no other end within 2 s"
CASES = {  # the backend, what every rank does, and what becomes of it
    "both receive first": ("pnccl", RECEIVE_FIRST + WAIT, f"recv with rank . of rank . {LATE}"),
    "both receive first, as a group": ("pnccl", GROUPED + WAIT, "went well"),
    "as a group, and then a collective": (
        "pnccl", f"{GROUPED + WAIT}dist.all_reduce(x, group=group)\nassert x[0].item() == K * (K - 1) / 2", "went well",
    ),
    "both receive first, on the CPU": (
        "cpu:gloo,pretend:pnccl", f"x, into = x.cpu(), into.cpu()\n{RECEIVE_FIRST + WAIT}", "went well",
    ),
    "a tensor on the CPU": ("pnccl", "dist.all_reduce(x.cpu(), group=group)", "No backend type .* device type cpu"),
    "two ranks on one device": (
        "pnccl", "dist.all_reduce(torch.ones(2, device='pretend:0'), group=group)", "Duplicate GPU detected",
    ),
    "first one device, then another": (
        "pnccl", "for d in rank, right: dist.all_reduce(torch.ones(2, device=f'pretend:{d}'), group=group)",
        "and now pretend:",
    ),
    "a message from anybody": ("pnccl", "dist.recv(into, group=group)", "does not support recv from any source"),
    "one leaves a collective out": (
        "pnccl", "dist.all_reduce(x, group=group)\nif rank: dist.all_reduce(x, group=group)\nelse: time.sleep(3)",
        f"allreduce of rank . {LATE}|went well",
    ),
    "the next collective waits for the one before": (
        "pnccl",
        "if rank: late = dist.isend(x, left, group)\nelse: time.sleep(0.5); dist.recv(into, right, group)\n"
        "works = [dist.all_reduce(x, group=group, async_op=True) for _ in 'ab']\n"
        "works[1].wait()\nassert works[0].is_completed()",
        "went well",
    ),
}  # fmt: skip


@pytest.mark.weekly
@pytest.mark.parametrize("K", [2, 3])
def test_what_nccl_refuses_or_never_ends_is_refused_within_ten_seconds_and_says_why(ran, tmp_path, K):
    (tmp_path / "job.py").write_text(JOB)
    cases = json.dumps([(name, backend, body) for name, (backend, body, _) in CASES.items()])
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={K}"]
    with pretended.there(K, timeout_s=2) as env:
        done = ran([*start, tmp_path / "job.py", cases], timeout=120, env=env)
    said = [json.loads(line) for line in re.findall(r"^\[\".*\]$", done.stdout, re.M)]
    for case, (_, _, words) in CASES.items():
        if case == "both receive first" and K == 3:
            words = "went well"  # around a ring of three no two workers send to each other
        ends = [(seconds, how) for name, _, seconds, how in said if name == case]
        assert len(ends) == K, done.stdout + done.stderr
        assert all(re.search(words, how) and seconds < 10 for seconds, how in ends), (case, ends)
        assert words == "went well" or any("went well" not in how for _, how in ends), case


def test_a_pretended_device_refuses_what_a_gpu_refuses(ran):
    mistakes = {
        "x.numpy()": "numpy",
        "x + torch.ones(3, 4)": "CPU",
        "x + torch.ones(3, 4, device='pretend:1')": "pretend:0 and pretend:1",
        "torch.from_numpy(np.ones((3, 3), 'f')) @ x": "CPU",
        "torch.randn(3, generator=torch.Generator(), device='pretend')": "generator",
        "torch.ones(3, device='pretend:2')": "there are 2",
    }
    code = f"""
import numpy as np, torch
x = torch.ones(3, 4, device='pretend')
assert x.cpu().sum() == 12 and x.device.index == 0
for mistake in {list(mistakes)!r}:
    try:
        print("allowed:", eval(mistake))
    except Exception as error:
        print(str(error).splitlines()[-1])
"""
    with pretended.there(2) as env:
        done = ran([sys.executable, "-c", code], timeout=60, env=env)
    said = done.stdout.splitlines()
    assert len(said) == len(mistakes), done.stderr
    for (mistake, word), line in zip(mistakes.items(), said, strict=True):
        assert word in line and not line.startswith("allowed"), (mistake, line)


@pytest.mark.weekly
@pytest.mark.parametrize("devices", [4, 1])
def test_what_labkit_does_on_gpus_works_on_pretended_ones(ran, devices):
    asked = ["-q", "-p", "no:nbval", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu/test_gpu.py"]
    with pretended.there(devices, timeout_s=6) as env:  # so that a fault is named within ten seconds
        command = [sys.executable, "-m", "pytest", *asked]
        done = ran(command, timeout=280, env=env, cwd=ROOT)
    assert done.returncode == 0 and re.search(r"\b\d\d passed", done.stdout), done.stdout


@pytest.mark.weekly
@pytest.mark.parametrize(("sets_device", "naming"), [(True, "report"), (False, "why")])
def test_the_cluster_page_s_ddp_runs_with_a_device_for_each_rank(ran, tmp_path, sets_device, naming):
    """Also where it never says which device is the current one: then all ranks have the first one for that."""
    page, script = (ROOT / "book" / "cluster.md").read_text(), tmp_path / "train_ddp.py"
    code = page.split("`train_ddp.py`")[1].split("```python\n")[1].split("```")[0]
    code = code.replace("torch.cuda", "torch.pretend").replace("cuda:", "pretend:").replace("nccl", "pnccl")
    if naming == "why":
        code = "from labkit_book.why import why\n" + code.replace("recorder.report()", "why(recorder)")
    script.write_text(code if sets_device else code.replace("torch.pretend.set_device(device)", "pass"))
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script]
    with pretended.there(2, timeout_s=20) as env:
        done = ran(start, timeout=120, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].startswith("pnccl, distance from the truth: 0.1551"), done.stdout
