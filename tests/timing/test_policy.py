"""Barrier policies: their texts and doors, and each recurrence against another way to the same times."""

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from labkit.timing.policy import Asynchronous, LocalSteps, StaleSynchronous, Synchronous, parse_policy
from labkit.timing.timeline import Kind

SHAPES = array_shapes(min_dims=2, max_dims=2, max_side=7)
MATRICES = arrays(np.float64, SHAPES, elements=st.floats(0, 10, allow_subnormal=False))
COMM = st.sampled_from([0.0, 0.5])
TICKS = arrays(np.float64, SHAPES, elements=st.integers(1, 12).map(lambda n: n / 8))  # many ties, no rounding
ALL = [Synchronous(), StaleSynchronous(0), StaleSynchronous(3), Asynchronous(), LocalSteps(1), LocalSteps(4)]
every_policy = pytest.mark.parametrize("policy", ALL, ids=str)


@pytest.mark.parametrize("policy", [*ALL, Synchronous(2)], ids=str)
def test_a_policy_is_read_from_its_own_text(policy):
    assert parse_policy(str(policy)) == policy == parse_policy(f" {policy} ")


@pytest.mark.parametrize(
    "text", ["", "bsp", "sync:1", "async:", "ssp", "ssp:", "ssp:-1", "ssp:1.5", "local:0"]
)
def test_another_text_is_refused(text):
    with pytest.raises(ValueError, match="must be"):
        parse_policy(text)


@every_policy
@settings(max_examples=50)
@given(X=MATRICES, comm_s=COMM)
def test_every_second_is_in_the_timeline_and_the_quick_form_says_when_the_slowest_is_done(policy, X, comm_s):
    timeline, ends = policy.timeline(X, comm_s), policy.ends(X, comm_s)
    np.testing.assert_allclose(timeline.per_step(Kind.COMPUTE), X, rtol=1e-9, atol=1e-9)
    own_end = [timeline.end_s[timeline.rank == k].max() for k in range(len(X))]
    np.testing.assert_allclose(timeline.totals().sum(axis=1), own_end, rtol=1e-9, atol=1e-9)
    finished = np.zeros(X.shape)
    busy = (timeline.kind != Kind.WAIT) | isinstance(policy, Synchronous | LocalSteps)
    np.maximum.at(finished, (timeline.rank[busy], timeline.step[busy]), timeline.end_s[busy])
    np.testing.assert_allclose(ends, finished.max(axis=0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("policy", [*ALL, Synchronous(2)], ids=str)
def test_replicas_are_independent_runs_and_slower_clocks_stretch_them(policy):
    X = np.random.default_rng(0).integers(0, 5, (6, 12, 3)) / 4  # with ties and zeros
    apart = np.stack([policy.ends(X[:, :, r], 0.5) for r in range(3)], axis=1)
    np.testing.assert_array_equal(policy.ends(X, 0.5), apart)
    np.testing.assert_array_equal(policy.ends(2 * X, 1.0), 2 * apart)
    np.testing.assert_array_equal(policy.ends(X[::-1], 0.5), apart)  # whoever has which rank


@pytest.mark.parametrize("policy", [*ALL, Synchronous(1)], ids=str)
@pytest.mark.parametrize("form", ["timeline", "ends"])
@pytest.mark.parametrize("X, comm_s, words", [
    ([[0.1, -0.5], [1.0, 1.0]], 0.0, "X must hold finite seconds >= 0, got .*-0.5.* step 1"),
    ([[0.1, np.nan], [1.0, 1.0]], 0.0, "X must hold finite seconds >= 0, got .*nan.* step 1"),
    ([[0.1, np.inf], [1.0, 1.0]], 0.0, "X must hold finite seconds >= 0, got .*inf"),
    ([0.1, 0.2], 0.0, "X must "),
    (np.zeros((0, 2)), 0.0, "no empty axis"),
    ([[0.1], [0.2]], -1, "comm_s must be a finite number >= 0, got -1"),
])  # fmt: skip
def test_bad_times_are_refused_by_every_policy(policy, form, X, comm_s, words):
    with pytest.raises(ValueError, match=words):
        getattr(policy, form)(X, comm_s)


@pytest.mark.parametrize("make, words", [
    (lambda: Synchronous(-1), "backups must be a whole number >= 0, got -1"),
    (lambda: Synchronous(2).ends([[0.1], [0.2]]), "backups must be below the K = 2 workers, got 2"),
    (lambda: StaleSynchronous(1.5), "slack must be a whole number >= 0, got 1.5"),
    (lambda: LocalSteps(0), "H must be a whole number >= 1, got 0"),
    (lambda: Asynchronous().timeline([[0.1]], 0, -1), "server_s must be a finite number >= 0, got -1"),
    (lambda: StaleSynchronous(1).staleness_bound(0), "K must be a whole number >= 1, got 0"),
])  # fmt: skip
def test_bad_settings_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# -- rounds, with backup workers -------------------------------------------------------------------------


def event_by_event(X, backups, comm_s):
    """Ends of the rounds and (round, worker) of each gradient used, from a list of events in order of time."""
    K, T = X.shape
    # At the same time in this order: who is late joins the round that starts.
    GRADIENT, ROUND, LATE = range(3)
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


@settings(max_examples=150)
@given(st.one_of(TICKS, MATRICES.map(lambda X: X + 0.01)), st.integers(0, 6), COMM)
def test_the_recurrence_is_the_run_event_by_event(X, backups, comm_s):
    backups = min(backups, len(X) - 1)
    ends, used = event_by_event(X, backups, comm_s)
    np.testing.assert_allclose(Synchronous(backups).ends(X, comm_s), ends, rtol=1e-12)
    arrivals = Synchronous(backups).timeline(X, comm_s).arrivals_s
    assert sorted(used) == [tuple(rt) for rt in np.argwhere(~np.isnan(arrivals.T)).tolist()]


@settings(max_examples=80)
@given(st.one_of(MATRICES, TICKS.map(lambda X: X - 1 / 8)), st.integers(0, 6), COMM)
def test_k_minus_b_contribute_and_a_worker_does_one_thing_at_a_time_without_gaps(X, backups, comm_s):
    """Also where times are zero, of which the run event by event knows nothing."""
    K, T = X.shape
    backups = min(backups, K - 1)
    timeline = Synchronous(backups).timeline(X, comm_s)
    assert ((~np.isnan(timeline.arrivals_s)).sum(axis=0) == K - backups).all() and timeline.T == T
    ends = np.nanmax(timeline.arrivals_s, axis=0) + comm_s
    np.testing.assert_array_equal(Synchronous(backups).ends(X, comm_s), ends)
    for k, row in enumerate(X):
        mine = timeline.rank == k
        begin, end = timeline.start_s[mine], timeline.end_s[mine]
        order = np.lexsort((end, begin))
        np.testing.assert_array_equal(begin[order][1:], end[order][:-1])
        assert begin.min() == 0
        spent = (end - begin)[order][timeline.kind[mine][order] == Kind.COMPUTE]
        np.testing.assert_allclose(spent, row[: len(spent)], rtol=1e-9, atol=1e-9)


# -- stale synchronous -----------------------------------------------------------------------------------


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


@settings(max_examples=80)
@given(MATRICES, st.integers(0, 8), st.sampled_from([0.0, 0.5]))
def test_the_timeline_and_the_kernel_are_the_recurrence(X, slack, comm_s):
    F = plain_ssp(X, slack, comm_s)
    timeline = StaleSynchronous(slack).timeline(X, comm_s)
    np.testing.assert_allclose(timeline.arrivals_s + comm_s, F, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(StaleSynchronous(slack).ends(X, comm_s), F.max(axis=0), rtol=1e-12, atol=1e-12)
    assert timeline.finish_s == pytest.approx(F.max(), rel=1e-12, abs=1e-12)


@settings(max_examples=60)
@given(MATRICES, st.integers(0, 6))
def test_more_slack_never_finishes_later_and_never_waits_more(X, slack):
    tight, loose = StaleSynchronous(slack).timeline(X, 0.1), StaleSynchronous(slack + 1).timeline(X, 0.1)
    assert loose.finish_s <= tight.finish_s + 1e-9
    assert loose.idle_s <= tight.idle_s + 1e-9
    assert StaleSynchronous(X.shape[1]).timeline(X, 0.1).idle_s == 0


def test_the_kernel_leaves_its_input_alone_in_either_memory_order():
    X = np.random.default_rng(0).random((50, 40))
    before = X.copy()
    a = StaleSynchronous(2).ends(X)
    np.testing.assert_array_equal(a, StaleSynchronous(2).ends(np.asfortranarray(X)))
    np.testing.assert_array_equal(X, before)


# -- asynchronous, at a busy server ----------------------------------------------------------------------


@settings(max_examples=80)
@given(MATRICES, st.sampled_from([0.0, 0.125, 0.5, 2.0]), st.sampled_from([0.1, 1.0, 4.0]))
def test_the_server_serves_one_at_a_time_in_order_of_arrival_and_never_rests_while_somebody_waits(
    X, comm_s, server_s
):
    timeline = Asynchronous().timeline(X, comm_s, server_s)
    begun, computed, done = timeline.steps()
    np.testing.assert_array_equal(begun[:, 1:], done[:, :-1])  # a worker goes on when its push is done
    came, done = (computed + comm_s).ravel(), done.ravel()
    turn = came + timeline.per_step(Kind.WAIT).ravel()
    order = np.argsort(done, kind="stable")
    np.testing.assert_allclose(done - turn, server_s, rtol=1e-9)
    assert (np.diff(came[order]) >= -1e-12).all()  # first come, first served
    free = np.concatenate([[0.0], done[order][:-1]])
    np.testing.assert_allclose(turn[order], np.maximum(came[order], free), rtol=1e-12, atol=1e-12)


# -- local steps -----------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(MATRICES, st.integers(1, 9), COMM)
def test_a_block_of_h_steps_is_one_superstep_of_their_sums(X, H, comm_s):
    blocks = np.stack([X[:, t : t + H].sum(axis=1) for t in range(0, X.shape[1], H)], axis=1)
    timeline, whole = LocalSteps(H).timeline(X, comm_s), Synchronous().timeline(blocks, comm_s)
    np.testing.assert_allclose(timeline.arrivals_s, whole.arrivals_s, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(timeline.totals(), whole.totals(), rtol=1e-9, atol=1e-9)


@settings(max_examples=60)
@given(MATRICES, st.integers(0, 3))
def test_with_t_local_steps_nobody_waits_before_the_end(X, more):
    T = X.shape[1]
    free, timeline = Asynchronous().timeline(X), LocalSteps(T + more).timeline(X)
    np.testing.assert_array_equal(timeline.arrivals_s[:, 0], free.arrivals_s[:, -1])
    assert timeline.names == (f"step {T - 1}",) and timeline.finish_s == free.finish_s
