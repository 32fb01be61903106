"""Replaying a schedule: fresh gradients make it mini-batch SGD, stale ones are taken at the version that was read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.comm import Processes, Simulated, launch
from labkit.learn import Diverged, LeastSquares, linear_data, parameter_server, replay, sgd
from labkit.timing import Asynchronous, OneStraggler, Uniform
from labkit.timing.updates import Updates


def problem_of(N=96, d=5, dtype=np.float64):
    X, y, _ = linear_data(N, d, np.random.default_rng(11))
    return LeastSquares(X.astype(dtype), y)


def batches(rank, step, b=8):
    return np.random.default_rng([5, rank, step]).integers(96, size=b)


def uneven(rank, step):
    return batches(rank, step, b=3 + 4 * rank + step % 3)


def by_age(tau):
    return 1 / (tau + 1)


def turns(U, tau):
    """tau + 1 workers take turns: update u has read version u - tau, or 0 while there is no older one."""
    u = np.arange(U)
    return Updates(tau + 1, u, u % (tau + 1), u // (tau + 1), np.maximum(u - tau, 0), u + 1.0, False, "turns")


def barriers(K, T):
    """Every update holds one fresh gradient of each worker: what BSP does."""
    into, rank = np.divmod(np.arange(K * T), K)
    return Updates(K, into, rank, into, into, np.arange(T) + 1.0, False, "by hand")


def anything(K, U, rng, most=6):
    """A random schedule: a few gradients in each update, each of any age, steps counted by worker."""
    sizes = rng.integers(1, K + 1, size=U)
    into = np.repeat(np.arange(U), sizes)
    rank = np.concatenate([rng.permutation(K)[:n] for n in sizes])
    step = np.array([np.sum(rank[:g] == k) for g, k in enumerate(rank)])
    read = np.maximum(into - rng.integers(0, most, size=len(into)), 0)
    return Updates(K, into, rank, step, read, np.arange(U) + 1.0, False, "by hand")


@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("examples", [batches, uneven])
def test_a_schedule_of_barriers_is_one_worker_with_the_joined_batches(K, examples):
    T, problem, w0 = 9, problem_of(), np.ones(5)
    joined = [np.concatenate([examples(k, t) for k in range(K)]) for t in range(T)]
    alone = sgd(problem, w0, lambda t: 0.1 / (t + 1), joined)
    along = replay(problem, w0, lambda u: 0.1 / (u + 1), barriers(K, T), examples)
    np.testing.assert_allclose(along, alone, rtol=1e-12, atol=1e-14)


def test_one_worker_is_sgd_to_the_bit_and_so_is_a_staleness_aware_one():
    problem, w0 = problem_of(), np.ones(5)
    alone = sgd(problem, w0, 0.1, [uneven(0, t) for t in range(40)])
    for scale in (None, by_age):
        np.testing.assert_array_equal(replay(problem, w0, 0.1, barriers(1, 40), uneven, scale), alone)


@settings(deadline=None, max_examples=30)
@given(K=st.integers(1, 5), U=st.integers(1, 25), seed=st.integers(0, 99))
def test_every_gradient_is_taken_at_the_version_that_its_worker_read(K, U, seed):
    """The definition, word for word, with all versions kept."""
    schedule, problem = anything(K, U, np.random.default_rng(seed)), problem_of()
    w = [np.ones(5)]
    for u in range(U):
        of = np.flatnonzero(schedule.into == u)
        total, M = np.zeros(5), 0
        for g in of:
            rows = uneven(schedule.rank[g], schedule.step[g])
            total += by_age(u - schedule.read[g]) * problem.grad_sum(w[schedule.read[g]], rows)
            M += len(rows)
        w.append(w[-1] - 0.02 * total / M)
    np.testing.assert_allclose(
        replay(problem, np.ones(5), 0.02, schedule, uneven, by_age), w, rtol=1e-11, atol=1e-13
    )


def test_a_delay_of_zero_is_plain_sgd_and_a_delay_of_tau_reads_tau_versions_back():
    problem, w0 = problem_of(), np.ones(5)
    fresh = replay(problem, w0, 0.1, turns(20, 0), batches)
    np.testing.assert_array_equal(fresh, sgd(problem, w0, 0.1, [batches(0, t) for t in range(20)]))
    schedule = turns(20, 3)
    w = replay(problem, w0, 0.1, schedule, batches)
    np.testing.assert_array_equal(w[11] - w[10], (w[10] - 0.1 * problem.grad(w[7], batches(2, 2))) - w[10])


def test_a_staleness_aware_step_is_the_plain_step_divided_by_the_staleness():
    schedule, problem = turns(50, 4), problem_of()
    aware = replay(problem, np.ones(5), 0.2, schedule, batches, lambda tau: 1 / max(1, tau))
    plain = replay(problem, np.ones(5), lambda u: 0.2 / max(1, min(u, 4)), schedule, batches)
    np.testing.assert_allclose(aware, plain, rtol=1e-12)


@settings(deadline=None, max_examples=30)
@given(K=st.integers(1, 6), seed=st.integers(0, 99), spread=st.floats(0.1, 3))
def test_asynchronous_gradients_are_k_minus_1_versions_old_on_average_whatever_the_speeds(K, seed, spread):
    """Every update adds one to the age of the K - 1 gradients in flight; those still in flight count up to now."""
    X = np.random.default_rng(seed).lognormal(0, spread, size=(K, 30))
    schedule = Asynchronous().updates(X)
    U = int(np.flatnonzero(schedule.step == 29)[0])  # nobody has stopped before
    flying = [schedule.read[(schedule.rank == k) & (schedule.into >= U)][0] for k in range(K)]
    assert schedule.tau[:U].sum() + sum(U - read for read in flying) == U * (K - 1)


@pytest.mark.parametrize("world", ["simulated", pytest.param("processes", marks=pytest.mark.processes)])
def test_the_record_of_a_parameter_server_replays_to_the_same_bits(world):
    """Three asynchronous workers with data of their own: all that reality decides is which version was read when."""
    table = np.random.default_rng(3).integers(96, size=(20, 3, 8))
    law = OneStraggler(Uniform(0.001, 0.003), 4.0, rank=1)
    place = Simulated(law=law) if world == "simulated" else Processes(law=law)
    job = (parameter_server, 4, problem_of(), np.ones(5), 0.05, table, 20)
    served = launch(*job, scale=by_age, world=place).results[0]
    again = replay(problem_of(), np.ones(5), 0.05, served.updates, lambda k, t: table[t, k], by_age)
    assert served.updates.U == 60 and served.updates.tau.max() >= 1
    np.testing.assert_array_equal(again, served.iterates)


def test_float32_stays_float32():
    w = replay(problem_of(dtype=np.float32), np.ones(5, np.float32), 0.1, barriers(3, 4), batches, by_age)
    assert w.dtype == np.float32


def test_too_large_a_step_is_divergence_at_a_step_and_not_a_wall_of_nan():
    with pytest.raises(Diverged, match="diverged: w is not finite after step") as caught:
        replay(problem_of(), np.ones(5), 0.9, turns(5000, 8), lambda k, t: None)
    assert 8 < caught.value.step < 4000 and caught.value.eta == 0.9


@pytest.mark.parametrize(
    "change,says",
    [
        ({"batches": lambda k, t: []}, "idx must hold at least one example"),
        ({"scale": lambda tau: -1.0}, r"scale\(0\) must be a finite number >= 0, got -1.0"),
        ({"eta": -0.1}, "eta must be finite and >= 0"),
        ({"w0": np.ones(4)}, "w0 must be 5 finite numbers"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change, says):
    call = {"w0": np.ones(5), "eta": 0.1, "updates": turns(10, 2), "batches": batches, **change}
    with pytest.raises(ValueError, match=says):
        replay(problem_of(), **call)
