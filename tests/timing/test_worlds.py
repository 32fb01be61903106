"""Recurrences are the simulated world run worker by worker: programs that send messages, at the same times.

The parameter server's policies are held against their recurrences in tests/labs/test_server.py.
"""

import numpy as np
import pytest

from labkit import Link, Simulated, launch
from labkit.timing.laws import OneStraggler, ShiftedExponential, Trace, Uniform, draw
from labkit.timing.policy import LocalSteps, StaleSynchronous
from labkit.timing.timeline import Kind

LAWS = [Uniform(0.01, 0.03), ShiftedExponential(0.005, 0.02), OneStraggler(Uniform(0.01, 0.02), 4.0, rank=1)]
T = 15


def world(X):
    """A world in which worker k computes for X[k, 0], X[k, 1], ... seconds, and messages take no time."""
    return Simulated(Link(alpha=0.0, beta=float("inf")), Trace(X))


def spans(timeline, kind):
    """(rank, step, start, end) of the spans of a kind, sorted."""
    of = (timeline.kind == kind) & (timeline.end_s > timeline.start_s)
    rows = np.stack([timeline.rank, timeline.step, timeline.start_s, timeline.end_s], axis=1)[of]
    return rows[np.lexsort(rows.T[::-1])]


def meeting(comm, H, comm_s):
    for t in comm.steps(T):
        comm.compute()
        if (t + 1) % H == 0 or t + 1 == T:
            comm.barrier()
            comm.compute(seconds=comm_s)  # stands for an all-reduce


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("H", [1, 4, T + 3])
def test_local_steps_are_workers_that_meet_at_a_barrier(law, H):
    X = draw(law, 4, T, seed=34)
    run, model = launch(meeting, 4, H, 0.004, world=world(X)), LocalSteps(H).timeline(X, 0.004)
    np.testing.assert_allclose(run.timeline.arrivals_s, model.arrivals_s, rtol=1e-12)
    waits = [spans(timeline, Kind.WAIT) for timeline in (run.timeline, model)]
    np.testing.assert_allclose(*waits, rtol=1e-12, atol=1e-15)
    assert run.elapsed_s == pytest.approx(model.finish_s, rel=1e-12)


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
def test_ssp_needs_no_server(law, slack):
    X = draw(law, 4, T, seed=40)
    run = launch(telling_everyone, 4, slack, 0.003, world=world(X))
    begun = spans(run.timeline, Kind.COMPUTE)[::2]  # computing, then the wire
    model = StaleSynchronous(slack).timeline(X, 0.003)
    np.testing.assert_allclose(begun, spans(model, Kind.COMPUTE), rtol=1e-12, atol=1e-15)
