"""Every recurrence is the simulated world run worker by worker: programs that send messages, at the same times."""

import numpy as np
import pytest

from labkit import Link, Simulated, launch
from labkit.learn import serve as serve_parameters
from labkit.learn import work
from labkit.timing import (
    Asynchronous,
    Kind,
    LocalSteps,
    OneStraggler,
    ShiftedExponential,
    StaleSynchronous,
    Synchronous,
    Trace,
    Uniform,
    Updates,
    draw,
    overlap,
)

FREE = Link(alpha=0.0, beta=float("inf"))
LAWS = [Uniform(0.01, 0.03), ShiftedExponential(0.005, 0.02), OneStraggler(Uniform(0.01, 0.02), 4.0, rank=1)]
T = 15


def times(law, K, seed):
    return draw(law, max(K, 2), T, seed)[:K]  # a straggler of rank 1 needs two workers


def world(X, link=FREE, server=False):
    """A world in which worker k computes for X[k, 0], X[k, 1], ... seconds; with a server, the worker is rank k + 1."""
    return Simulated(link, Trace(np.vstack([np.zeros((1, X.shape[1])), X]) if server else X))


def spans(timeline, kind, first=0):
    """(rank, step, start, end) of the spans of a kind, sorted; ranks counted from ``first``."""
    of = (timeline.kind == kind) & (timeline.rank >= first) & (timeline.end_s > timeline.start_s)
    rows = np.stack([timeline.rank - first, timeline.step, timeline.start_s, timeline.end_s], axis=1)[of]
    return rows[np.lexsort(rows.T[::-1])]


def computes_alike(a, b, first=0):
    np.testing.assert_allclose(spans(a, Kind.COMPUTE, first), spans(b, Kind.COMPUTE), rtol=1e-12, atol=1e-15)


def waits(timeline, ranks):
    return timeline.totals()[ranks, Kind.WAIT]


# -- a parameter server of labkit.learn, rank 0 ---------------------------------------------------------------------


def served(comm, policy, server_s):
    w = np.zeros(1)
    if comm.rank == 0:
        return serve_parameters(comm, w, 0.1, T, policy, server_s=server_s).updates
    return work(comm, lambda w, t: (np.ones(1), 1), w, T)


def with_server(X, policy, server_s=0.0):
    return launch(served, len(X) + 1, policy, server_s, world=world(X, server=True))


def same_updates(a, b):
    """Equal, whatever the order of the gradients inside an update."""
    for one in (a, b):
        assert one.K == a.K
    rows = [np.stack([u.into, u.rank, u.step, u.read]) for u in (a, b)]
    rows = [r[:, np.lexsort((r[1], r[0]))] for r in rows]
    np.testing.assert_array_equal(*rows)
    np.testing.assert_allclose(a.applied_s, b.applied_s, rtol=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("server_s", [0.0, 0.001, 0.006, 0.05])  # idle, ..., never at rest
def test_asynchronous_is_a_server_that_takes_pushes_as_they_come(law, K, server_s):
    X = times(law, K, seed=K)
    run, model = with_server(X, Asynchronous(), server_s), Asynchronous().timeline(X, 0.0, server_s)
    computes_alike(run.timeline, model, first=1)
    same_updates(run.results[0], Updates.asynchronous(model))
    # Pushing takes no time here, so all that a worker doesn't compute it waits: for others, and for its own update.
    np.testing.assert_allclose(waits(run.timeline, slice(1, None)), waits(model, slice(None)) + T * server_s)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("K", [1, 3, 5])
@pytest.mark.parametrize("slack", [0, 1, 4, T])
def test_ssp_is_a_server_that_holds_back_the_answer_of_those_too_far_ahead(law, K, slack):
    X = times(law, K, seed=10 + K)
    run, model = with_server(X, StaleSynchronous(slack)), StaleSynchronous(slack).timeline(X)
    computes_alike(run.timeline, model, first=1)
    same_updates(run.results[0], Updates.asynchronous(model))


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("K, backups", [(1, 0), (4, 0), (4, 1), (5, 3), (5, 4)])
def test_backup_is_a_server_that_counts_to_k_minus_b(law, K, backups):
    X = times(law, K, seed=20 + K)
    run, model = with_server(X, Synchronous(backups)), Synchronous(backups).timeline(X)
    updates = Updates.synchronous(model)
    same_updates(renumbered(run.results[0], updates), updates)
    # The server's rounds are over when T are; the model lets the late finish what they have begun, and so do the workers.
    a, b = spans(run.timeline, Kind.COMPUTE, 1), spans(model, Kind.COMPUTE)
    np.testing.assert_allclose(a[:, [0, 2, 3]], b[:, [0, 2, 3]], rtol=1e-12, atol=1e-15)


def renumbered(updates, like):
    """A server's worker counts its own computations, the recurrence numbers them by round: go by who was in which update."""
    from dataclasses import replace

    for k in range(updates.K):  # both count upwards
        mine = updates.step[updates.rank == k]
        assert (np.diff(mine) > 0).all() and (mine <= updates.into[updates.rank == k]).all()
    return replace(updates, step=updates.into)


# -- workers among themselves ---------------------------------------------------------------------------------------


def meeting(comm, H, comm_s):
    for t in comm.steps(T):
        comm.compute()
        if (t + 1) % H == 0 or t + 1 == T:
            comm.barrier()
            comm.compute(seconds=comm_s)  # stands for an all-reduce


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("K", [1, 4])
@pytest.mark.parametrize("H", [1, 2, 4, T, T + 3])
def test_bsp_and_local_steps_are_workers_that_meet_at_a_barrier(law, K, H):
    X = times(law, K, seed=30 + K)
    run, model = launch(meeting, K, H, 0.004, world=world(X)), LocalSteps(H).timeline(X, 0.004)
    np.testing.assert_allclose(run.timeline.arrivals_s, model.arrivals_s, rtol=1e-12)
    np.testing.assert_allclose(
        spans(run.timeline, Kind.WAIT), spans(model, Kind.WAIT), rtol=1e-12, atol=1e-15
    )
    assert run.elapsed_s == pytest.approx(model.finish_s, rel=1e-12)
    if H == 1:
        np.testing.assert_allclose(
            run.timeline.arrivals_s, Synchronous().timeline(X, 0.004).arrivals_s, rtol=1e-12
        )


def telling_everyone(comm, slack, comm_s):
    """SSP without a server: everyone tells everyone, and waits for the news of step t - 1 - slack."""
    others = [k for k in range(comm.K) if k != comm.rank]
    heard = [[comm.irecv(np.empty(1), k) for k in others] for _ in range(T)]
    told = []
    for t in comm.steps(T):
        for news in heard[t - 1 - slack] if t > slack else []:
            news.wait()
        comm.compute()
        comm.compute(seconds=comm_s)  # the worker's own wire
        told += [comm.isend(np.full(1, float(t)), k) for k in others]
    for request in [*told, *(news for step in heard for news in step)]:
        request.wait()


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("slack", [0, 2, T])
@pytest.mark.parametrize("comm_s", [0.0, 0.003])
def test_ssp_needs_no_server(law, slack, comm_s):
    X = times(law, 4, seed=40)
    run, model = (
        launch(telling_everyone, 4, slack, comm_s, world=world(X)),
        StaleSynchronous(slack).timeline(X, comm_s),
    )
    begun = spans(run.timeline, Kind.COMPUTE)
    every = begun if comm_s == 0 else begun[::2]  # computing, then the wire
    np.testing.assert_allclose(every, spans(model, Kind.COMPUTE), rtol=1e-12, atol=1e-15)


def in_buckets(comm, X, ready, sizes):
    """Two workers that swap each bucket as soon as they have it."""
    mine, theirs = np.ones(sum(sizes)), np.zeros(sum(sizes))
    cuts = np.cumsum(sizes)[:-1]
    for t in comm.steps(T):
        under_way = []
        for share, out, into in zip(
            np.diff(ready, prepend=0.0), np.split(mine, cuts), np.split(theirs, cuts), strict=True
        ):
            comm.compute(seconds=share * X[comm.rank, t])
            under_way += [comm.irecv(into, 1 - comm.rank), comm.isend(out, 1 - comm.rank)]
        for request in under_way:
            request.wait()


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("beta", [1e7, 4e5, 1e5])  # all hidden but the last, in between, the wire never rests
def test_buckets_are_two_workers_that_swap_each_as_soon_as_they_have_it(law, beta):
    X, ready, sizes = draw(law, 2, T, 50), [0.25, 0.5, 0.75, 1.0], [200] * 4
    run = launch(in_buckets, 2, X, ready, sizes, world=Simulated(Link(0.0, beta)))
    steps = [overlap(slowest, 8 * sum(sizes) / beta, 4).total_s for slowest in X.max(axis=0)]
    assert run.elapsed_s == pytest.approx(sum(steps), rel=1e-12)
    for k in range(2):  # in every step the last message ends when the model says
        ends = [
            max(run.timeline.end_s[(run.timeline.rank == k) & (run.timeline.step == t)]) for t in range(T)
        ]
        np.testing.assert_allclose(ends, np.cumsum(steps), rtol=1e-12)
