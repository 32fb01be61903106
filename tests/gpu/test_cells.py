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
