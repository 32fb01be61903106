"""Asynchronous workers at a busy server: the queue's limits and its laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from labkit.timing import (
    Asynchronous,
    Kind,
    ShiftedExponential,
    StaleSynchronous,
    Uniform,
    draw,
)
from labkit.timing.queue import serve

SHAPES = array_shapes(min_dims=2, max_dims=2, max_side=7)
MATRICES = arrays(np.float64, SHAPES, elements=st.floats(0, 10, allow_subnormal=False))
TIMES = st.sampled_from([0.0, 0.125, 0.5, 2.0])


def same(a, b):
    for name in ("rank", "step", "kind", "start_s", "end_s", "arrivals_s", "names"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@settings(deadline=None, max_examples=60)
@given(MATRICES, st.sampled_from([0.0, 0.3]), st.integers(0, 3))
def test_a_server_of_no_time_is_ssp_with_endless_slack_to_the_last_bit(X, comm_s, more):
    same(Asynchronous().timeline(X, comm_s), StaleSynchronous(X.shape[1] + more).timeline(X, comm_s))


@settings(deadline=None, max_examples=80)
@given(MATRICES, TIMES, st.sampled_from([0.1, 1.0, 4.0]))
def test_the_server_serves_one_at_a_time_in_order_of_arrival_and_never_rests_while_somebody_waits(
    X, comm_s, server_s
):
    sent, turn, end = (a.ravel() for a in serve(X, comm_s, server_s))
    order = np.argsort(turn, kind="stable")
    np.testing.assert_allclose(end - turn, server_s, rtol=1e-9)
    assert (turn >= sent).all()
    assert (np.diff(sent[order]) >= 0).all()  # first come, first served
    free = np.concatenate([[0.0], end[order][:-1]])
    np.testing.assert_allclose(turn[order], np.maximum(sent[order], free), rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=80)
@given(MATRICES, TIMES, TIMES)
def test_every_second_is_computed_waited_or_communicated(X, comm_s, server_s):
    timeline = Asynchronous().timeline(X, comm_s, server_s)
    K, T = X.shape
    np.testing.assert_allclose(timeline.per_step(Kind.COMPUTE), X, rtol=1e-9, atol=1e-9)
    talked = timeline.totals()[:, Kind.COMMUNICATE]
    np.testing.assert_allclose(talked, T * (comm_s + server_s), rtol=1e-9, atol=1e-9)
    own_end = [timeline.end_s[timeline.rank == k].max() for k in range(K)]
    np.testing.assert_allclose(timeline.totals().sum(axis=1), own_end, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(MATRICES, TIMES, TIMES)
def test_the_quick_form_says_when_the_slowest_has_finished_each_step(X, comm_s, server_s):
    timeline = Asynchronous().timeline(X, comm_s, server_s)
    finished = np.zeros(X.shape)
    np.maximum.at(finished, (timeline.rank, timeline.step), timeline.end_s)
    np.testing.assert_array_equal(Asynchronous().ends(X, comm_s, server_s), finished.max(axis=0))


def test_one_worker_never_waits_and_a_server_busy_all_the_time_sets_the_pace():
    assert Asynchronous().timeline(draw(Uniform(0.1, 0.2), 1, 30, 0), 0.05, 0.03).idle_s == 0
    K, T, c = 12, 50, 1.0
    X = draw(Uniform(0.1, 0.2), K, T, 0)  # K c is far more than a worker's cycle
    last = Asynchronous().ends(X, 0.0, c)[-1]
    assert last == pytest.approx(X[:, 0].min() + K * T * c, rel=1e-9)


def test_littles_law_workers_are_throughput_times_the_mean_cycle():
    K, T, c = 20, 4000, 0.05
    X = draw(ShiftedExponential(0.0, 1.0), K, T, seed=5)
    timeline = Asynchronous().timeline(X, 0.0, c)
    early = timeline.end_s < 0.9 * timeline.arrivals_s[:, -1].min()  # while all K are there
    horizon = timeline.end_s[early].max()
    served = (timeline.kind == Kind.COMMUNICATE) & early
    cycle = np.mean(X) + c + timeline.totals()[:, Kind.WAIT].sum() / (K * T)
    assert served.sum() / horizon * cycle == pytest.approx(K, rel=0.01)


def test_replicas_are_independent_runs():
    X = np.random.default_rng(0).random((5, 12, 3))
    for server_s in (0.0, 0.2):
        together = Asynchronous().ends(X, 0.1, server_s)
        apart = np.stack([Asynchronous().ends(X[:, :, r], 0.1, server_s) for r in range(3)], axis=1)
        np.testing.assert_array_equal(together, apart)


@settings(deadline=None, max_examples=40)
@given(arrays(np.float64, SHAPES, elements=st.floats(0.1, 10), unique=True), st.randoms())
def test_renaming_the_workers_renames_the_timeline_and_slower_clocks_stretch_it(X, random):
    if len(np.unique(X[:, 0])) == len(X):  # no ties
        shuffled = list(range(len(X)))
        random.shuffle(shuffled)
        a, b = serve(X, 0.1, 0.3), serve(X[shuffled], 0.1, 0.3)
        np.testing.assert_allclose(b[2], a[2][shuffled], rtol=1e-12)
    np.testing.assert_array_equal(2 * serve(X, 0.1, 0.3), serve(2 * X, 0.2, 0.6))


@pytest.mark.parametrize(
    "make, words",
    [
        (
            lambda: Asynchronous().timeline([[0.1, -0.1]]),
            "X must hold finite seconds >= 0, got .*-0.1.* worker 0, step 1",
        ),
        (lambda: Asynchronous().timeline([[0.1]], -1), "comm_s must be a finite number >= 0, got -1"),
        (lambda: Asynchronous().timeline([[0.1]], 0, -1), "server_s must be a finite number >= 0, got -1"),
        (
            lambda: Asynchronous().timeline([[0.1]], 0, np.nan),
            "server_s must be a finite number >= 0, got nan",
        ),
        (lambda: Asynchronous().ends([[0.1]], 0, -0.5), "server_s must be a finite number >= 0, got -0.5"),
        (lambda: Asynchronous().ends([[0.1]], -2, 0.5), "comm_s must be a finite number >= 0, got -2"),
        (lambda: Asynchronous().ends([0.1], 0, 0.5), r"X must have shape \(K, T\) or \(K, T, R\)"),
        (lambda: Asynchronous().ends([0.1]), r"X must have shape \(K, T\) or \(K, T, R\)"),
        (lambda: Asynchronous().ends(np.full((2, 2, 2), np.nan), 0, 1), "worker 0, step 0 of replica 0"),
        (lambda: Asynchronous().ends([[0.1, np.inf]], 0, 1), "got .*inf.* for worker 0, step 1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, words):
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
