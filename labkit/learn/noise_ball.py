"""The noise ball: where SGD on least squares ends up and on what path, exactly, and the textbook's bound on it.

The gradient of a least-squares problem is linear in w, so the first two moments of ``e = w - w*`` over the draw
of the batches follow a linear recursion of their own. With batches drawn afresh at every step, H the Hessian,
``H_i = 2 x_i x_i^T`` and ``g_i = 2 (x_i . w* - y_i) x_i`` the gradient of example i at the optimum,

    m <- (I - eta H) m, S <- S - eta (H S + S H) + eta^2 [ (1 - c) H S H + c E(H_i S H_i) + c E(g_i g_i^T) + c
    E(H_i m g_i^T + g_i m^T H_i) ].

c is the share of one example's variance that a batch keeps: 1/b with replacement, (1/b) (N - b)/(N - 1)
without. Nothing is approximated: the noise grows with the distance from w* (it is multiplicative), and the data
need not be normal. The fixed point is a Lyapunov equation. It does *not* describe epochs of a shuffled order,
whose batches depend on each other; they do better.

Sources: Bottou, Curtis and Nocedal 2018, theorem 4.6 (the bound); Bach and Moulines 2013 (the recursion for
least squares). Symbols: N, b, d, ``eta``, L, mu as in ``problems``; w* the optimum; m (d,) = E e; S (d, d) = E
e e^T.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.learn.noise import batch_variance
from labkit.learn.problems import LeastSquares
from labkit.learn.sgd import QUIETLY, Diverged, Rate, rate, start

Array = NDArray[np.float64]

#: The recursion keeps d^4 numbers; beyond as many dimensions that is no longer light.
D_MAX = 40


class Ball(NamedTuple):
    """The stationary state of constant-step SGD.

    covariance: (d, d), of w. distance2: E |w - w*|^2. excess: E F(w) - F(w*).
    """

    covariance: Array
    distance2: float
    excess: float


class Path(NamedTuple):
    """Expectations over the draws, before each step and after the last. distance2: (T + 1,). excess: (T + 1,)."""

    distance2: Array
    excess: Array


class ExpectedSGD:
    """The recursion for one problem and one way of drawing batches.

    problem: least squares with mu > 0 and d <= 40. b: examples a batch, drawn afresh at every step, with or
    without ``replacement`` inside the batch (b <= N without). Raises ValueError for anything else.
    """

    def __init__(self, problem: LeastSquares, b: int, replacement: bool = True) -> None:
        if not isinstance(problem, LeastSquares) or problem.mu == 0 or problem.d > D_MAX:
            raise ValueError(f"problem must be LeastSquares with mu > 0 and d <= {D_MAX}, got {problem!r}")
        self.problem, self.b = problem, b
        self.c = float(batch_variance(1.0, b, None if replacement else problem.N))
        X, y = problem.X.astype(np.float64), problem.y.astype(np.float64)
        d, N = problem.d, problem.N
        self.optimum = np.linalg.lstsq(X, y, rcond=None)[0]
        residual = X @ self.optimum - y
        self.H = 2 * X.T @ X / N
        eye, pairs = np.eye(d), (X[:, :, None] * X[:, None, :]).reshape(N, d * d)
        fourth = 4 * pairs.T @ pairs / N  # E(H_i S H_i) as a matrix on S written as a vector
        self._first = -(np.kron(self.H, eye) + np.kron(eye, self.H))
        self._second = (1 - self.c) * np.kron(self.H, self.H) + self.c * fourth
        self._noise = self.c * 4 * (pairs.T @ residual**2) / N
        self._cross = (
            self.c * 8 * (pairs.T * residual) @ X / N
        )  # both cross terms: each is symmetric in this sum

    def growth(self, eta: float) -> float:
        """The factor, per step, by which the second moment of a long run grows (> 1) or settles (< 1)."""
        return float(
            np.abs(
                np.linalg.eigvals(np.eye(len(self._first)) + eta * self._first + eta**2 * self._second)
            ).max()
        )

    @cached_property
    def largest_eta(self) -> float:
        """The eta beyond which ``E |w - w*|^2`` grows for ever; at most 2 / L, and far less for small batches."""
        low, high = 0.0, 2 / self.problem.L
        if self.c == 0:
            return high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.growth(middle) < 1 else (low, middle)
        return low

    def ball(self, eta: float) -> Ball:
        """The stationary state at constant ``eta``. ValueError where there is none because the second moment grows."""
        eta = rate(eta, 0)
        if not (eta > 0 and self.growth(eta) < 1):
            raise ValueError(
                f"eta must be above 0 and below {self.largest_eta:.4g}, or the noise never settles, got {eta!r}"
            )
        d = self.problem.d
        S = np.linalg.solve(-(self._first + eta * self._second), eta * self._noise).reshape(d, d)
        S = (S + S.T) / 2
        return Ball(S, float(np.trace(S)), float(np.sum(self.H * S) / 2))

    def path(self, w0: ArrayLike, eta: Rate, T: int) -> Path:
        """Expected squared distance and excess loss over T steps from w0, (d,). eta: a number or a function of t.

        Raises ValueError for bad input, Diverged when the second moment stops being finite.
        """
        table = np.array([S for _, S in self._states(w0, eta, T)])
        return Path(table @ np.eye(self.problem.d).ravel(), table @ self._weigh)

    def steps_to(self, target: float, w0: ArrayLike, eta: Rate, T: int) -> int | None:
        """The first step, 0..T, with an expected excess loss of at most ``target``; None if there is none."""
        try:
            return next((t for t, S in self._states(w0, eta, T) if self._weigh @ S <= target), None)
        except Diverged:
            return None

    @cached_property
    def _weigh(self) -> Array:
        """What turns S as a vector into the excess loss, ``tr(H S) / 2``."""
        return (self.H / 2).ravel()

    def _states(self, w0: ArrayLike, eta: Rate, T: int) -> Iterator[tuple[int, Array]]:
        """S as a vector, before each step and after the last."""
        if isinstance(T, bool) or not isinstance(T, (int, np.integer)) or T < 0:
            raise ValueError(f"T must be a whole number of steps >= 0, got {T!r}")
        m = start(self.problem, w0).astype(np.float64) - self.optimum
        S = np.outer(m, m).ravel()
        yield 0, S
        for t in range(T):
            eta_t = rate(eta, t)
            with QUIETLY():
                second = self._second @ S + self._noise + self._cross @ m
                S = S + eta_t * (self._first @ S) + eta_t**2 * second
                m = m - eta_t * (self.H @ m)
            if not np.isfinite(S).all():
                raise Diverged(t, eta_t)
            yield t + 1, S


# -- the bound ----------------------------------------------------------------------------------------------


class NoiseBound(NamedTuple):
    """Constants of assumption 4.3: the variance of a batch's gradient is at most ``M + M_V |grad F(w)|^2``, everywhere."""

    M: float
    M_V: float


def noise_bound(problem: LeastSquares, b: int, replacement: bool = True, slack: float = 2.0) -> NoiseBound:
    """Constants that hold for least squares at every w, from the examples. slack: M_V over its least value, > 1.

    At ``w* + e`` one example's variance is ``sigma2 + 2 k . e + e^T A e`` with ``A = E(H_i^2) - H^2`` and ``k =
    E(H_i g_i)``; M_V must dominate the quadratic part, and M what the linear part can add.
    """
    if not (math.isfinite(slack) and slack > 1):
        raise ValueError(f"slack must be finite and > 1, got {slack!r}")
    law = ExpectedSGD(problem, b, replacement)
    X, y = problem.X.astype(np.float64), problem.y.astype(np.float64)
    residual, length2 = X @ law.optimum - y, (X * X).sum(axis=1)
    A = 4 * (X.T * length2) @ X / problem.N - law.H @ law.H
    k = 4 * (residual * length2) @ X / problem.N
    inverse = np.linalg.inv(law.H)
    M_V = slack * max(float(np.linalg.eigvalsh(inverse @ A @ inverse)[-1]), 0.0)
    room = M_V * law.H @ law.H - A
    M = float(4 * residual**2 @ length2) / problem.N + (float(k @ np.linalg.solve(room, k)) if M_V else 0.0)
    return NoiseBound(law.c * M, law.c * M_V)


def excess_bound(
    eta: float, L: float, mu: float, noise: NoiseBound, gap: float = 0.0, t: int | None = None
) -> float:
    """Bottou, Curtis and Nocedal 2018, theorem 4.6: a bound on ``E F(w_t) - F*`` at constant eta.

    ``ball + (1 - eta mu)^t (gap - ball)`` with ``ball = eta L M / (2 mu)``. gap: F(w_0) - F*. t: steps; None:
    in the end. The theorem asks for ``eta <= 1 / (L (M_V + 1))``; ValueError beyond that, or unless 0 < mu <= L
    and gap >= 0.
    """
    if not 0 < mu <= L < math.inf:
        raise ValueError(f"mu and L must satisfy 0 < mu <= L, got mu = {mu!r}, L = {L!r}")
    most = 1 / (L * (noise.M_V + 1))
    if not 0 < eta <= most * (1 + 1e-12):
        raise ValueError(f"eta must be above 0 and at most 1 / (L (M_V + 1)) = {most:.4g}, got {eta!r}")
    if not (math.isfinite(gap) and gap >= 0):
        raise ValueError(f"gap must be finite and >= 0, got {gap!r}")
    ball = eta * L * noise.M / (2 * mu)
    return ball if t is None else ball + (1 - eta * mu) ** t * (gap - ball)
