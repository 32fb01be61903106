"""The reference run of section 2.2 to the printed digit: four workers, one slow, three supersteps."""

import random

import numpy as np
import pytest

from labkit.timing import Kind, StaleSynchronous, Synchronous

BASES_MS, COMM_MS, T = [20, 22, 21, 38], 6, 3


@pytest.fixture(scope="module")
def X():
    rng = random.Random(7)  # the same numbers as random.seed(7)
    return np.array([[base + rng.uniform(-2, 2) for base in BASES_MS] for _ in range(T)]).T / 1e3


def test_supersteps_and_total_to_the_printed_digit(X):
    timeline = Synchronous().timeline(X, COMM_MS / 1e3)
    supersteps = np.diff(Synchronous().ends(X, COMM_MS / 1e3), prepend=0.0)
    assert [f"{1e3 * s:.2f}" for s in supersteps] == ["42.29", "44.03", "42.36"]
    assert f"{1e3 * timeline.finish_s:.2f}" == "128.68"
    # Were the work shared out evenly, a step would take the mean base (25.25 ms) and the same communication.
    assert f"{1e3 * timeline.finish_s - T * (np.mean(BASES_MS) + COMM_MS):.2f}" == "34.93"
    assert (timeline.arrivals_s.argmax(axis=0) == 3).all() and timeline.totals()[3, Kind.WAIT] == 0


def test_slack_does_not_cure_a_persistent_straggler(X):
    runs = [StaleSynchronous(s).timeline(X, COMM_MS / 1e3) for s in range(T + 1)]
    assert [f"{1e3 * run.finish_s:.2f}" for run in runs] == ["128.68"] * 4
    idle = [run.idle_s for run in runs]
    assert idle == sorted(idle, reverse=True) and idle[0] > 0.15 and idle[-1] == 0
