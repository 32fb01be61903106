"""What lab 10.7 races with: SGD over compressed gradients, and DGC."""

import numpy as np
import pytest

from labkit import Simulated, launch
from labkit.collectives import ring
from labkit.compress import QSGD, ErrorFeedback, Identity, OverComm, Sign, TopK, rngs
from labkit.learn import LeastSquares, linear_data, split, sync_sgd
from labkit.network import Link
from labkit_book.labs.fewer_bytes import DGC, compressed_sgd


def problem(dtype=np.float64):
    X, y, _ = linear_data(96, 6, np.random.default_rng(11))
    return LeastSquares(X.astype(dtype), y)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_with_the_identity_it_is_synchronous_sgd_whatever_the_shards(K):
    p, rng = problem(), np.random.default_rng(0)
    shards = [np.array_split(rng.permutation(96)[:48], [5, 40][: K - 1]) for _ in range(10)]
    sync = launch(sync_sgd, K, p, np.zeros(6), 0.1, shards, ring.allreduce).results[0]
    ours = launch(compressed_sgd, K, p, np.zeros(6), 0.1, shards, Identity())
    for result in ours.results:
        assert result.iterates.tobytes() == ours.results[0].iterates.tobytes()
        np.testing.assert_allclose(result.iterates, sync, rtol=1e-12)
    np.testing.assert_array_equal(ours.bytes_sent, 10 * ring.bytes(K, 6, 8))


def test_float32_stays_float32_on_the_wire_and_in_the_iterates():
    p, shards = problem(np.float32), [split(np.arange(96), 3)] * 4
    run = launch(compressed_sgd, 3, p, np.zeros(6, np.float32), 0.1, shards, ErrorFeedback(TopK(2)))
    assert run.results[0].iterates.dtype == np.float32
    np.testing.assert_array_equal(run.bytes_sent, [4 * 2 * 2 * (2 + 4)] * 3)


@pytest.mark.parametrize(
    "how", [QSGD(4), ErrorFeedback(TopK(1)), ErrorFeedback(Sign()), DGC(2, 0.5)], ids=str
)
def test_every_method_learns_and_the_seed_decides_everything(how):
    p, shards = problem(), [split(np.random.default_rng(t).permutation(96)[:64], 4) for t in range(120)]
    paths = [
        launch(compressed_sgd, 4, p, np.zeros(6), 0.05, shards, how, seed=seed).results[0].iterates
        for seed in (0, 0, 1)
    ]
    start, best = p.loss(np.zeros(6)), p.loss(p.optimum())
    assert p.loss(paths[0][-1]) - best < 0.02 * (start - best)
    np.testing.assert_array_equal(paths[0], paths[1])
    assert isinstance(how, QSGD) != np.array_equal(paths[0], paths[2])


def test_the_three_parts_of_a_step_are_told_apart():
    big = LeastSquares(*linear_data(64, 8000, np.random.default_rng(0))[:2])
    job = (big, np.zeros(8000), 1e-5, [split(np.arange(64), 2)] * 3, ErrorFeedback(TopK(0.5)))
    for result in launch(compressed_sgd, 2, *job, world=Simulated(Link(1e-3, 1e6))).results:
        np.testing.assert_allclose(result.wire_s, [1e-3 + 4000 * 10 / 1e6] * 3)  # the simulation's clock
        assert (result.encode_s > 0).all() and (result.decode_s > 0).all()


# -- DGC


def steps(comm, scheme, gs):
    """gs: (K, T, d). Every step's mean, and every memory."""
    draws, wire = rngs(4, comm.rank), OverComm(comm)
    memories, means = [scheme.start(gs.shape[2], gs.dtype, draws)], []
    for g in gs[comm.rank]:
        out, memory = scheme.mean(wire, g, memories[-1], draws)
        means.append(out.mean)
        memories.append(memory)
    return np.array(means), memories


def test_without_momentum_dgc_is_top_k_with_error_feedback():
    gs = np.random.default_rng(3).standard_normal((3, 6, 50))
    ours = launch(steps, 3, DGC(7, momentum=0.0), gs).results
    theirs = launch(steps, 3, ErrorFeedback(TopK(7)), gs).results
    for (mean, memories), (other, errors) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mean, other)
        np.testing.assert_array_equal(memories[-1].v, errors[-1])


def test_dgc_keeps_what_it_does_not_send():
    gs = np.random.default_rng(0).standard_normal((1, 30, 60))
    means, memories = launch(steps, 1, DGC(4, momentum=0.9), gs).results[0]
    for g, sent, old, new in zip(gs[0], means, memories, memories[1:], strict=False):
        u = 0.9 * old.u + g
        np.testing.assert_array_equal(sent + new.v, old.v + u)
        assert (sent != 0).sum() == 4 and not new.u[sent != 0].any()
        np.testing.assert_array_equal(new.u[sent == 0], u[sent == 0])


def test_sparsity_warms_up_by_factors_of_four():
    scheme = DGC(0.001, warmup=2)
    ks = [scheme.at(t, 64_000) for t in range(12)]
    assert ks == [16_000] * 2 + [4_000] * 2 + [1_000] * 2 + [250] * 2 + [64] * 4
    assert [DGC(3).at(t, 10) for t in (0, 9)] == [3, 3] and DGC(9, warmup=1).at(5000, 10) == 9


@pytest.mark.parametrize(
    "bad", [{"k": 0}, {"k": 1, "momentum": 1.0}, {"k": 1, "momentum": 1.5}, {"k": 1, "warmup": -1}]
)
def test_nonsense_for_dgc_is_refused(bad):
    with pytest.raises(ValueError, match=f"{list(bad)[-1]} must be"):
        DGC(**bad)
