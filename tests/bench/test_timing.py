"""The benchmark's peers compute what we compute: simpy, a simulator of others, is the oracle."""

import numpy as np
import pytest
import timing

from labkit.timing import ShiftedExponential, StaleSynchronous, draw


@pytest.mark.parametrize("slack", [0, 1, 4, 30])
def test_loops_and_simpy_and_the_recurrence_agree(slack):
    X = draw(ShiftedExponential(timing.SHIFT, timing.SCALE), 9, 20, seed=slack)
    ours = StaleSynchronous(slack).ends(X)
    np.testing.assert_allclose(timing.loops(X.T.tolist(), slack), ours, rtol=1e-12)
    pytest.importorskip("simpy")
    np.testing.assert_allclose(timing.by_simpy(9, 20, slack, lambda k, t: X[k, t]), ours, rtol=1e-12)


def test_every_part_of_the_table_runs_on_a_small_scale():
    pytest.importorskip("simpy")
    rows: list = []
    timing.stale_synchronous(1, rows, K=20, T=100)
    timing.many_ranks(1, rows, K=16, hosts=4, each=3)
    assert len(rows) == 4 and all(ours > 0 and peer > 0 for _, ours, peer, _ in rows)
