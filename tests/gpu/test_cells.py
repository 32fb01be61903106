"""The labs' cells that compute on a device, on one that is not the CPU. (On the CPU every notebook is executed anyway.)"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import cells  # noqa: E402
import pretend  # noqa: E402

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")
too_old = pytest.mark.skipif(not pretend.AVAILABLE, reason="this torch takes no device in Python")


@pytest.mark.parametrize(
    "device",
    [pytest.param("pretend", marks=too_old), pytest.param("cuda", marks=[pytest.mark.gpu, no_gpu])],
)
def test_the_labs_own_assertions_hold_on_a_device(device):
    command = [sys.executable, str(HERE / "cells.py"), device]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [one for one in said if any(one.values())] == [] and len(said) == len(cells.LAST)


@too_old
@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("x.numpy()", "numpy"),
        ("x + torch.ones(3, 4)", "CPU"),
        ("torch.from_numpy(np.ones((3, 3), 'f')) @ x", "CPU"),
        ("torch.randn(3, generator=torch.Generator(), device='pretend')", "generator"),
    ],
)
def test_the_pretended_device_refuses_what_a_gpu_refuses(mistake, said):
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\nimport numpy as np, pretend, torch\npretend.use()\n"
        f"x = torch.ones(3, 4, device='pretend')\nassert x.cpu().sum() == 12\n{mistake}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and said in done.stderr.splitlines()[-1]
