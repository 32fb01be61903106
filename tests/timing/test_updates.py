"""From timelines to versions: what a gradient has read, and how stale it can get."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from labkit.timing.policy import Asynchronous, LocalSteps, StaleSynchronous, Synchronous
from labkit.timing.timeline import Kind, Timeline
from labkit.timing.updates import Updates

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


@settings(max_examples=80)
@given(MATRICES, st.integers(0, 4), COMM, st.sampled_from([0.0, 0.5]))
def test_one_by_one_is_the_plain_count_of_what_was_applied_before(X, slack, comm_s, server_s):
    runs = StaleSynchronous(slack).timeline(X, comm_s), Asynchronous().timeline(X, comm_s, server_s)
    for timeline in runs:
        updates = Updates.asynchronous(timeline)
        rows = np.stack([updates.rank, updates.step, updates.read], axis=1).tolist()
        assert list(map(tuple, rows)) == plain_updates(timeline)
        np.testing.assert_array_equal(updates.into, np.arange(X.size))


@settings(max_examples=150)
@given(POSITIVE, st.integers(0, 4), COMM)
def test_a_worker_has_read_its_own_gradients_and_all_that_ssp_promises(X, slack, comm_s):
    updates = StaleSynchronous(slack).updates(X, comm_s)
    assert updates.tau.max() <= StaleSynchronous(slack).staleness_bound(len(X))
    for rank, step, read in zip(updates.rank, updates.step, updates.read, strict=True):
        seen = np.bincount(updates.rank[:read], minlength=len(X))  # of each worker, the first so many
        assert seen[rank] == step and (seen >= step - slack).all()


@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("slack", [0, 1, 3])
def test_the_bound_on_staleness_is_attained(K, slack):
    # The others take their first slack + 1 steps slowly and the rest in no time; worker 0 is slow in step slack only.
    X = np.full((K, 2 * slack + 2), 1e-3)
    X[1:, 0] = 1.0
    X[0, slack] = 5.0
    assert StaleSynchronous(slack).updates(X).tau.max() == StaleSynchronous(slack).staleness_bound(K)


@settings(max_examples=60)
@given(MATRICES, COMM, st.integers(0, 5))
def test_behind_a_barrier_nothing_is_stale_and_everyone_who_came_in_time_counts(X, comm_s, backups):
    K, T = X.shape
    backups = min(backups, K - 1)
    updates = Synchronous(backups).updates(X, comm_s)
    assert updates.U == T and not updates.tau.any()
    np.testing.assert_array_equal(np.bincount(updates.into), np.full(T, K - backups))
    np.testing.assert_array_equal(updates.step, updates.into)
    np.testing.assert_allclose(updates.applied_s, Synchronous(backups).ends(X, comm_s), rtol=1e-12)


def test_a_measured_barrier_that_workers_leave_one_after_another_is_still_a_barrier():
    spans = []
    for k in range(3):
        for t in range(4):  # worker 2 leaves every barrier half a second after the others have gone on
            late = 0.5 if k == 2 and t < 3 else 0.0
            begin = t + (0.5 if k == 2 and t else 0.0)
            spans += [(k, t, Kind.COMPUTE, begin, t + 0.9), (k, t, Kind.COMMUNICATE, t + 0.9, t + 1.0 + late)]
    arrivals = [(f"all-reduce {t}", np.full(3, t + 0.9)) for t in range(4)]
    timeline = Timeline.from_spans(3, spans, arrivals=arrivals, measured=True, where="here")
    updates = Updates.synchronous(timeline)
    assert not updates.tau.any() and updates.measured
    np.testing.assert_allclose(updates.applied_s, [1.5, 2.5, 3.5, 4.0])


def two(arrivals):
    """A timeline of two workers of which one computes, and a point at which they meet."""
    points = [("meet", arrivals)] if arrivals else []
    return Timeline.from_spans(2, [(0, 0, 0, 0.0, 1.0)], arrivals=points, measured=True, where="")


@pytest.mark.parametrize("timeline, words", [
    (LocalSteps(2).timeline(np.ones((2, 4))), "one synchronisation point for each of its 4 steps, got 2"),
    (two(None), "for each of its 1 steps, got 0"),
    (two([np.nan, np.nan]), "an arrival at each point, got none at 'meet'"),
    (two([1.0, 1.0]), "a compute span for each arrival, got none for worker 1, step 0"),
])  # fmt: skip
def test_timelines_without_rounds_are_refused(timeline, words):
    with pytest.raises(ValueError, match=words):
        Updates.synchronous(timeline)


@pytest.mark.parametrize("changes, words", [
    ({"K": 0}, "K must be a whole number >= 1, got 0"),
    ({"applied_s": [0.1, 0.3, 0.2]}, "never decrease"),
    ({"applied_s": [0.1, np.nan, 0.2]}, "finite"),
    ({"read": [0, 0, 3]}, "gradient 2 must have .* read 3, into 2"),
    ({"read": [0, 0.5, 0]}, "read must be whole numbers, got .*0.5"),
    ({"rank": [0, 2, 0]}, "gradient 1 must have a rank below 2"),
    ({"rank": [0, 1]}, "rank must be a 1-D array"),
    ({"step": [0, 0, -1]}, "gradient 2 .* step -1"),
    ({"into": [0, 2, 1], "read": [0, 0, 0]}, "into must count up"),
    ({"into": [0, 1, 1], "read": [0, 0, 0]}, "into must count up, each of 3 updates"),
])  # fmt: skip
def test_a_schedule_that_cannot_have_been_is_refused(changes, words):
    columns = {"into": [0, 1, 2], "rank": [0, 1, 0], "step": [0, 0, 1], "read": [0, 0, 1]}
    good = {"K": 2, **columns, "applied_s": [0.1, 0.2, 0.3], "measured": False, "where": "by hand"}
    np.testing.assert_array_equal(Updates(**good).tau, [0, 1, 1])
    with pytest.raises(ValueError, match=words):
        Updates(**{**good, **changes})
