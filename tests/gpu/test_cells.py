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
def test_the_pretended_device_refuses_what_a_gpu_refuses():
    mistakes = {
        "x.numpy()": "numpy",
        "x + torch.ones(3, 4)": "CPU",
        "torch.from_numpy(np.ones((3, 3), 'f')) @ x": "CPU",
        "torch.randn(3, generator=torch.Generator(), device='pretend')": "generator",
    }
    code = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import numpy as np, pretend, torch
pretend.use()
x = torch.ones(3, 4, device='pretend')
assert x.cpu().sum() == 12
for mistake in {list(mistakes)!r}:
    try:
        print("allowed:", eval(mistake))
    except Exception as error:
        print(str(error).splitlines()[-1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert len(said) == len(mistakes), done.stderr
    for (mistake, word), line in zip(mistakes.items(), said, strict=True):
        assert word in line and not line.startswith("allowed"), (mistake, line)
