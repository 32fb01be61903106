"""The mean over the workers, and every byte of it, in both worlds."""

import numpy as np
import pytest

from labkit import Simulated, launch
from labkit.collectives import ring
from labkit.comm import RankError
from labkit.compress import (
    DGC,
    QSGD,
    ErrorFeedback,
    Identity,
    OverComm,
    PowerSGD,
    RandomK,
    Sign,
    TopK,
    compressed_mean,
    compressed_sgd,
    rngs,
    sent_bytes,
)  # fmt: skip
from labkit.learn import LeastSquares, linear_data, split, sync_sgd
from labkit.network import Link

d = 37
SHAPES = ((5, 6), (7,))
SCHEMES = [
    Identity(), QSGD(3), QSGD(3, bucket=8), TopK(3), TopK(0.1), RandomK(4), Sign(), Sign(False), ErrorFeedback(TopK(3)),
    ErrorFeedback(RandomK(4)), ErrorFeedback(Sign()), DGC(2, warmup=2), PowerSGD(SHAPES, r=1),
]  # fmt: skip


def share(rank, dtype=np.float64):
    return np.random.default_rng([5, rank]).standard_normal(d).astype(dtype)


def steps(comm, how, T, dtype):
    """T exchanges; what came of each and what this worker said."""
    scheme, draws, wire = how, rngs(9, comm.rank), OverComm(comm)
    memory, out = scheme.start(d, dtype, draws), []
    for t in range(T):
        exchanged, memory = scheme.mean(wire, (t + 1) * share(comm.rank, dtype), memory, draws)
        out.append(exchanged)
    return np.array([o.mean for o in out]), np.array([o.mine for o in out])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("K", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("how", SCHEMES, ids=str)
def test_everyone_gets_the_same_bits_the_mean_of_what_was_said_for_the_stated_bytes(how, K, dtype):
    T = 5
    run = launch(steps, K, how, T, dtype)
    means = [mean for mean, _ in run.results]
    for mean in means:
        assert mean.tobytes() == means[0].tobytes() and mean.dtype == dtype
    said = np.mean([mine.astype(np.float64) for _, mine in run.results], axis=0)
    tolerance = {np.float16: 0.05, np.float32: 2e-6, np.float64: 1e-13}[dtype]
    np.testing.assert_allclose(means[0], said, rtol=tolerance, atol=tolerance * np.abs(said).max())
    stated = sum(sent_bytes(how, K, d, np.dtype(dtype).itemsize, t) for t in range(T))
    np.testing.assert_array_equal(run.bytes_sent, stated)


def test_a_sum_is_charged_as_a_ring_and_a_gather_k_minus_1_messages():
    np.testing.assert_array_equal(sent_bytes(Identity(), 3, d, 8), ring.bytes(3, d, 8))
    np.testing.assert_array_equal(sent_bytes(RandomK(10), 4, d, 4), ring.bytes(4, 10, 4))
    np.testing.assert_array_equal(sent_bytes(Sign(), 5, 80, 4), [4 * (4 + 10)] * 5)
    np.testing.assert_array_equal(sent_bytes(TopK(0.01), 64, 10**6, 4), [63 * 8 * 10**4] * 64)
    first, later = sent_bytes(DGC(1, warmup=3), 2, 64, 8, t=2), sent_bytes(DGC(1, warmup=3), 2, 64, 8, t=3)
    np.testing.assert_array_equal([first, later], [[16 * 10] * 2, [4 * 10] * 2])


def test_compressed_mean_of_identity_is_the_mean():
    run = launch(lambda comm: compressed_mean(comm, share(comm.rank), Identity()), 4)
    sums = launch(lambda comm: ring.allreduce(comm, share(comm.rank)), 4).results[0]
    np.testing.assert_array_equal(run.results[2].mean, sums / 4)
    np.testing.assert_array_equal(run.results[2].mine, share(2))


def test_workers_round_independently_so_their_errors_average_out():
    """With one generator for all, the mean of K equal gradients would be as noisy as one of them."""
    x = np.random.default_rng(0).standard_normal(2000)
    c, K = QSGD(8), 8
    mean = launch(lambda comm: compressed_mean(comm, x, c, seed=3).mean, K).results[0]
    got, one = np.sum((mean - x) ** 2), c.variance(x)
    # 2000 independent squares of mean one / K: Bernstein gives far less than 1e-6 for a factor of 2
    assert 0.5 * one / K < got < 2 * one / K


@pytest.mark.parametrize("how", [Identity(), QSGD(3), TopK(3), RandomK(4), Sign()], ids=str)
def test_one_bad_gradient_is_named_and_nobody_waits_for_ever(how):
    def f(comm):
        g = share(comm.rank)
        g[3] = np.nan if comm.rank == 1 else g[3]
        compressed_mean(comm, g, how)

    with pytest.raises(
        RankError, match="x must be finite to be compressed, got NaN or infinity in 1 of 37 places"
    ) as e:
        launch(f, 3)
    assert e.value.ranks == (1,)


@pytest.mark.processes
def test_processes_agree_with_the_simulation_to_the_bit_and_the_byte():
    hows = [QSGD(3), TopK(3), RandomK(4), ErrorFeedback(Sign()), DGC(2, warmup=2), PowerSGD(SHAPES, r=1)]

    def all_of_them(comm):
        return [(steps(comm, how, 3, np.float32), comm.bytes_sent) for how in hows]

    simulated, real = launch(all_of_them, 3), launch(all_of_them, 3, world="processes")
    for a, b in zip(simulated.results, real.results, strict=True):
        for ((mean, mine), sent), ((mean_, mine_), sent_) in zip(a, b, strict=True):
            assert mean.tobytes() == mean_.tobytes() and mine.tobytes() == mine_.tobytes() and sent == sent_
    np.testing.assert_array_equal(simulated.bytes_sent, real.bytes_sent)
    np.testing.assert_array_equal(
        real.bytes_sent, sum(sent_bytes(how, 3, d, 4, t) for how in hows for t in range(3))
    )


# -- SGD ----------------------------------------------------------------------------------------------------------------


def problem(dtype=np.float64):
    X, y, _ = linear_data(96, 6, np.random.default_rng(11))
    return LeastSquares(X.astype(dtype), y)


@pytest.mark.parametrize("K", [1, 2, 3, 4])
def test_with_the_identity_it_is_synchronous_sgd(K):
    p, shards = problem(), [split(np.random.default_rng(t).permutation(96)[:48], K) for t in range(10)]
    sync = launch(sync_sgd, K, p, np.zeros(6), 0.1, shards, ring.allreduce).results[0]
    ours = launch(compressed_sgd, K, p, np.zeros(6), 0.1, shards, Identity())
    for result in ours.results:
        assert result.iterates.tobytes() == ours.results[0].iterates.tobytes()
        np.testing.assert_allclose(result.iterates, sync, rtol=1e-13)
    np.testing.assert_array_equal(ours.bytes_sent, 10 * ring.bytes(K, 6, 8))


def test_unequal_and_empty_shards_are_weighted_by_their_examples():
    p, shards = problem(), [[np.arange(5), np.arange(5, 40), np.array([], int)]] * 6
    sync = launch(sync_sgd, 3, p, np.zeros(6), 0.1, shards, ring.allreduce).results[0]
    ours = launch(compressed_sgd, 3, p, np.zeros(6), 0.1, shards, Identity()).results[0].iterates
    np.testing.assert_allclose(ours, sync, rtol=1e-12)
    with pytest.raises(RankError, match="shards must hold an example at every step, got none at step 0"):
        launch(compressed_sgd, 2, p, np.zeros(6), 0.1, [[[], []]], Identity())


def test_float32_stays_float32_on_the_wire_and_in_the_iterates():
    p, shards = problem(np.float32), [split(np.arange(96), 3)] * 4
    run = launch(compressed_sgd, 3, p, np.zeros(6, np.float32), 0.1, shards, ErrorFeedback(TopK(2)))
    assert run.results[0].iterates.dtype == np.float32
    np.testing.assert_array_equal(run.bytes_sent, [4 * 2 * 2 * (2 + 4)] * 3)


@pytest.mark.parametrize(
    "how", [QSGD(4), ErrorFeedback(TopK(1)), ErrorFeedback(Sign()), DGC(2, momentum=0.5)], ids=str
)
def test_every_method_learns_and_the_seed_decides_everything(how):
    p, shards = problem(), [split(np.random.default_rng(t).permutation(96)[:64], 4) for t in range(120)]

    def last(seed):
        job = (compressed_sgd, 4, p, np.zeros(6), 0.05, shards, how)
        return launch(*job, seed=seed).results[0].iterates

    path = last(0)
    start, best = p.loss(np.zeros(6)), p.loss(p.optimum())
    assert p.loss(path[-1]) - best < 0.02 * (start - best)
    np.testing.assert_array_equal(path, last(0))
    if isinstance(how, QSGD):
        assert not np.array_equal(path, last(1))


def test_the_three_parts_of_a_step_are_told_apart():
    link, big = Link(1e-3, 1e6), LeastSquares(*linear_data(64, 8000, np.random.default_rng(0))[:2])
    shards, how = [split(np.arange(64), 2)] * 3, ErrorFeedback(TopK(0.5))
    run = launch(
        compressed_sgd, 2, big, np.zeros(8000), 1e-5, shards, how, coding_s=0.5, world=Simulated(link)
    )
    for result in run.results:
        assert result.encode_s.shape == result.wire_s.shape == result.decode_s.shape == (3,)
        np.testing.assert_allclose(result.wire_s, 1e-3 + 4000 * 10 / 1e6, rtol=1e-9)  # the simulation's clock
        assert (result.encode_s > 0).all() and (result.decode_s > 0).all()
    assert run.elapsed_s == pytest.approx(3 * (0.5 + 1e-3 + 0.04))


def test_what_is_neither_a_compressor_nor_a_scheme_is_refused():
    with pytest.raises(TypeError, match="how must be a compressor or a scheme"):
        sent_bytes("topk", 4, 100, 4)
    with pytest.raises(TypeError, match="compressor must be a compressor"):
        compressed_mean(None, np.ones(3), DGC(1))
