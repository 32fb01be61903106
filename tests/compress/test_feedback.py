"""Nothing is lost: message plus new error is gradient plus old error. And what happens without."""

from fractions import Fraction

import numpy as np
import pytest

from labkit import launch
from labkit.comm import RankError
from labkit.compress import QSGD, ErrorFeedback, Identity, PowerSGD, RandomK, Sign, TopK, Wire, rngs
from labkit.learn import Diverged, LeastSquares
from labkit_book.labs.fewer_bytes import DGC, compressed_sgd


def residue(a, b):
    """(s, r) with s = a + b as rounded and s + r == a + b exactly, barring overflow: Knuth's TwoSum (1998, 4.2.2)."""
    s = a + b
    from_b = s - a
    return s, (a - (s - from_b)) + (b - from_b)


class Alone(Wire):
    """The wire of a single worker."""

    def __init__(self):
        super().__init__(1)

    def _sum(self, x):
        return x.copy()

    def _gather(self, message):
        return message[None].copy()


def walk(scheme, gs, seed=0):
    """(gradient, old error, what the message says, new error) of each step of one worker."""
    draws = rngs(seed, 0)
    memory = scheme.start(gs.shape[1], gs.dtype, draws)
    for g in gs:
        old = getattr(memory, "error", memory)
        out, memory = scheme.mean(Alone(), g, memory, draws)
        yield g, old, out.mine, getattr(memory, "error", memory)


def gradients(dtype, T=30, d=60, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((T, d)) * 10.0 ** rng.integers(-3, 3, size=d)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("c", [TopK(3), TopK(0.2), RandomK(5), Identity()], ids=str)
def test_where_coordinates_are_sent_whole_the_books_balance_bit_for_bit(c, dtype):
    for g, old, mine, new in walk(ErrorFeedback(c), gradients(dtype)):
        np.testing.assert_array_equal(mine + new, g + old)
        assert not ((mine != 0) & (new != 0)).any()  # each coordinate is in one place


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scheme", [
    ErrorFeedback(Sign()), ErrorFeedback(QSGD(3)), ErrorFeedback(TopK(3)), PowerSGD(((6, 10),), r=1),
], ids=str)  # fmt: skip
def test_to_the_last_bit_of_every_step_nothing_is_lost_but_two_roundings_that_are_known(scheme, dtype):
    gs = gradients(dtype)
    given, sent, rounded = np.zeros((3, gs.shape[1]), dtype=object)
    for g, old, mine, new in walk(scheme, gs):
        corrected, slip = residue(g, old)
        error, other_slip = residue(corrected, -mine)
        np.testing.assert_array_equal(error, new)
        assert (np.abs(other_slip) <= np.spacing(np.abs(new)) / 2).all()
        given = given + exact(g)
        sent = sent + exact(mine)
        rounded = rounded + exact(slip) + exact(other_slip)
    assert (given == sent + exact(new) + rounded).all()  # in rational numbers: no tolerance


def exact(x):
    return np.array([Fraction(float(v)) for v in x], dtype=object)


@pytest.mark.parametrize("scheme", [ErrorFeedback(TopK(2)), DGC(2), PowerSGD(((3, 4), (4,)), r=1)], ids=str)
def test_a_gradient_is_not_changed_and_memories_are_not_shared(scheme):
    g, draws = np.arange(16.0), rngs(0, 0)
    memory = scheme.start(16, g.dtype, draws)
    scheme.mean(Alone(), g, memory, draws)
    np.testing.assert_array_equal(g, np.arange(16.0))
    error = memory if isinstance(memory, np.ndarray) else memory[0]
    assert not error.any()  # the old memory is as it was


# -- without it ---------------------------------------------------------------------------------------------------------


#: Two examples, two workers, whose gradients have the same signs or the opposite (Karimireddy et al. 2019).
SIGN_STALLS = LeastSquares(np.array([[1.5, -0.5], [-0.5, 1.5]]), np.zeros(2)), [[0], [1]]
#: Three workers with (a_k . w)^2 + |w|^2 / 4 whose largest coordinates point uphill (Beznosikov et al. 2020).
_ROWS = [row for k in range(3) for row in (np.roll([-3.0, 2.0, 2.0], k), *np.eye(3) / 2)]
TOP_1_GROWS = LeastSquares(2 * np.array(_ROWS), np.zeros(12)), list(np.arange(12).reshape(3, 4))


def path(example, how, eta, T):
    """The iterates of T steps from (1, 1, ...), one worker a shard."""
    problem, shards = example
    job = (problem, np.ones(problem.d), eta, [shards] * T, how)
    return launch(compressed_sgd, len(shards), *job).results[0].iterates


@pytest.mark.parametrize("eta", [0.02, 0.1])
def test_signs_never_leave_the_line_and_with_error_feedback_they_arrive(eta):
    stuck, loss = path(SIGN_STALLS, Sign(), eta, 100), SIGN_STALLS[0].loss
    np.testing.assert_allclose(stuck.sum(axis=1), 2, rtol=1e-12)
    assert all(loss(w) >= loss(np.ones(2)) * (1 - 1e-12) for w in stuck)
    arrived = path(SIGN_STALLS, ErrorFeedback(Sign()), eta, round(10 / eta))
    assert loss(arrived[-1]) < 1e-6 * loss(np.ones(2))


@pytest.mark.parametrize("eta", [pytest.param(0.01, marks=pytest.mark.weekly), 0.02])
def test_the_largest_of_three_grows_for_ever_and_with_error_feedback_shrinks(eta):
    loss, T = TOP_1_GROWS[0].loss, round(8 / eta)
    wrong = path(TOP_1_GROWS, TopK(1), eta, 100)
    np.testing.assert_allclose(wrong[1:] / wrong[:-1], 1 + 11 * eta / 6, rtol=1e-9)
    for how in (ErrorFeedback(TopK(1)), Identity()):
        assert loss(path(TOP_1_GROWS, how, eta, T)[-1]) < 1e-6 * loss(np.ones(3))


def test_the_largest_of_three_overflows_and_that_is_called_diverged():
    with pytest.raises(RankError) as failure:
        path(TOP_1_GROWS, TopK(1), 5.0, 2000)
    assert isinstance(failure.value.__cause__, Diverged) and failure.value.__cause__.step > 100
