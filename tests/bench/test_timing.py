"""The benchmark's peers compute what we compute: simpy, a simulator of others, is the oracle."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from labkit.timing import StaleSynchronous, draw


@pytest.fixture(scope="module")
def timing():
    here = Path(__file__).parent
    spec = importlib.util.spec_from_file_location("timing_bench", here / "timing.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(here))  # its neighbour, the table
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(here))
    return module


def test_a_ring_of_simpy_and_one_of_bare_greenlets_go_round(timing):
    assert timing.ring_of_greenlets(5, 7) == 35
    pytest.importorskip("simpy")
    assert timing.ring_by_simpy(5, 7) == 7.0


@pytest.mark.parametrize("slack", [0, 1, 4, 30])
def test_loops_and_simpy_and_the_recurrence_agree(timing, slack):
    X = draw(timing.LAW, 9, 20, seed=slack)
    ours = StaleSynchronous(slack).ends(X)
    np.testing.assert_allclose(timing.loops(X.T.tolist(), slack), ours, rtol=1e-12)
    pytest.importorskip("simpy")
    np.testing.assert_allclose(timing.by_simpy(9, 20, slack, lambda k, t: X[k, t]), ours, rtol=1e-12)


def test_every_part_of_the_table_runs_on_a_small_scale(timing, capsys):
    pytest.importorskip("simpy")
    rows: list = []
    timing.stale_synchronous(1, rows, K=20, T=100)
    timing.many_ranks(1, rows, K=16, hosts=4, each=3)
    from_table = sys.modules["table"]
    from_table.show(rows)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(rows) + 1 and all(ours > 0 and peer > 0 for _, ours, peer, _ in rows)
