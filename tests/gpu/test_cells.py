"""The labs' cells that start processes or ask for a device, on pretended GPUs; on GPUs, `make gpu` runs them."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import cells  # noqa: E402
from pretended.device import AVAILABLE  # noqa: E402

TOGETHER = 4  # labs in one process, which imports torch and the device once
LABS = [cells.labs()[i : i + TOGETHER] for i in range(0, len(cells.labs()), TOGETHER)]


@pytest.mark.processes
@pytest.mark.skipif(not AVAILABLE, reason="this torch takes no device in Python")
@pytest.mark.weekly
@pytest.mark.parametrize("labs", LABS, ids=" ".join)
def test_labs_own_assertions_hold_where_every_worker_has_a_pretended_gpu_of_its_own(ran, labs):
    done = ran([sys.executable, HERE / "cells.py", "pretend", *labs], timeout=TOGETHER * 280)
    said = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [(one["lab"], one["wrong"]) for one in said] == [(lab, "") for lab in labs], done.stderr
