"""The parameter server: it does what its log says, and its log is that of the policy's recurrence."""

import numpy as np
import pytest

from labkit import Link
from labkit.comm import Processes, RankError, Simulated, launch
from labkit.learn import LeastSquares, linear_data
from labkit.timing.laws import Constant, OneStraggler, ShiftedExponential, Uniform, draw
from labkit.timing.policy import Asynchronous, StaleSynchronous, Synchronous
from labkit_book.labs.server import parameter_server

FREE = Link(alpha=0.0, beta=1e30)
K, T, d = 4, 12, 5
X, y, _ = linear_data(300, d, np.random.default_rng(1))
problem, w0 = LeastSquares(X, y), np.arange(d) / d
ROWS = np.random.default_rng(2).integers(300, size=(T, K, 7))
POLICIES = (Synchronous(), StaleSynchronous(1), Asynchronous())
RANDOM = ShiftedExponential(0.01, 0.02)


def shards(t, k):
    return ROWS[t % T, k, : 3 + k]  # shards of different sizes


def run(policy, law=RANDOM, seed=0, K=K, T=T, eta=0.05, **settings):
    world = Simulated(FREE, law, seed)
    return launch(parameter_server, K + 1, problem, w0, eta, shards, T, policy, world=world, **settings)


def replays(served, workers):
    """The server took the steps that its log tells, each gradient at the version that its worker had read."""
    log, w = served.updates, [w0]
    for u in range(log.U):
        in_it = np.flatnonzero(log.into == u)
        rows = [shards(log.step[g], log.rank[g]) for g in in_it]
        share = np.array([len(r) for r in rows]) / sum(map(len, rows))
        each = [x * problem.grad(w[log.read[g]], r) for x, r, g in zip(share, rows, in_it, strict=True)]
        w.append(w[u] - 0.05 * np.sum(each, axis=0))
    np.testing.assert_array_equal(served.iterates, w)
    for k, read in enumerate(workers):
        logged = served.updates.read[served.updates.rank == k]
        np.testing.assert_array_equal(logged, read[: len(logged)])


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_log_replays_to_the_same_parameters(policy):
    r = run(policy, OneStraggler(Uniform(0.01, 0.02), 5.0, rank=3))
    replays(r.results[0], r.results[1:])
    pushed = np.array([len(read) for read in r.results[1:]])
    assert np.array_equal(r.bytes_sent, [pushed.sum() * (d + 1) * 8, *pushed * (d + 2) * 8])


@pytest.mark.parametrize("law", [RANDOM, OneStraggler(Uniform(0.01, 0.02), 4.0, rank=2)], ids=str)
@pytest.mark.parametrize(
    "policy,server_s",  # idle, ..., never at rest; with slack only idle, for the recurrence knows no queue
    [(p, s) for p in POLICIES for s in (0.0, 0.001, 0.006, 0.05) if p != StaleSynchronous(1) or not s],
    ids=str,
)
def test_the_log_is_that_of_the_policy_s_recurrence(policy, server_s, law):
    log = run(policy, law, seed=7, server_s=server_s).results[0].updates
    times = draw(law, K + 1, T, 7)[1:]  # rank 0 is the server and draws none
    busy = "server_s" if policy == Asynchronous() else "comm_s"
    expected = policy.updates(times, **{busy: server_s})
    rows = [sorted(np.transpose([u.into, u.rank, u.read]).tolist()) for u in (log, expected)]
    assert rows[0] == rows[1]
    np.testing.assert_allclose(log.applied_s, expected.applied_s, rtol=1e-9)


def test_a_budget_ends_the_run_and_what_comes_late_is_dropped():
    served, *workers = run(Asynchronous(), OneStraggler(Constant(0.01), 4.0, rank=1), T=50, budget=30).results
    assert served.updates.U == len(served.updates.rank) == 30
    assert sum(len(read) for read in workers) == 30 + K - 1  # the last one used is nobody's next


@pytest.mark.parametrize("changes,words", [
    ({"K": 0}, "K must be at least 2 ranks, the server and a worker, got 1"),
    ({"policy": Synchronous(backups=1)}, r"policy must be .*, got Synchronous\(backups=1\)"),
    ({"budget": 0}, "budget must be a whole number >= 1, got 0"),
    ({"eta": 1e300}, "diverged: w is not finite after step"),
])  # fmt: skip
def test_bad_input_is_refused_in_one_sentence(changes, words):
    with pytest.raises(RankError, match=words):
        run(**{"policy": Asynchronous(), **changes})


@pytest.mark.processes
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_processes_do_what_their_log_says(policy):
    pytest.importorskip("torch")
    world = Processes(device="cpu", law=OneStraggler(Constant(0.001), 8.0, rank=1))
    r = launch(parameter_server, K + 1, problem, w0, 0.05, shards, T, policy, world=world)
    assert r.results[0].updates.measured and r.results[0].updates.applied_s[-1] <= r.elapsed_s
    replays(r.results[0], r.results[1:])
