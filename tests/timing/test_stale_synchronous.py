"""Barrier recurrences: limits, orders and the fast kernel, against plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from labkit.timing import Constant, Kind, OneStraggler, StaleSynchronous, Synchronous, Uniform, draw, overlap

SECONDS = st.floats(0, 10, allow_subnormal=False)
MATRICES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=7), elements=SECONDS)


def plain_ssp(X, slack, comm_s=0.0):
    """F[k][t] from the recurrence, one number at a time."""
    K, T = X.shape
    F = [[0.0] * T for _ in range(K)]
    for t in range(T):
        admitted = max(F[k][t - 1 - slack] for k in range(K)) if t - 1 - slack >= 0 else 0.0
        for k in range(K):
            own = F[k][t - 1] if t else 0.0
            F[k][t] = max(own, admitted) + X[k, t] + comm_s
    return np.array(F)


def starts(timeline):
    of = timeline.kind == Kind.COMPUTE
    out = np.empty((timeline.K, timeline.T))
    out[timeline.rank[of], timeline.step[of]] = timeline.start_s[of]
    return out


@settings(deadline=None, max_examples=80)
@given(MATRICES, st.integers(0, 8), st.sampled_from([0.0, 0.5]))
def test_the_timeline_and_the_kernel_are_the_recurrence(X, slack, comm_s):
    F = plain_ssp(X, slack, comm_s)
    timeline = StaleSynchronous(slack).timeline(X, comm_s)
    np.testing.assert_allclose(timeline.arrivals_s + comm_s, F, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(StaleSynchronous(slack).ends(X, comm_s), F.max(axis=0), rtol=1e-12, atol=1e-12)
    assert timeline.finish_s == pytest.approx(F.max(), rel=1e-12, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(MATRICES, st.sampled_from([0.0, 0.25]))
def test_no_slack_is_bulk_synchronous(X, comm_s):
    a, b = Synchronous().timeline(X, comm_s), StaleSynchronous(0).timeline(X, comm_s)
    np.testing.assert_allclose(starts(a), starts(b), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(a.arrivals_s, b.arrivals_s, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(a.totals(), b.totals(), rtol=1e-9, atol=1e-9)
    assert a.finish_s == pytest.approx(float((X.max(axis=0) + comm_s).sum()), rel=1e-12, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(MATRICES, st.integers(0, 3))
def test_slack_beyond_the_steps_is_asynchronous(X, more):
    T = X.shape[1]
    free = StaleSynchronous(T + more).timeline(X, 0.5)
    assert free.idle_s == 0
    np.testing.assert_allclose(free.arrivals_s, np.cumsum(X + 0.5, axis=1) - 0.5, rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(MATRICES, st.integers(0, 6))
def test_more_slack_never_finishes_later_and_never_waits_more(X, slack):
    tight, loose = StaleSynchronous(slack).timeline(X, 0.1), StaleSynchronous(slack + 1).timeline(X, 0.1)
    assert loose.finish_s <= tight.finish_s + 1e-9
    assert loose.idle_s <= tight.idle_s + 1e-9


@settings(deadline=None, max_examples=60)
@given(MATRICES, st.integers(0, 6))
def test_nobody_runs_more_than_slack_steps_ahead_and_no_time_is_lost_otherwise(X, slack):
    begun, F = starts(StaleSynchronous(slack).timeline(X)), StaleSynchronous(slack).timeline(X).arrivals_s
    for t in range(1, X.shape[1]):
        own = F[:, t - 1]
        bar = F[:, t - 1 - slack].max() if t > slack else 0.0
        assert (begun[:, t] >= bar - 1e-12).all()
        np.testing.assert_allclose(begun[:, t], np.maximum(own, bar), rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(MATRICES)
def test_every_second_of_a_barrier_is_computed_waited_or_communicated(X):
    timeline = Synchronous().timeline(X, 0.25)
    np.testing.assert_allclose(timeline.totals().sum(axis=1), timeline.finish_s, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(timeline.per_step(Kind.COMPUTE), X, rtol=1e-9, atol=1e-9)


def test_one_worker_never_waits():
    X = draw(Uniform(0.1, 0.2), 1, 20, 0)
    for slack in (0, 3):
        assert StaleSynchronous(slack).timeline(X).idle_s == 0


def test_seven_at_90_ms_and_one_at_300_ms_idle_210_ms_each():
    timeline = Synchronous().timeline(draw(OneStraggler(Constant(0.09), 0.3 / 0.09, rank=4), 8, 1, 0))
    waits = 1e3 * timeline.totals()[:, Kind.WAIT]
    np.testing.assert_allclose(waits, [210] * 4 + [0] + [210] * 3)


@pytest.mark.parametrize("slow, slower_by", [(0.75, 1 / 3)])
def test_a_quarter_less_throughput_on_one_of_64_slows_the_job_by_a_third(slow, slower_by):
    sick = Synchronous().timeline(draw(OneStraggler(Constant(0.3), 1 / slow), 64, 10, 0)).finish_s
    assert sick / Synchronous().timeline(draw(Constant(0.3), 64, 10, 0)).finish_s - 1 == pytest.approx(
        slower_by
    )


def test_replicas_are_independent_runs():
    X = np.random.default_rng(0).random((5, 12, 3))
    for slack in (0, 2, 20):
        together = StaleSynchronous(slack).ends(X, 0.1)
        apart = np.stack([StaleSynchronous(slack).ends(X[:, :, r], 0.1) for r in range(3)], axis=1)
        np.testing.assert_array_equal(together, apart)


def test_the_kernel_leaves_its_input_alone_in_either_memory_order():
    X = np.random.default_rng(0).random((50, 40))
    before = X.copy()
    a = StaleSynchronous(2).ends(X)
    np.testing.assert_array_equal(a, StaleSynchronous(2).ends(np.asfortranarray(X)))
    np.testing.assert_array_equal(X, before)


@settings(deadline=None, max_examples=100)
@given(SECONDS, SECONDS, st.integers(1, 40))
def test_overlap_exposes_the_last_bucket_or_what_the_channel_cannot_carry(b, a, L):
    step = overlap(b, a, L)
    assert step.total_s == pytest.approx(max(b + a / L, b / L + a), rel=1e-12, abs=1e-12)
    assert max(a, b) - 1e-9 <= step.total_s <= a + b + 1e-9
    assert step.exposed_s + step.hidden_s == pytest.approx(a, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "make, words",
    [
        (
            lambda: Synchronous().timeline([[0.1, -0.1]]),
            "X must hold finite seconds >= 0, got .*-0.1.* for worker 0, step 1",
        ),
        (lambda: Synchronous().timeline([0.1]), r"X must be a \(K, T\) matrix"),
        (lambda: Synchronous().timeline([[0.1]], -1), "comm_s must be a finite number >= 0, got -1"),
        (lambda: StaleSynchronous(-1).timeline([[0.1]]), "slack must be a whole number >= 0, got -1"),
        (lambda: StaleSynchronous(1.5).timeline([[0.1]]), "slack must be a whole number >= 0, got 1.5"),
        (lambda: StaleSynchronous(0).ends([[0.1, np.nan]]), "got .*nan.* at step 1"),
        (lambda: StaleSynchronous(0).ends([[0.1, -2.0]]), "got .*-2.0.* at step 1"),
        (lambda: StaleSynchronous(0).ends([[0.1, np.inf]]), "got inf"),
        (lambda: StaleSynchronous(0).ends([0.1]), "X must have shape"),
        (lambda: overlap(0.2, 0.06, 0), "L must be a whole number >= 1, got 0"),
        (lambda: overlap(-0.2, 0.06, 1), "backward_s must be a finite number >= 0, got -0.2"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, words):
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
