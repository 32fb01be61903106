"""PowerSGD against what it must agree with."""

import numpy as np
import pytest

from labkit import launch
from labkit.compress import OverComm, PowerSGD, rngs

SHAPES = ((8, 10), (9,), (3, 4, 5), (2, 2))
d = 80 + 9 + 60 + 4


def walk(comm, scheme, gs):
    """gs: (K, T, d). Every step's (mean, mine), and the last memory."""
    draws, wire = rngs(4, comm.rank), OverComm(comm)
    memory, out = scheme.start(gs.shape[2], gs.dtype, draws), []
    for g in gs[comm.rank]:
        exchanged, memory = scheme.mean(wire, g, memory, draws)
        out.append(exchanged)
    return np.array([o.mean for o in out]), np.array([o.mine for o in out]), memory


def gradients(K, T=6, n=d, dtype=np.float64):
    return np.random.default_rng([K, T]).standard_normal((K, T, n)).astype(dtype)


@pytest.mark.parametrize("K", [2, 3, 5])
def test_k_workers_do_what_one_does_with_the_mean_gradient(K):
    """Linearity: what each sends is linear in its matrix, so sums in flight are as good as one worker's matrix."""
    gs, scheme = gradients(K), PowerSGD(SHAPES, r=2)
    together = launch(walk, K, scheme, gs).results
    alone = launch(walk, 1, scheme, gs.mean(axis=0, keepdims=True)).results[0]
    for mean, _, memory in together:
        np.testing.assert_allclose(mean, alone[0], atol=1e-12)
        for Q, own in zip(memory.Qs, alone[2].Qs, strict=True):
            np.testing.assert_allclose(Q, own, atol=1e-12)
    errors = np.mean([memory.error for _, _, memory in together], axis=0)
    np.testing.assert_allclose(errors, alone[2].error, atol=1e-12)


def test_a_matrix_of_rank_r_arrives_whole_in_one_step():
    rng, K = np.random.default_rng(0), 3
    U, V = rng.standard_normal((K, 12, 2)), rng.standard_normal((15, 2))
    gs = np.einsum("kir,jr->kij", U, V).reshape(K, 1, 180)
    mean, _, memory = launch(walk, K, PowerSGD(((12, 15),), r=2), gs).results[0]
    np.testing.assert_allclose(mean[0], gs[:, 0].mean(axis=0), atol=1e-12)
    assert memory.Qs[0].shape == (15, 2)


def test_the_warm_start_finds_the_best_approximation():
    """Without error feedback and with the same matrix every step, this is subspace iteration: the SVD is the oracle."""
    A = np.random.default_rng(2).standard_normal((20, 30))
    best = np.sum(np.linalg.svd(A, compute_uv=False)[2:] ** 2)
    gs = np.tile(A.reshape(1, 1, -1), (1, 60, 1))
    mean = launch(walk, 1, PowerSGD(((20, 30),), r=2, feedback=False), gs).results[0][0]
    excess = np.sum((mean - A.reshape(-1)) ** 2, axis=1) / best - 1
    assert -1e-12 < excess[-1] < 0.02 < excess[0]


def test_what_is_not_worth_factoring_travels_whole():
    whole = PowerSGD(SHAPES, r=50)  # above every matrix's rank
    gs = gradients(2, T=3)
    mean, mine, memory = launch(walk, 2, whole, gs).results[0]
    np.testing.assert_allclose(mean, gs.mean(axis=0), rtol=1e-15)
    np.testing.assert_array_equal(mine, gs[0])
    assert memory.Qs == [] and not memory.error.any()
    assert whole.crossings(d, 8) == [(True, d, 8)]
    assert PowerSGD(SHAPES, r=2).crossings(d, 4) == [(True, 2 * (8 + 3) + 9 + 4, 4), (True, 2 * (10 + 20), 4)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zero_gradients_stay_zero_in_every_precision(dtype):
    mean, _, memory = launch(walk, 2, PowerSGD(SHAPES, r=2), np.zeros((2, 3, d), dtype)).results[1]
    assert mean.dtype == dtype and not mean.any() and not memory.error.any()


def test_a_rank_of_nothing_and_a_gradient_that_does_not_fit_the_shapes_are_refused():
    with pytest.raises(ValueError, match="r must be a whole number >= 1, got 0"):
        PowerSGD(SHAPES, r=0)
    with pytest.raises(ValueError, match="shapes must hold the d = 7 elements of the gradient, got 153"):
        PowerSGD(SHAPES).start(7, float, rngs(0, 0))
