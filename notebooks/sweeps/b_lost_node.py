"""What the others notice of a worker that is killed, of one that freezes, and of a whole node that is lost.

Killed, its kernel closes its connections. Frozen (SIGSTOP stands for a host that has lost its power or its network) it says
nothing at all. The lost node is that of an elastic job: two agents of torchrun with one worker each, `--nnodes=1:2`; before
step 17 rank 1 dies and takes its agent along.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TIMEOUTS = [1, 2, 4, 8]  # seconds of a group
RUNS = 5

PAIR = """
import os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
meet, rank, how, timeouts = sys.argv[1], int(sys.argv[2]), sys.argv[3], map(int, sys.argv[4:])
dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
groups = {s: dist.new_group(timeout=timedelta(seconds=s)) for s in timeouts}
x, noticed = torch.ones(10), {}
for group in groups.values():
    dist.all_reduce(x, group=group)
if rank == 1:
    os.kill(os.getpid(), getattr(signal, how))
time.sleep(0.5)
for s, group in groups.items():
    begun = time.perf_counter()
    try:
        dist.all_reduce(x, group=group)
    except RuntimeError:
        noticed[s] = time.perf_counter() - begun
import json
print(json.dumps(noticed), flush=True)
os._exit(0)
"""

NODE = """
import os, runpy
kill = os.kill
def with_its_agent(pid, signal):
    kill(os.getppid(), signal)
    kill(pid, signal)
os.kill = with_its_agent
runpy.run_module("labkit_book.labs.job", run_name="__main__")
"""


def noticed(how: str, timeouts: list[int]) -> dict[str, float]:
    """After how many seconds rank 0's all-reduce fails in groups of these time-outs, once rank 1 got the signal ``how``."""
    with tempfile.TemporaryDirectory() as folder:
        words = [how, *map(str, timeouts)]
        pair = [
            subprocess.Popen([sys.executable, "-c", PAIR, f"{folder}/meet", str(rank), *words],
                             stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
            for rank in (0, 1)
        ]  # fmt: skip
        out, _ = pair[0].communicate(timeout=300)
        pair[1].kill()
        pair[1].communicate()
    return json.loads(out)


def elastic() -> dict[str, Any]:
    """What rank 0's last start of the elastic job says of itself, and how its agents ended."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "node.py")
        script.write_text(NODE)
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1"),
            *("--max-restarts=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={folder}/meet", "--rdzv-id=lost"),
            *("--rdzv-conf=store_type=file,last_call_timeout=1", str(script), "--directory", f"{folder}/job"),
            *("--steps", "20", "--every", "5", "--kill-rank", "1", "--kill-at", "17"),
        ]
        env = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        agents = [
            subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in "ab"
        ]
        said = [agent.communicate(timeout=600)[0] for agent in agents]
    (last,) = [json.loads(text.splitlines()[-1]) for text in said if text.strip()]
    ended = sorted(agent.returncode for agent in agents)
    return {"agents_ended": ended, **{key: last[key] for key in ("start", "K", "first", "last")}}


def sweep() -> dict[str, Any]:
    from torch.distributed.distributed_c10d import default_pg_timeout

    return {
        "killed_s": [noticed("SIGKILL", [60])["60"] for _ in range(RUNS)],
        "timeouts_s": TIMEOUTS,
        "frozen_s": [list(noticed("SIGSTOP", TIMEOUTS).values()) for _ in range(RUNS)],
        "gloo_timeout_s": default_pg_timeout.total_seconds(),
        "elastic": elastic(),
    }
