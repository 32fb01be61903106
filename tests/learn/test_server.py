"""The parameter server: it does what its log says, holds back whom the policy holds back, and loses nothing unnoticed."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from labkit import Link
from labkit.collectives import naive
from labkit.comm import Processes, RankDied, RankError, Simulated, launch
from labkit.learn import (
    LeastSquares,
    linear_data,
    parameter_server,
    serve,
    sync_sgd,
    work,
)
from labkit.learn.stale import replay
from labkit.timing import (
    Asynchronous,
    Constant,
    OneStraggler,
    ShiftedExponential,
    StaleSynchronous,
    Synchronous,
    Uniform,
    draw,
)

FREE = Link(alpha=0.0, beta=1e30)
K, T, d = 4, 12, 5
X, y, _ = linear_data(300, d, np.random.default_rng(1))
problem, w0 = LeastSquares(X, y), np.arange(d) / d
ROWS = np.random.default_rng(2).integers(300, size=(T, K, 7))
POLICIES = [Asynchronous(), StaleSynchronous(0), StaleSynchronous(2), Synchronous(), Synchronous(1)]
RANDOM = ShiftedExponential(0.01, 0.02)


def shards(t, k):
    return ROWS[t % T, k, : 3 + k]  # shards of different sizes


def run(policy, law=RANDOM, seed=0, link=FREE, K=K, T=T, eta=0.05, **settings):
    world = Simulated(link, law, seed)
    return launch(parameter_server, K + 1, problem, w0, eta, shards, T, policy, world=world, **settings)


def clocks(updates):
    """(G + 1, K) steps that each worker has finished, before and after each gradient."""
    done = np.zeros((len(updates.rank) + 1, updates.K), dtype=int)
    for g, k in enumerate(updates.rank):
        done[g + 1] = done[g]
        done[g + 1, k] += 1
    return done


# -- what the log says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("scale", [None, lambda tau: 1 / max(1, tau)])
def test_a_replay_of_the_log_gives_the_same_parameters(policy, scale):
    served = run(policy, scale=scale).results[0]
    again = replay(problem, w0, 0.05, served.updates, lambda k, t: shards(t, k), scale)
    np.testing.assert_allclose(served.iterates, again, rtol=0, atol=1e-13)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_every_gradient_is_applied_or_dropped_and_both_sides_count_the_same(policy):
    served, *workers = run(policy, OneStraggler(Uniform(0.01, 0.02), 5.0, rank=3)).results
    assert [w.pushed for w in workers] == served.received.tolist()
    assert np.array_equal(served.applied + served.dropped, served.received)
    assert np.array_equal(served.updates.used(), served.applied)
    for k, w in enumerate(workers):
        logged = served.updates.read[served.updates.rank == k]
        assert set(logged) <= set(w.read) and len(w.read) - len(logged) == served.dropped[k]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gradient_costs_d_plus_3_numbers_there_and_d_plus_2_back(policy, dtype):
    world = Simulated(law=OneStraggler(RANDOM, 4.0, rank=2))
    r = launch(parameter_server, K + 1, problem, w0.astype(dtype), 0.05, shards, T, policy, world=world)
    received, size = r.results[0].received, np.dtype(dtype).itemsize
    assert np.array_equal(r.bytes_sent[1:], received * (d + 3) * size)
    assert r.bytes_sent[0] == received.sum() * (d + 2) * size
    assert np.array_equal(r.messages_sent, [received.sum(), *received])
    assert r.results[0].w.dtype == dtype


def test_the_log_says_whether_a_clock_or_a_model_made_its_times():
    assert run(Asynchronous()).results[0].updates.measured is False


# -- the barrier ------------------------------------------------------------------------------------------------------


def test_a_synchronous_server_takes_the_steps_of_synchronous_sgd():
    served = run(Synchronous()).results[0]
    expected = launch(sync_sgd, K, problem, w0, 0.05, shards, naive.allreduce, T=T).results[0]
    np.testing.assert_allclose(served.iterates, expected, rtol=0, atol=1e-13)
    assert not served.updates.tau.any()


@pytest.mark.parametrize("slack", [0, 1, 3, T])
@pytest.mark.parametrize("seed", range(4))
def test_under_ssp_nobody_starts_a_step_before_the_slowest_is_near_enough(slack, seed):
    updates = run(StaleSynchronous(slack), OneStraggler(RANDOM, 3.0, rank=1), seed).results[0].updates
    done = clocks(updates)
    # The version read is the number of gradients before it: what everyone had finished when the step began.
    at_start = done[updates.read]
    assert (updates.step - at_start.min(axis=1)).max() <= slack
    assert updates.tau.max() <= StaleSynchronous(slack).staleness_bound(K)
    if slack < T // 2:
        assert (updates.step - at_start.min(axis=1)).max() == slack  # the slack is used


def test_slack_0_goes_in_rounds_and_enough_slack_is_asynchronous():
    updates = run(StaleSynchronous(0)).results[0].updates
    assert np.array_equal(updates.read, updates.into // K * K)
    free, loose = (run(p).results[0] for p in (Asynchronous(), StaleSynchronous(T)))
    assert np.array_equal(free.iterates, loose.iterates)
    assert np.array_equal(free.updates.applied_s, loose.updates.applied_s)


@pytest.mark.parametrize("slack", [0, 1, 4, T])
def test_without_messages_costs_the_server_keeps_the_times_of_the_recurrence(slack):
    served = run(StaleSynchronous(slack), seed=3).results[0]
    times = draw(RANDOM, K + 1, T, 3)[1:]  # rank 0 is the server and draws none
    slowest = [served.updates.applied_s[served.updates.step == t].max() for t in range(T)]
    np.testing.assert_allclose(slowest, StaleSynchronous(slack).ends(times), rtol=1e-12)


def same_schedule(updates, expected):
    for name in ("into", "rank", "read"):
        assert np.array_equal(getattr(updates, name), getattr(expected, name)), name
    np.testing.assert_allclose(updates.applied_s, expected.applied_s, rtol=1e-9)


@pytest.mark.parametrize("server_s", [0.0, 0.006])
def test_without_a_barrier_the_log_is_that_of_the_asynchronous_recurrence(server_s):
    updates = run(Asynchronous(), seed=5, server_s=server_s).results[0].updates
    times = draw(RANDOM, K + 1, T, 5)[1:]
    same_schedule(updates, Asynchronous().updates(times, 0.0, server_s))


@pytest.mark.parametrize("slack", [0, 1, 3, T])
def test_under_ssp_the_log_is_that_of_the_ssp_recurrence(slack):
    law = OneStraggler(RANDOM, 2.0, rank=3)
    updates = run(StaleSynchronous(slack), law, seed=7).results[0].updates
    same_schedule(updates, StaleSynchronous(slack).updates(draw(law, K + 1, T, 7)[1:]))


@pytest.mark.parametrize("backups", [0, 1, 2])
def test_rounds_are_those_of_the_backup_recurrence(backups):
    updates = run(Synchronous(backups), seed=6).results[0].updates
    expected = Synchronous(backups).updates(draw(RANDOM, K + 1, T, 6)[1:])
    mine, its = (set(zip(u.into.tolist(), u.rank.tolist(), strict=True)) for u in (updates, expected))
    assert mine == its and not updates.tau.any()
    np.testing.assert_allclose(updates.applied_s, expected.applied_s, rtol=1e-9)


def test_backup_workers_make_a_round_of_the_first_and_drop_the_late():
    law = OneStraggler(Constant(0.01), 10.0, rank=2)
    r = run(Synchronous(backups=1), law)
    served = r.results[0]
    assert served.applied.tolist() == [T, 0, T, T] and served.dropped.tolist() == [0, 2, 0, 0]
    np.testing.assert_allclose(served.updates.applied_s, 0.01 * np.arange(1, T + 1), rtol=1e-12)
    waiting_for_all = run(Synchronous(), law)
    assert waiting_for_all.elapsed_s > 9 * served.updates.applied_s[-1]


def test_a_busy_server_takes_one_at_a_time_and_sets_the_pace():
    r = run(Asynchronous(), Constant(0.01), server_s=0.004)
    applied = r.results[0].updates.applied_s
    assert np.diff(applied).min() >= 0.004 - 1e-12
    assert np.isclose(applied[-1], 0.01 + K * T * 0.004)


# -- staleness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "law", [RANDOM, OneStraggler(RANDOM, 6.0, rank=1), OneStraggler(Constant(0.01), 3.5, rank=4)]
)
@pytest.mark.parametrize("server_s", [0.0, 0.01])
def test_mean_staleness_is_the_number_of_other_workers_still_under_way(law, server_s):
    """Each update makes every other gradient under way one version older: whatever the speeds, nothing else does."""
    updates = run(Asynchronous(), law, server_s=server_s).results[0].updates
    running = (clocks(updates)[:-1] < T).sum(axis=1)
    assert updates.tau.sum() == (running - 1).sum()


def test_a_staleness_aware_rate_scales_each_gradient_by_its_own_staleness():
    halved = run(Asynchronous(), scale=lambda tau: 0.5).results[0].iterates
    np.testing.assert_allclose(halved, run(Asynchronous(), eta=0.025).results[0].iterates, atol=1e-14)
    with pytest.raises(RankError, match="scale must be finite and >= 0, got -1"):
        run(Asynchronous(), scale=lambda tau: -1)


def test_a_budget_ends_the_run_and_what_comes_late_is_counted():
    served, *workers = run(Asynchronous(), OneStraggler(Constant(0.01), 4.0, rank=1), T=50, budget=30).results
    assert served.updates.U == served.applied.sum() == 30
    assert served.dropped.sum() == K - 1 and served.dropped.max() == 1  # the last one used is nobody's next
    assert [w.pushed for w in workers] == served.received.tolist()


# -- who goes wrong ---------------------------------------------------------------------------------------------------


def lossy(comm, T):
    """Worker 1 skips a number: as if a push had been lost on the way."""
    if comm.rank == 0:
        serve(comm, w0, 0.1, T)
    elif comm.rank == 1:
        work(comm, lambda w, t: (w, 1), w0, T)
    else:
        skip_a_number(comm)


def skip_a_number(comm):
    push, pull = np.zeros(d + 3), np.zeros(d + 2)
    for t in (0, 2):
        push[d:] = t, 0, 1
        comm.send(push, 0)
        comm.recv(pull, 0)


def test_a_push_that_never_came_is_noticed_by_the_server():
    with pytest.raises(RankError, match="worker 1 pushed its gradient 2, but 1 is its next") as caught:
        launch(lossy, 3, 3)
    assert caught.value.ranks == (0,)


def test_a_push_that_was_not_counted_is_noticed_by_the_worker():
    def forgetful(comm):
        if comm.rank:
            work(comm, lambda w, t: (w, 1), w0, 3)
        inbox = np.zeros(d + 3)
        for _ in range(2 * (comm.rank == 0)):
            comm.recv_any(inbox)
            comm.send(np.append(w0, [1.0, 1.0]), 1)  # always "one of yours"

    with pytest.raises(RankError, match="worker 0 pushed 2 gradients, the server got 1"):
        launch(forgetful, 2)


def test_divergence_is_reported_with_its_update():
    with pytest.raises(RankError, match="diverged: w is not finite after step"):
        run(Asynchronous(), eta=1e300)


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"K": 0}, "K must be at least 2 ranks, the server and a worker, got 1"),
        ({"T": 0}, "T must be a whole number >= 1, got 0"),
        ({"policy": Synchronous(4)}, "backups must be below the K = 4 workers, got 4"),
        ({"policy": Synchronous}, "policy must be a barrier policy such as"),
        ({"policy": 3}, r"policy must be a barrier policy such as Synchronous\(\), got 3"),
        ({"server_s": -1}, "server_s must be a finite number >= 0, got -1"),
        ({"budget": 0}, "budget must be a whole number >= 1, got 0"),
        ({"eta": -1.0}, "eta must be finite and >= 0, got -1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(changes, words):
    with pytest.raises(RankError, match=words):
        run(**{"policy": Asynchronous(), **changes})


def test_bad_parameters_and_policies_are_refused_in_one_sentence():
    for w, words in (
        (np.zeros(3), "w0 must be 5 finite"),
        (np.full(d, np.nan), "w0 must be a vector of finite"),
    ):
        with pytest.raises(RankError, match=words):
            launch(parameter_server, 2, problem, w, 0.1, shards, 3)
    with pytest.raises(ValueError, match="slack must be a whole number >= 0, got -1"):
        StaleSynchronous(-1)
    with pytest.raises(ValueError, match=r"backups must be a whole number >= 0, got 0\.5"):
        Synchronous(0.5)


# -- real processes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world():
    pytest.importorskip("torch")
    with Processes(device="cpu").ready(K + 1) as pool:
        yield lambda law: Processes(device="cpu", pool=pool, law=law)


@pytest.mark.processes
@pytest.mark.parametrize("policy", [Asynchronous(), StaleSynchronous(1), Synchronous(1)], ids=str)
def test_processes_do_what_their_log_says_and_lose_nothing(policy, world):
    law = OneStraggler(Constant(0.001), 8.0, rank=1)
    r = launch(parameter_server, K + 1, problem, w0, 0.05, shards, T, policy, world=world(law))
    served, *workers = r.results
    assert served.updates.measured and served.updates.applied_s[-1] <= r.elapsed_s
    assert [w.pushed for w in workers] == served.received.tolist()
    again = replay(problem, w0, 0.05, served.updates, lambda k, t: shards(t, k))
    np.testing.assert_allclose(served.iterates, again, rtol=0, atol=1e-13)
    assert np.array_equal(r.bytes_sent[1:], served.received * (d + 3) * 8)
    if isinstance(policy, StaleSynchronous):
        done = clocks(served.updates)
        assert (served.updates.step - done[served.updates.read].min(axis=1)).max() <= policy.slack
        assert served.updates.tau.max() <= StaleSynchronous(policy.slack).staleness_bound(K)


@pytest.mark.processes
@pytest.mark.parametrize("killed", [False, True])
def test_a_worker_that_dies_ends_the_launch_and_is_named(killed):
    pytest.importorskip("torch")

    def f(comm):
        def gradient(w, t):
            if comm.rank == 2 and t == 3:
                if killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ArithmeticError("no gradient today")
            return w, 1

        return serve(comm, w0, 0.1, 20) if comm.rank == 0 else work(comm, gradient, w0, 20)

    with pytest.raises(RankDied if killed else RankError) as caught:
        launch(f, 3, world=Processes(device="cpu"), timeout_s=30)
    assert caught.value.ranks == (2,)
