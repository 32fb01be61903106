"""The mean over the workers, and every byte of it, in both worlds."""

import numpy as np
import pytest

from labkit import Simulated, launch
from labkit.collectives import ring
from labkit.comm import RankError
from labkit.compress import (
    QSGD,
    ErrorFeedback,
    Identity,
    OverComm,
    PowerSGD,
    RandomK,
    Sign,
    TopK,
    compressed_mean,
    rngs,
    sent_bytes,
    wire_time,
)
from labkit.network import Link
from labkit_book.labs.fewer_bytes import DGC

d = 37
SHAPES = ((5, 6), (7,))
SCHEMES = [
    Identity(), QSGD(3), QSGD(3, bucket=8), TopK(3), TopK(0.1), RandomK(4), Sign(), ErrorFeedback(TopK(3)),
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("K", [1, 2, 3, 5])
@pytest.mark.parametrize("how", SCHEMES, ids=str)
def test_everyone_gets_the_same_bits_the_mean_of_what_was_said_for_the_stated_bytes(how, K, dtype):
    T = 5
    run = launch(steps, K, how, T, dtype)
    means = [mean for mean, _ in run.results]
    for mean in means:
        assert mean.tobytes() == means[0].tobytes() and mean.dtype == dtype
    said = np.mean([mine.astype(np.float64) for _, mine in run.results], axis=0)
    tolerance = {np.float32: 2e-6, np.float64: 1e-13}[dtype]
    np.testing.assert_allclose(means[0], said, rtol=tolerance, atol=tolerance * np.abs(said).max())
    stated = sum(sent_bytes(how, K, d, np.dtype(dtype).itemsize, t) for t in range(T))
    np.testing.assert_array_equal(run.bytes_sent, stated)


def test_a_sum_is_charged_as_a_ring_and_a_gather_k_minus_1_messages():
    np.testing.assert_array_equal(sent_bytes(Identity(), 3, d, 8), ring.bytes(3, d, 8))
    np.testing.assert_array_equal(sent_bytes(RandomK(10), 4, d, 4), ring.bytes(4, 10, 4))
    np.testing.assert_array_equal(sent_bytes(Sign(), 5, 80, 4), [4 * (4 + 10)] * 5)
    np.testing.assert_array_equal(sent_bytes(TopK(0.01), 64, 10**6, 4), [63 * 8 * 10**4] * 64)


def test_workers_round_independently_so_their_errors_average_out():
    """With one generator for all, the mean of K equal gradients would be as noisy as one of them."""
    x = np.random.default_rng(0).standard_normal(2000)
    c, K = QSGD(8), 8
    mean = launch(lambda comm: compressed_mean(comm, x, c, seed=3).mean, K).results[0]
    got, one = np.sum((mean - x) ** 2), c.variance(x)
    # 2000 independent squares of mean one / K: Bernstein gives far less than 1e-6 for a factor of 2
    assert 0.5 * one / K < got < 2 * one / K


def test_one_bad_gradient_is_named_and_nobody_waits_for_ever():
    def f(comm):
        g = share(comm.rank)
        g[3] = np.nan if comm.rank == 1 else g[3]
        compressed_mean(comm, g, TopK(3))

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


@pytest.mark.parametrize("K", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "how", [*SCHEMES[:1], QSGD(7), TopK(0.1), RandomK(120), DGC(0.05), PowerSGD(((24, 40),), 3)], ids=str
)
def test_the_simulated_wire_takes_as_long_as_the_closed_form_says(how, K):
    n, link = 960, Link(3e-4, 1e6)  # n: a multiple of every K, as are the sums that travel

    def exchange(comm):
        draws = rngs(0, comm.rank)
        how.mean(OverComm(comm), np.ones(n), how.start(n, np.float64, draws), draws)

    simulated = launch(exchange, K, world=Simulated(link)).elapsed_s
    assert simulated == pytest.approx(wire_time(how, K, n, 8, link), rel=1e-9)


def test_what_is_neither_a_compressor_nor_a_scheme_is_refused():
    with pytest.raises(TypeError, match="how must be a compressor or a scheme"):
        sent_bytes("topk", 4, 100, 4)
