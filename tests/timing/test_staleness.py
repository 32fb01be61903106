"""From timelines to versions: what a gradient has read, how stale it can get, and who is ahead of whom."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from labkit.timing import (
    Asynchronous,
    Constant,
    Kind,
    LocalSteps,
    ShiftedExponential,
    StaleSynchronous,
    Synchronous,
    Timeline,
    Uniform,
    Updates,
    draw,
)

SHAPES = array_shapes(min_dims=2, max_dims=2, max_side=7)
MATRICES = arrays(np.float64, SHAPES, elements=st.floats(0, 10, allow_subnormal=False))
POSITIVE = st.one_of(
    arrays(np.float64, SHAPES, elements=st.floats(0.01, 10)),
    arrays(np.float64, SHAPES, elements=st.integers(1, 8).map(lambda n: n / 8)),  # many ties
)
COMM = st.sampled_from([0.0, 0.25])


def plain_updates(timeline):
    """(rank, step, read) of each update in order, by going through all spans for each of them."""
    rows = []
    for k in range(timeline.K):
        for t in range(timeline.T):
            mine = (timeline.rank == k) & (timeline.step == t)
            if (timeline.kind[mine] == Kind.COMPUTE).any():
                start = timeline.start_s[mine & (timeline.kind == Kind.COMPUTE)].min()
                rows.append((timeline.end_s[mine & (timeline.kind != Kind.WAIT)].max(), k, t, start))
    rows.sort()
    return [(k, t, sum(other[0] <= start for other in rows[:u])) for u, (_, k, t, start) in enumerate(rows)]


@settings(deadline=None, max_examples=80)
@given(MATRICES, st.integers(0, 4), COMM, st.sampled_from([0.0, 0.5]))
def test_one_by_one_is_the_plain_count_of_what_was_applied_before(X, slack, comm_s, server_s):
    for timeline in (
        StaleSynchronous(slack).timeline(X, comm_s),
        Asynchronous().timeline(X, comm_s, server_s),
    ):
        updates = Updates.asynchronous(timeline)
        rows = zip(updates.rank, updates.step, updates.read, strict=True)
        assert [tuple(int(x) for x in row) for row in rows] == plain_updates(timeline)
        np.testing.assert_array_equal(updates.into, np.arange(X.size))
        assert not updates.measured and updates.where == timeline.where


@settings(deadline=None, max_examples=80)
@given(POSITIVE, st.integers(0, 4), COMM)
def test_a_worker_has_read_its_own_gradients_and_all_that_ssp_promises(X, slack, comm_s):
    updates = StaleSynchronous(slack).updates(X, comm_s)
    for rank, step, read in zip(updates.rank, updates.step, updates.read, strict=True):
        seen = np.bincount(updates.rank[:read], minlength=len(X))  # of each worker, the first so many
        assert seen[rank] == step
        assert (seen >= step - slack).all()


@settings(deadline=None, max_examples=150)
@given(POSITIVE, st.integers(0, 4), COMM)
def test_no_gradient_is_staler_than_the_theorem_allows(X, slack, comm_s):
    assert StaleSynchronous(slack).updates(X, comm_s).tau.max() <= StaleSynchronous(slack).staleness_bound(
        len(X)
    )


@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("slack", [0, 1, 3])
def test_the_bound_on_staleness_is_attained(K, slack):
    # The others take their first slack + 1 steps slowly and the rest in no time; worker 0 is slow in step slack only.
    X = np.full((K, 2 * slack + 2), 1e-3)
    X[1:, 0] = 1.0
    X[0, slack] = 5.0
    assert StaleSynchronous(slack).updates(X).tau.max() == StaleSynchronous(slack).staleness_bound(K)


def test_equal_workers_without_a_barrier_are_stale_by_k_minus_1_once_they_are_out_of_step():
    K, T = 8, 400
    updates = Asynchronous().updates(draw(ShiftedExponential(0.01, 0.02), K, T, seed=1))
    middle = updates.tau[len(updates.tau) // 4 : len(updates.tau) // 2]
    assert middle.mean() == pytest.approx(K - 1, rel=0.05)
    # With a busy server and equal times, they queue up in turn: everyone is K - 1 versions behind, exactly.
    queued = Asynchronous().updates(draw(Constant(0.02), K, 50, seed=0), server_s=0.01).tau
    assert (queued[K:-K] == K - 1).all()


@settings(deadline=None, max_examples=60)
@given(MATRICES, COMM, st.integers(0, 5))
def test_behind_a_barrier_nothing_is_stale_and_everyone_who_came_in_time_counts(X, comm_s, backups):
    K, T = X.shape
    backups = min(backups, K - 1)
    for timeline, used in (
        (Synchronous().timeline(X, comm_s), K),
        (Synchronous(backups).timeline(X, comm_s), K - backups),
        (LocalSteps(1).timeline(X, comm_s), K),
    ):
        updates = Updates.synchronous(timeline)
        assert updates.U == T and not updates.tau.any()
        np.testing.assert_array_equal(np.bincount(updates.into), np.full(T, used))
        np.testing.assert_array_equal(updates.step, updates.into)
    ends = np.nanmax(Synchronous(backups).timeline(X, comm_s).arrivals_s, axis=0) + comm_s
    np.testing.assert_allclose(Synchronous(backups).updates(X, comm_s).applied_s, ends, rtol=1e-12)


def test_a_measured_barrier_that_workers_leave_one_after_another_is_still_a_barrier():
    spans = []
    for k in range(3):
        for t in range(4):  # worker 2 leaves every barrier half a second after the others have gone on
            late = 0.5 if k == 2 and t < 3 else 0.0
            begin = t + (0.5 if k == 2 and t else 0.0)
            spans += [(k, t, Kind.COMPUTE, begin, t + 0.9), (k, t, Kind.COMMUNICATE, t + 0.9, t + 1.0 + late)]
    arrivals = [(f"all-reduce {t}", np.full(3, t + 0.9)) for t in range(4)]
    updates = Updates.synchronous(
        Timeline.from_spans(3, spans, arrivals=arrivals, measured=True, where="here")
    )
    assert not updates.tau.any() and updates.measured
    np.testing.assert_allclose(updates.applied_s, [1.5, 2.5, 3.5, 4.0])


@settings(deadline=None, max_examples=60)
@given(POSITIVE, st.integers(0, 6), COMM)
def test_the_lead_is_how_many_steps_the_slowest_has_yet_to_compute(X, slack, comm_s):
    timeline = StaleSynchronous(slack).timeline(X, comm_s)
    ahead = timeline.lead()
    start = timeline.start_s[timeline.kind == Kind.COMPUTE].reshape(X.shape)
    for k, t in np.ndindex(X.shape):
        finished = (timeline.arrivals_s <= start[k, t]).sum(axis=1)  # by each worker
        assert ahead[k, t] == t - finished.min()
    assert ahead.min() >= 0 and ahead.max() <= slack
    assert not Synchronous().timeline(X, comm_s).lead().any()


def test_the_slack_is_used():
    X = draw(Uniform(0.9, 1.1), 6, 100, seed=0)
    X[0] *= 2
    for slack in (1, 3, 10):
        assert StaleSynchronous(slack).timeline(X).lead().max() == slack


@settings(deadline=None, max_examples=40)
@given(arrays(np.float64, SHAPES, elements=st.floats(0.1, 10)), st.integers(0, 3))
def test_slower_clocks_change_no_version(X, slack):
    a, b = StaleSynchronous(slack).updates(X, 0.5), StaleSynchronous(slack).updates(4 * X, 2.0)
    for name in ("rank", "step", "read"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    np.testing.assert_array_equal(4 * a.applied_s, b.applied_s)


def test_ten_thousand_workers_are_read_in_a_moment():
    updates = StaleSynchronous(3).updates(draw(Uniform(0.1, 0.3), 2_000, 50, seed=0))
    assert updates.U == 100_000 and updates.tau.max() <= StaleSynchronous(3).staleness_bound(2_000)


NAN = float("nan")


def spans(*rows, arrivals=()):
    return Timeline.from_spans(2, rows, arrivals=arrivals, measured=True, where="")


@pytest.mark.parametrize(
    "make, words",
    [
        (
            lambda: Updates.synchronous(LocalSteps(2).timeline(np.ones((2, 4)))),
            "one synchronisation point for each of its 4 steps, got 2",
        ),
        (lambda: Updates.synchronous(spans((0, 0, 0, 0.0, 1.0))), "for each of its 1 steps, got 0"),
        (
            lambda: Updates.synchronous(spans((0, 0, 0, 0.0, 1.0), arrivals=[("meet", [NAN, NAN])])),
            "an arrival at each point, got none at 'meet'",
        ),
        (
            lambda: Updates.synchronous(spans((0, 0, 0, 0.0, 1.0), arrivals=[("meet", [1.0, 1.0])])),
            "a compute span for each arrival, got none for worker 1, step 0",
        ),
        (lambda: Synchronous(1).timeline([[1.0, 1.0], [9.0, 1.0]]).lead(), "got none for worker 1, step 1"),
        (lambda: StaleSynchronous(1).staleness_bound(0), "K must be a whole number >= 1, got 0"),
        (lambda: StaleSynchronous(-1).staleness_bound(3), "slack must be a whole number >= 0, got -1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, words):
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
