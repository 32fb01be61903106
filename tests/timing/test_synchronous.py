"""Backup workers: the first K - b of a round count, nobody is interrupted, and no worker computes for two rounds at once."""

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from labkit.timing import Constant, Kind, OneStraggler, ShiftedExponential, Synchronous, draw

SHAPES = array_shapes(min_dims=2, max_dims=2, max_side=7)
MATRICES = arrays(np.float64, SHAPES, elements=st.floats(0, 10, allow_subnormal=False))
TICKS = arrays(np.float64, SHAPES, elements=st.integers(1, 12).map(lambda n: n / 8))  # many ties, no rounding
COMM = st.sampled_from([0.0, 0.5])


def event_by_event(X, backups, comm_s):
    """Ends of the rounds and (round, worker) of each gradient used, from a list of events in order of time."""
    K, T = X.shape
    GRADIENT, ROUND, LATE = range(
        3
    )  # at the same time in this order: who is late joins the round that starts
    queue = [(X[k, 0], GRADIENT, k, 0) for k in range(K)]
    heapq.heapify(queue)
    now, begun, came, resting, idle, ends, used = 0, [1] * K, 0, False, [], [], []

    def start(at, k):
        heapq.heappush(queue, (at + X[k, begun[k]], GRADIENT, k, now))
        begun[k] += 1

    while now < T:
        at, what, k, of = heapq.heappop(queue)
        if what == ROUND:
            for other in idle:
                start(at, other)
            idle, resting = [], False
        elif what == GRADIENT and of == now:
            came += 1
            used.append((now, k))
            idle.append(k)
            if came == K - backups:
                now, came, resting = now + 1, 0, True
                ends.append(at + comm_s)
                heapq.heappush(queue, (at + comm_s, ROUND, -1, now))
        elif what == GRADIENT:
            heapq.heappush(queue, (at, LATE, k, of))
        elif resting:
            idle.append(k)
        else:
            start(at, k)
    return np.array(ends), used


@settings(deadline=None, max_examples=150)
@given(st.one_of(TICKS, MATRICES.map(lambda X: X + 0.01)), st.integers(0, 6), COMM)
def test_the_recurrence_is_the_run_event_by_event(X, backups, comm_s):
    backups = min(backups, len(X) - 1)
    ends, used = event_by_event(X, backups, comm_s)
    np.testing.assert_allclose(Synchronous(backups).ends(X, comm_s), ends, rtol=1e-12)
    arrivals = Synchronous(backups).timeline(X, comm_s).arrivals_s
    assert sorted(used) == [tuple(rt) for rt in np.argwhere(~np.isnan(arrivals.T)).tolist()]
    np.testing.assert_allclose(np.nanmax(arrivals, axis=0) + comm_s, ends, rtol=1e-12)


@settings(deadline=None, max_examples=80)
@given(MATRICES, COMM)
def test_without_backups_it_is_bulk_synchronous_to_the_last_bit(X, comm_s):
    a, b = Synchronous(0).timeline(X, comm_s), Synchronous().timeline(X, comm_s)
    for name in ("rank", "step", "kind", "start_s", "end_s", "arrivals_s"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    np.testing.assert_array_equal(Synchronous(0).ends(X, comm_s), Synchronous().ends(X, comm_s))


@settings(deadline=None, max_examples=80)
@given(st.one_of(MATRICES, TICKS.map(lambda X: X - 1 / 8)), st.integers(0, 6), COMM)
def test_exactly_k_minus_b_contribute_and_the_quick_form_agrees_even_where_times_are_zero(X, backups, comm_s):
    K, T = X.shape
    backups = min(backups, K - 1)
    timeline = Synchronous(backups).timeline(X, comm_s)
    assert ((~np.isnan(timeline.arrivals_s)).sum(axis=0) == K - backups).all()
    ends = np.nanmax(timeline.arrivals_s, axis=0) + comm_s
    np.testing.assert_array_equal(Synchronous(backups).ends(X, comm_s), ends)
    assert timeline.T == T


@settings(deadline=None, max_examples=80)
@given(MATRICES, st.integers(0, 6), COMM)
def test_a_worker_does_one_thing_at_a_time_without_gaps_and_uses_its_times_in_order(X, backups, comm_s):
    timeline = Synchronous(min(backups, len(X) - 1)).timeline(X, comm_s)
    for k, row in enumerate(X):
        mine = timeline.rank == k
        begin, end = timeline.start_s[mine], timeline.end_s[mine]
        order = np.lexsort((end, begin))
        np.testing.assert_array_equal(begin[order][1:], end[order][:-1])
        assert begin.min() == 0
        computed = timeline.kind[mine][order] == Kind.COMPUTE
        spent = (end - begin)[order][computed]
        np.testing.assert_allclose(spent, row[: len(spent)], rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(MATRICES, st.integers(0, 5))
def test_ties_count_for_the_smaller_rank_and_renaming_changes_no_end(X, backups):
    K, T = X.shape
    backups = min(backups, K - 1)
    np.testing.assert_allclose(
        Synchronous(backups).ends(X[::-1]), Synchronous(backups).ends(X), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(
        2 * Synchronous(backups).ends(X, 0.5), Synchronous(backups).ends(2 * X, 1.0)
    )
    alike = Synchronous(backups).timeline(np.ones((K, T))).arrivals_s
    assert not np.isnan(alike[: K - backups, 0]).any() and np.isnan(alike[K - backups :, 0]).all()


def test_one_backup_worker_is_the_cure_for_one_straggler():
    X = draw(OneStraggler(Constant(1.0), 10.0, rank=2), 8, 30, seed=0)
    assert Synchronous().timeline(X).finish_s == 300
    np.testing.assert_array_equal(Synchronous(1).ends(X), np.arange(1.0, 31.0))
    timeline = Synchronous(1).timeline(X)
    assert np.isnan(timeline.arrivals_s[2]).all()  # its gradients are never in time
    assert timeline.totals()[2, Kind.COMPUTE] == 30 and timeline.totals()[2, Kind.WAIT] == 0


def test_dropping_gradients_shortens_rounds():
    X = draw(ShiftedExponential(0.01, 0.02), 16, 200, seed=1)
    ends = [Synchronous(b).ends(X)[-1] for b in (0, 1, 2, 4, 8)]
    assert ends == sorted(ends, reverse=True) and ends[2] < 0.8 * ends[0]


def test_replicas_are_independent_runs():
    X = np.random.default_rng(0).integers(0, 5, (6, 12, 4)) / 4  # with ties and zeros
    for b in (0, 2, 5):
        together = Synchronous(b).ends(X, 0.1)
        apart = np.stack([Synchronous(b).ends(X[:, :, r], 0.1) for r in range(4)], axis=1)
        np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize(
    "make, words",
    [
        (
            lambda: Synchronous(2).timeline([[0.1], [0.2]]),
            "backups must be below the K = 2 workers, got 2",
        ),
        (lambda: Synchronous(1).ends([[0.1]]), "backups must be below the K = 1 workers, got 1"),
        (lambda: Synchronous(-1).timeline([[0.1]]), "backups must be a whole number >= 0, got -1"),
        (lambda: Synchronous(0.5).timeline([[0.1]]), "backups must be a whole number >= 0, got 0.5"),
        (lambda: Synchronous(0).timeline([[0.1]], -1), "comm_s must be a finite number >= 0, got -1"),
        (lambda: Synchronous(0).timeline([[np.nan]]), "X must hold finite seconds >= 0, got .*nan"),
        (lambda: Synchronous(0).ends([0.1]), "X must have shape"),
        (lambda: Synchronous(0).ends([[-0.1]]), "X must hold finite seconds >= 0, got .*-0.1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, words):
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
