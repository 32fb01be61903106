"""The price of a compressed step is what the simulated wire takes, and it breaks even where it says."""

import math

import numpy as np
import pytest

from labkit import Simulated, launch
from labkit.collectives import ring
from labkit.compress import (
    DGC,
    QSGD,
    ErrorFeedback,
    Identity,
    OverComm,
    PowerSGD,
    RandomK,
    Sign,
    TopK,
    pays,
    rngs,
    wire_time,
)  # fmt: skip
from labkit.network import Link

d = 960  # a multiple of every K below, as are the sums that travel
HOWS = [
    Identity(),
    QSGD(7),
    TopK(0.1),
    RandomK(120),
    ErrorFeedback(Sign()),
    DGC(0.05),
    PowerSGD(((24, 40),), r=3),
]


def exchange(comm, how):
    draws = rngs(0, comm.rank)
    g = np.random.default_rng(comm.rank).standard_normal(d)
    how.mean(OverComm(comm), g, how.start(d, g.dtype, draws), draws)


@pytest.mark.parametrize("K", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("how", HOWS, ids=str)
def test_the_simulated_wire_takes_as_long_as_the_closed_form_says(how, K):
    link = Link(3e-4, 1e6)
    simulated = launch(exchange, K, how, world=Simulated(link)).elapsed_s
    assert simulated == pytest.approx(wire_time(how, K, d, 8, link), rel=1e-9)


@pytest.mark.parametrize("how", [QSGD(7), TopK(0.01), Sign(), RandomK(0.01)], ids=str)
def test_below_break_even_it_pays_and_above_it_does_not(how):
    K, n, alpha, coding_s = 4, 10**6, 1e-4, 0.02
    low, high = pays(how, K, n, 4, alpha, coding_s)
    assert low == 0 and 0 < high < math.inf

    def lead(beta):
        link = Link(alpha, beta)
        return ring.time(K, 4 * n, link) - wire_time(how, K, n, 4, link) - coding_s

    assert lead(high) == pytest.approx(0, abs=1e-12)
    assert lead(0.99 * high) > 0 > lead(1.01 * high)
    assert pays(how, K, n, 4, alpha, coding_s).at(0.99 * high) and not pays(how, K, n, 4, alpha, coding_s).at(
        1.01 * high
    )
    # by hand: 2 (K - 1) / K n bytes and 2 (K - 1) rounds against what the method takes
    if not how.summable:
        saved = 2 * 3 / 4 * 4 * n - 3 * how.nbytes(n, 4)
        assert high == pytest.approx(saved / (coding_s - 3 * alpha))


def test_more_workers_turn_a_gather_from_a_gain_into_a_loss():
    """A ring's share of a vector does not grow with K, K - 1 gathered messages do: 1 % with indices is 2 % of the bytes."""
    verdicts = {K: pays(TopK(0.01), K, 10**6, 4, 0.0) for K in (4, 64, 99, 101, 1000)}
    assert [v.high > 0 for v in verdicts.values()] == [True, True, True, False, False]
    assert pays(RandomK(0.01), 1000, 10**6, 4, 0.0) == (0, math.inf)  # no indices, and summed in flight


def test_the_corners_never_always_and_only_above():
    assert pays(Identity(), 4, 100, 4, 1e-3) == (0, 0)  # it ties everywhere, and a tie is not faster
    assert pays(Identity(), 4, 100, 4, 1e-3, coding_s=1.0) == (0, 0)
    assert pays(Sign(), 4, 10**6, 4, 1e-3, coding_s=2e-3) == (
        0,
        math.inf,
    )  # half the rounds pay for the coding
    more = pays(TopK(1.0), 4, 10**5, 4, 1e-3)  # twice the bytes, half the rounds
    assert more.low > 0 and more.high == math.inf and not more.at(more.low / 2) and more.at(2 * more.low)


def test_nonsense_is_refused():
    for coding_s in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="coding_s must be a finite number >= 0"):
            pays(Sign(), 4, 100, 4, 0.0, coding_s)
