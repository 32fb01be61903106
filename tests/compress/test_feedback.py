"""Nothing is lost: message plus new error is gradient plus old error. And what happens without."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from labkit import launch
from labkit.comm import RankError
from labkit.compress import (
    DGC,
    QSGD,
    ErrorFeedback,
    Identity,
    PowerSGD,
    RandomK,
    Sign,
    TopK,
    Wire,
    compressed_sgd,
    rngs,
)  # fmt: skip
from labkit.learn import Diverged, LeastSquares, linear_data, split


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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("c", [TopK(3), TopK(0.2), RandomK(5), Identity()], ids=str)
def test_where_coordinates_are_sent_whole_the_books_balance_bit_for_bit(c, dtype):
    for g, old, mine, new in walk(ErrorFeedback(c), gradients(dtype)):
        np.testing.assert_array_equal(mine + new, g + old)
        assert not ((mine != 0) & (new != 0)).any()  # each coordinate is in one place


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "scheme",
    [ErrorFeedback(Sign()), ErrorFeedback(QSGD(3)), ErrorFeedback(TopK(3)), PowerSGD(((6, 10),), r=1)],
    ids=str,
)
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


def test_dgc_keeps_what_it_does_not_send():
    scheme, draws = DGC(4, momentum=0.9), rngs(0, 0)
    memory = scheme.start(60, np.float64, draws)
    for g in gradients(np.float64):
        out, after = scheme.mean(Alone(), g, memory, draws)
        u = 0.9 * memory.u + g
        np.testing.assert_array_equal(out.mine + after.v, memory.v + u)
        sent = out.mine != 0
        assert sent.sum() == 4 and not after.u[sent].any() and not after.v[sent].any()
        np.testing.assert_array_equal(after.u[~sent], u[~sent])
        memory = after


def test_a_gradient_is_not_changed_and_memories_are_not_shared():
    for scheme in (ErrorFeedback(TopK(2)), DGC(2), PowerSGD(((3, 4), (4,)), r=1)):
        g, draws = np.arange(16.0) if isinstance(scheme, PowerSGD) else np.arange(9.0), rngs(0, 0)
        before, memory = g.copy(), scheme.start(len(g), g.dtype, draws)
        scheme.mean(Alone(), g, memory, draws)
        np.testing.assert_array_equal(g, before)
        arrays = (
            [memory] if isinstance(memory, np.ndarray) else [a for a in memory if isinstance(a, np.ndarray)]
        )
        assert not any(a.any() for a in arrays)  # the old memory is as it was


# -- without it ---------------------------------------------------------------------------------------------------------


class Counterexample(NamedTuple):
    problem: LeastSquares
    shards: list
    w0: np.ndarray


def sign_stalls():
    """Two examples, two workers, whose gradients have the same signs or the opposite (Karimireddy et al. 2019)."""
    return Counterexample(
        LeastSquares(np.array([[1.5, -0.5], [-0.5, 1.5]]), np.zeros(2)), [[0], [1]], np.ones(2)
    )


def top1_diverges():
    """Three workers with (a_k . w)^2 + |w|^2 / 4 whose largest coordinates point uphill (Beznosikov et al. 2020)."""
    rows = [row for k in range(3) for row in (np.roll([-3.0, 2.0, 2.0], k), *np.eye(3) / 2)]
    return Counterexample(
        LeastSquares(2 * np.array(rows), np.zeros(12)), list(np.arange(12).reshape(3, 4)), np.ones(3)
    )


def final(ce, how, eta, T):
    K = len(ce.shards)
    return launch(compressed_sgd, K, ce.problem, ce.w0, eta, [ce.shards] * T, how).results[0].iterates


@pytest.mark.parametrize("eta", [0.02, 0.1])
def test_signs_never_leave_the_line_and_with_error_feedback_they_arrive(eta):
    ce = sign_stalls()
    stuck = final(ce, Sign(), eta, 100)
    np.testing.assert_allclose(stuck.sum(axis=1), 2, rtol=1e-12)
    start = ce.problem.loss(ce.w0)
    assert all(ce.problem.loss(w) >= start * (1 - 1e-12) for w in stuck)
    arrived = final(ce, ErrorFeedback(Sign()), eta, round(10 / eta))
    assert ce.problem.loss(arrived[-1]) < 1e-6 * start


@pytest.mark.parametrize("eta", [0.01, 0.02])
def test_the_largest_of_three_grows_for_ever_and_with_error_feedback_shrinks(eta):
    ce = top1_diverges()
    T = round(8 / eta)
    wrong = final(ce, TopK(1), eta, 100)
    np.testing.assert_allclose(wrong[1:] / wrong[:-1], 1 + 11 * eta / 6, rtol=1e-9)
    right = final(ce, ErrorFeedback(TopK(1)), eta, T)
    plain = final(ce, Identity(), eta, T)
    assert ce.problem.loss(right[-1]) < 1e-6 * ce.problem.loss(ce.w0)
    assert ce.problem.loss(plain[-1]) < 1e-6 * ce.problem.loss(ce.w0)


def test_the_largest_of_three_overflows_and_that_is_called_diverged():
    ce = top1_diverges()
    with pytest.raises(RankError) as failure:
        final(ce, TopK(1), 5.0, 2000)
    assert isinstance(failure.value.__cause__, Diverged) and failure.value.__cause__.step > 100


def test_on_an_ordinary_problem_feedback_reaches_what_dropping_does_not():
    X, y, _ = linear_data(96, 12, np.random.default_rng(5))
    X[:, :] *= np.geomspace(1, 3, 12)
    problem = LeastSquares(X, y)
    shards = split(np.argsort(y), 4)  # each worker sees another part of the world
    best = problem.loss(problem.optimum())

    def gap(how):
        run = launch(compressed_sgd, 4, problem, np.zeros(12), 0.04, [shards] * 250, how)
        return problem.loss(run.results[0].iterates[-1]) - best

    assert gap(ErrorFeedback(TopK(1))) < 0.05 * gap(TopK(1))
