"""Deep Gradient Compression and PowerSGD against what they must agree with."""

import numpy as np
import pytest

from labkit import launch
from labkit.compress import DGC, ErrorFeedback, OverComm, PowerSGD, TopK, compressed_sgd, rngs
from labkit.compress.powersgd import _orthogonal
from labkit.learn import LeastSquares, linear_data, split

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


# -- DGC ------------------------------------------------------------------------------------------------------------


def test_without_momentum_dgc_is_top_k_with_error_feedback():
    gs = gradients(3)
    ours = launch(walk, 3, DGC(7, momentum=0.0), gs).results
    theirs = launch(walk, 3, ErrorFeedback(TopK(7)), gs).results
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[2].v, b[2])


def test_when_all_is_sent_dgc_is_torchs_momentum_sgd_and_masked_it_is_plain_sgd():
    torch = pytest.importorskip("torch")
    X, y, _ = linear_data(60, 5, np.random.default_rng(1))
    p, shards = LeastSquares(X, y), [split(np.arange(60), 3)] * 20

    def ours(**how):
        return (
            launch(compressed_sgd, 3, p, np.zeros(5), 0.01, shards, DGC(1.0, **how)).results[0].iterates[-1]
        )

    def torchs(momentum):
        w = torch.zeros(5, dtype=torch.float64, requires_grad=True)
        opt = torch.optim.SGD([w], lr=0.01, momentum=momentum)
        for _ in range(20):
            w.grad = torch.from_numpy(p.grad(w.detach().numpy()))
            opt.step()
        return w.detach().numpy()

    np.testing.assert_allclose(ours(masking=False), torchs(0.9), rtol=1e-12)
    np.testing.assert_allclose(ours(masking=True), torchs(0.0), rtol=1e-12)


def test_momentum_correction_a_waiting_coordinate_arrives_with_its_momentum():
    """Gradients of 1 in one place, too small to be sent for T steps, then sent: section 3.1's sum."""
    T, m = 5, 0.9
    gs = np.zeros((1, T, 3))
    gs[0, :, 0] = 1.0
    gs[0, :, 1] = np.where(np.arange(T) < T - 1, 100.0, 0.0)  # takes the one place that is sent
    mean, _, _ = launch(walk, 1, DGC(1, momentum=m), gs).results[0]
    assert (mean[:-1, 0] == 0).all()
    u = np.cumsum(m ** np.arange(T))
    np.testing.assert_allclose(mean[-1, 0], u.sum(), rtol=1e-14)


def test_sparsity_warms_up_by_factors_of_four():
    scheme = DGC(0.001, warmup=2)
    ks = [scheme.at(t, 64_000) for t in range(12)]
    assert ks == [16_000] * 2 + [4_000] * 2 + [1_000] * 2 + [250] * 2 + [64] * 4
    assert [DGC(3).at(t, 10) for t in (0, 9)] == [3, 3] and DGC(9, warmup=1).at(5000, 10) == 9


def test_long_gradients_are_clipped_to_a_share_of_the_length():
    gs = gradients(4, T=1)
    _, mine, _ = launch(walk, 4, DGC(1.0, clip=0.5), gs).results[2]
    assert np.linalg.norm(mine[0]) == pytest.approx(0.25)
    _, mine, _ = launch(walk, 4, DGC(1.0, clip=1e6), gs).results[2]
    np.testing.assert_array_equal(mine[0], gs[2, 0])


@pytest.mark.parametrize(
    "bad, says",
    [
        ({"k": 0}, "k must be"), ({"k": 1, "momentum": 1.0}, "momentum must be from 0 to below 1, got 1.0"),
        ({"k": 1, "warmup": -1}, "warmup must be a whole number >= 0"),
        ({"k": 1, "clip": 0.0}, "clip must be a finite number > 0"), ({"k": 1, "momentum": np.nan}, "momentum must be"),
    ],
)  # fmt: skip
def test_nonsense_for_dgc_is_refused(bad, says):
    with pytest.raises(ValueError, match=says):
        DGC(**bad)


# -- PowerSGD -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("K", [2, 3, 5])
def test_k_workers_do_what_one_does_with_the_mean_gradient(K, warm):
    """Linearity: what each sends is linear in its matrix, so sums in flight are as good as one worker's matrix."""
    gs, scheme = gradients(K), PowerSGD(SHAPES, r=2, warm=warm)
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


def test_the_warm_start_finds_the_best_approximation_and_a_cold_one_stays_behind():
    """Without error feedback and with the same matrix every step, this is subspace iteration: the SVD is the oracle."""
    A = np.random.default_rng(2).standard_normal((20, 30))
    best = np.sum(np.linalg.svd(A, compute_uv=False)[2:] ** 2)

    def excess(warm):
        gs = np.tile(A.reshape(1, 1, -1), (1, 60, 1))
        mean = launch(walk, 1, PowerSGD(((20, 30),), r=2, feedback=False, warm=warm), gs).results[0][0]
        return np.sum((mean[-1] - A.reshape(-1)) ** 2) / best - 1

    assert -1e-12 < excess(True) < 0.02 < excess(False)


def test_what_is_not_worth_factoring_travels_whole():
    whole = PowerSGD(SHAPES, r=50)  # above every matrix's rank
    gs = gradients(2, T=3)
    mean, mine, memory = launch(walk, 2, whole, gs).results[0]
    np.testing.assert_allclose(mean, gs.mean(axis=0), rtol=1e-15)
    np.testing.assert_array_equal(mine, gs[0])
    assert memory.Qs == [] and not memory.error.any()
    assert whole.crossings(d, 8) == [(True, d, 8)]
    assert PowerSGD(SHAPES, r=2).crossings(d, 4) == [(True, 2 * (8 + 3) + 9 + 4, 4), (True, 2 * (10 + 20), 4)]
    # 8 x 10 has 80 / (2 * 18) = 2.2 times the numbers of its factors, 3 x 20 only 60 / (2 * 23) = 1.3
    assert PowerSGD(SHAPES, r=2, ratio=1.4).crossings(d, 4) == [(True, 2 * 8 + 9 + 60 + 4, 4), (True, 20, 4)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_zero_gradients_stay_zero_in_every_precision(dtype):
    mean, _, memory = launch(walk, 2, PowerSGD(SHAPES, r=2), np.zeros((2, 3, d), dtype)).results[1]
    assert mean.dtype == dtype and not mean.any() and not memory.error.any()


def test_columns_come_out_orthonormal_and_span_what_they_spanned():
    A = np.random.default_rng(3).standard_normal((9, 3))
    Q = _orthogonal(A)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(Q @ (Q.T @ A), A, atol=1e-13)
    np.testing.assert_allclose(
        _orthogonal(np.zeros((4, 2))).T @ _orthogonal(np.zeros((4, 2))), np.eye(2), atol=1e-15
    )


@pytest.mark.parametrize(
    "bad, says",
    [
        ({"shapes": SHAPES, "r": 0}, "r must be a whole number >= 1, got 0"),
        ({"shapes": (), "r": 1}, "shapes must hold shapes"), ({"shapes": ((0, 3),), "r": 1}, "shapes must hold shapes"),
        ({"shapes": SHAPES, "r": 1, "ratio": 0.5}, "ratio must be a finite number >= 1, got 0.5"),
    ],
)  # fmt: skip
def test_nonsense_for_powersgd_is_refused(bad, says):
    with pytest.raises(ValueError, match=says):
        PowerSGD(**bad)


def test_a_gradient_that_does_not_fit_the_shapes_is_refused():
    with pytest.raises(ValueError, match="shapes must hold the d = 7 elements of the gradient, got 153"):
        PowerSGD(SHAPES).start(7, float, rngs(0, 0))
