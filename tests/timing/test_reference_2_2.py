"""The reference run of section 2.2 to the printed digit: four workers, one slow, three supersteps."""

import random

import numpy as np
import pytest

from labkit.timing import Kind, StaleSynchronous, Synchronous, overlap

BASES_MS = [20, 22, 21, 38]
COMM_MS = 6
T = 3


@pytest.fixture(scope="module")
def X():
    rng = random.Random(7)  # the same numbers as random.seed(7)
    return np.array([[base + rng.uniform(-2, 2) for base in BASES_MS] for _ in range(T)]).T / 1e3


def test_supersteps_and_total_to_the_printed_digit(X):
    timeline = Synchronous().timeline(X, COMM_MS / 1e3)
    leave = timeline.arrivals_s.max(axis=0)
    supersteps = np.diff(np.concatenate([[0.0], leave + COMM_MS / 1e3]))
    assert [f"{1e3 * s:.2f}" for s in supersteps] == ["42.29", "44.03", "42.36"]
    assert f"{1e3 * timeline.finish_s:.2f}" == "128.68"


def test_idle_against_perfect_balance_is_what_the_run_takes_beyond_the_mean_of_the_bases(X):
    # Were the work shared out evenly, a step would take the mean base (25.25 ms) and the same communication.
    balanced = T * (np.mean(BASES_MS) + COMM_MS)
    assert f"{1e3 * Synchronous().timeline(X, COMM_MS / 1e3).finish_s - balanced:.2f}" == "34.93"


def test_the_straggler_does_376_of_1000_parts_of_the_work_and_sets_the_pace(X):
    assert f"{100 * max(BASES_MS) / sum(BASES_MS):.1f}" == "37.6"
    timeline = Synchronous().timeline(X, COMM_MS / 1e3)
    assert (timeline.arrivals_s.argmax(axis=0) == 3).all()
    assert timeline.totals()[3, Kind.WAIT] == 0
    work = timeline.totals()[:, Kind.COMPUTE]
    assert f"{100 * work[3] / work.sum():.1f}" == "37.9"  # the share of what was drawn, not of the bases


def test_slack_does_not_cure_a_persistent_straggler(X):
    runs = [StaleSynchronous(s).timeline(X, COMM_MS / 1e3) for s in range(T + 1)]
    assert [f"{1e3 * run.finish_s:.2f}" for run in runs] == ["128.68"] * 4
    idle = [run.idle_s for run in runs]
    assert idle == sorted(idle, reverse=True) and idle[0] > 0.15 and idle[-1] == 0


def test_the_overlap_estimate():
    assert overlap(0.200, 0.060, 1).total_s == pytest.approx(0.260)
    assert f"{100 * overlap(0.200, 0.060, 1).share:.0f}" == "23"
    for L in (2, 4, 10, 60):
        assert overlap(0.200, 0.060, L).exposed_s == pytest.approx(0.060 / L)
