"""The compiled loops and the sweep give numpy's results to the last bit, whatever the shape."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from labkit.timing import (
    Asynchronous,
    Constant,
    LocalSteps,
    OneStraggler,
    Pareto,
    PerWorker,
    ShiftedExponential,
    StaleSynchronous,
    Synchronous,
    Trace,
    Uniform,
    draw,
    draws,
    policy,
    sweep,
)
from labkit.timing.laws import Recorded

SWEEP = importlib.import_module(
    "labkit.timing.sweep"
)  # the module; labkit.timing has a function of that name
LAW = ShiftedExponential(0.01, 0.02)
SHAPES = [(1, 1), (1, 70), (70, 1), (2, 3), (7, 257), (129, 64), (2051, 31)]


@pytest.fixture
def alone(monkeypatch):
    """Calls numpy's way, as where numba is missing."""

    def by_numpy(way):
        with monkeypatch.context() as here:
            for module in (draws, policy, SWEEP):
                here.setattr(module, "compiled", lambda: None)
            return way()

    return by_numpy


@pytest.fixture
def small(monkeypatch):
    """The compiled loops are taken, where there are any, however little there is to do."""
    for module in (draws, policy, SWEEP):
        monkeypatch.setattr(module, "MANY", 1)


@pytest.fixture
def fast(small):
    pytest.importorskip("numba")


def fleets(K):
    """Laws alike, one apart, each its own, and a trace that is replayed."""
    mixed = (Uniform(0.1, 0.3), Pareto(0.05, 3.0), LAW, LAW, Constant(0.1))
    return {
        "exponential": LAW,
        "one straggler": OneStraggler(LAW, 3.0, K // 2),
        "each its own": PerWorker(tuple(mixed[k % 5] for k in range(K))),
        "a trace": Trace(np.random.default_rng(K).random((K, 300))),
    }


@pytest.mark.parametrize("K, T", SHAPES)
@pytest.mark.parametrize("slack", [0, 1, 4, 1000, 10**30])
def test_the_compiled_recurrence_is_numpys_to_the_last_bit(fast, alone, K, T, slack):
    X = np.random.default_rng(slack % 97).exponential(size=(K, T)) * (np.arange(T) % 3 > 0)
    for comm_s in (0, 0.1):
        for given in (X, np.asfortranarray(X), X[::-1]):
            want = alone(lambda given=given, c=comm_s: StaleSynchronous(slack).ends(given, c))
            np.testing.assert_array_equal(StaleSynchronous(slack).ends(given, comm_s), want)


@pytest.mark.parametrize("K, T", SHAPES)
@pytest.mark.parametrize("name", fleets(5))
def test_the_compiled_streams_are_every_workers_own(fast, K, T, name):
    law = fleets(K)[name]
    rows = [[x for x, _ in zip(law.stream(k, 3), range(T), strict=False)] for k in range(K)]
    np.testing.assert_array_equal(draw(law, K, T, 3), rows)


@pytest.mark.parametrize("seed", [0, 1, 2**32 + 5, 2**130 + 1])
def test_the_compiled_generators_are_numpys(fast, seed):
    fused = draws.compiled()
    states = fused.seeded(draws.hashed(seed, 40))
    for K in (0, 17, 39):
        own = np.random.PCG64([seed, K]).state["state"]
        high, low, up, down = (int(word) for word in states[:, K])
        assert (high << 64 | low, up << 64 | down) == (own["state"], own["inc"])
    q = np.empty((90, 40))
    fused.draw_inplace(states, q)
    for K in (0, 17, 39):
        np.testing.assert_array_equal(1 - q[:, K], np.random.default_rng([seed, K]).random(90))


@pytest.mark.parametrize("T", [1, 1023, 1024, 1025, 2500])
def test_blocks_of_steps_join_without_a_seam(fast, alone, T):
    np.testing.assert_array_equal(draw(LAW, 70, T, 5), alone(lambda: draw(LAW, 70, T, 5)))


@pytest.mark.parametrize("cores", [1, 2, 5])
@pytest.mark.parametrize("name", fleets(5))
def test_a_sweep_is_every_policy_on_every_draw(small, alone, monkeypatch, name, cores):
    monkeypatch.setattr("labkit.machine.cores", lambda: cores)
    K, T, seeds, law = 33, 250, (4, 0, 9), fleets(33)[name]
    family = [
        Synchronous(),
        StaleSynchronous(0),
        StaleSynchronous(2),
        StaleSynchronous(10**20),
        Asynchronous(),
    ]
    for policies in (family, [*family, Synchronous(3), LocalSteps(8)]):
        Xs = alone(lambda: [draw(law, K, T, seed) for seed in seeds])
        for comm_s in (0.0, 0.02):
            want = alone(lambda c=comm_s, p=policies: [[one.ends(X, c) for X in Xs] for one in p])  # noqa: B023
            for found in (
                sweep(policies, law, K, T, seeds, comm_s),
                alone(lambda c=comm_s, p=policies: sweep(p, law, K, T, seeds, c)),
            ):
                assert found.shape == (len(policies), len(seeds), T)
                np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("bad", [-1.0, -1e-300, np.nan, np.inf])
def test_a_bad_time_is_refused_in_the_same_words(small, alone, bad):
    X = np.random.default_rng(0).random((30, 40))
    X[17, 23] = bad
    said = []
    for way in (lambda f: f(), alone):
        with pytest.raises(ValueError, match="X must hold finite seconds >= 0") as error:
            way(lambda: StaleSynchronous(2).ends(X))
        said.append(str(error.value))
    assert said[0] == said[1]
    with pytest.raises(ValueError, match="X must hold finite seconds >= 0"):
        sweep([StaleSynchronous(2)], Recorded(tuple(X[17])), 5, 40, [0])


def test_what_is_odd_but_good_is_taken(small, alone):
    X = np.random.default_rng(0).random((30, 40))
    X[3, 4] = -0.0
    held = X.copy()
    held.flags.writeable = False
    wide = np.random.default_rng(0).random((30, 40)).astype(np.float32)
    for given in (X, held, wide, np.ones((30, 40), dtype=int), X.tolist()):
        want = alone(lambda given=given: StaleSynchronous(2).ends(given))
        np.testing.assert_array_equal(StaleSynchronous(2).ends(given), want)
    np.testing.assert_array_equal(X, held)


def test_a_trace_that_ends_too_soon_is_named_also_when_drawn_in_blocks(small):
    with pytest.raises(ValueError, match="the trace holds 300 steps a worker"):
        sweep([StaleSynchronous(2)], fleets(9)["a trace"], 9, 301, [0])


@pytest.mark.parametrize(
    "arguments, words",
    [
        (([], LAW, 2, 3, [0]), "policies and seeds must not be empty, got 0 and 1"),
        (([Synchronous()], LAW, 2, 3, []), "policies and seeds must not be empty, got 1 and 0"),
        (([Synchronous()], LAW, 0, 3, [0]), "K must be a whole number >= 1, got 0"),
        (([Synchronous()], LAW, 2, 0, [0]), "T must be a whole number >= 1, got 0"),
        (([Synchronous()], LAW, 2, 3, [-1]), "seed must be a whole number >= 0, got -1"),
        (([Synchronous()], LAW, 2, 3, [0], -1), "comm_s must be a finite number >= 0, got -1"),
        (([Synchronous(2)], LAW, 2, 3, [0]), "backups must be below the K = 2 workers, got 2"),
    ],
)
@pytest.mark.parametrize("many", [1, 1_000_000])
def test_a_sweep_refuses_what_cannot_be(monkeypatch, many, arguments, words):
    for module in (draws, policy, SWEEP):
        monkeypatch.setattr(module, "MANY", many)
    with pytest.raises(ValueError, match=words):
        sweep(*arguments)
