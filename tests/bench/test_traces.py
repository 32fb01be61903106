"""What is timed is the page's own engine, and it finds what the trace's authors published."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from labkit_book.labs import data_file


@pytest.fixture
def traces(monkeypatch):
    here = Path(__file__).parent
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.chdir(here)
    spec = importlib.util.spec_from_file_location("traces_bench", here / "traces.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_cells_that_are_timed_find_the_published_slowdowns(traces):
    lab = traces.engine()
    stored = np.load(data_file("traces/jobs.npz"))
    published = json.loads(str(stored["published"]))[traces.JOB]
    parts = traces.account(lab)
    assert len(parts) == 1 + len({op[0] for op in lab["Job"](traces.JOB).took}) + 2 + 32
    named = {"all": published["slowdown"]} | {f"rank {d}": x for d, x in published["dp_rank"].items()}
    named |= {f"stage {s}": x for s, x in published["stage"].items()}
    for name, value in named.items():
        assert parts[name] == pytest.approx(value, rel=0.01), name
