"""Alpha and beta from a stopwatch: fit a link to measured times of known algorithms.

Every closed form is linear in theta = (alpha, 1/beta), so a time measured for K workers and n bytes is

    seconds = (messages * alpha + nbytes / beta) * noise,

where messages and bytes are those that the form counts one after the other. Times span decades and their scatter is
relative, so the fit is one of logarithms, and robust (Huber and Ronchetti, Robust Statistics, 2nd edition, 2009, chapter 7):
scipy's least squares with the loss arctan(z), z = (residual / far)^2, which is quadratic for what scatters and flat for what
is far out: a disturbance makes a time longer, and would pull a loss that went on growing. It needs a robust start.
The intervals describe the scatter of independent samples, and nothing of what the model leaves out.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labkit.checks import integer, number
from labkit.extras import scipy
from labkit.network.link import Form, Link, evaluate

Array = NDArray[np.float64]
LEVEL = 0.95  #: of the intervals
FAR = 2.0  #: Residuals of as many scatters hardly count.
ROUNDING = 1e-12  #: Below this, relatively, all scatter is rounding;
TINY = 1e-300  #: and below this a number has no logarithm.


@dataclass(frozen=True)
class Sample:
    """One measured time.

    form: what ran, such as ``ring``, or its closed form. K: workers, >= 2. nbytes: bytes of the vector, >= 0. seconds:
    what it took, > 0. Raises ValueError for anything else.
    """

    form: Form
    K: int
    nbytes: float
    seconds: float

    def __post_init__(self) -> None:
        integer("K", self.K, least=2)
        number("nbytes", self.nbytes, least=0)
        number("seconds", self.seconds, above=0)

    @property
    def terms(self) -> list[float]:
        """Messages and bytes that go one after the other: the time on a link that costs nothing else."""
        links = Link(1.0, math.inf), Link(0.0, 1.0)
        return [evaluate(self.form, self.K, self.nbytes, link) for link in links]


@dataclass(frozen=True, eq=False)
class Fit:
    """A link fitted to samples.

    alpha_interval, beta_interval: each holds the true value with a probability of 95 %, if the samples are independent and
    the model holds. residuals: (m,) log(measured / predicted). scatter: their standard deviation, without a few far ones.
    """

    link: Link
    alpha_interval: tuple[float, float]
    beta_interval: tuple[float, float]
    samples: tuple[Sample, ...]
    residuals: Array
    scatter: float

    def __str__(self) -> str:
        a, b = (1e6 * end for end in self.alpha_interval)
        c, d = (end / 1e9 for end in self.beta_interval)
        text = f"alpha = {self.link.alpha * 1e6:.4g} µs ({a:.4g} to {b:.4g}), "
        text += f"beta = {self.link.beta / 1e9:.4g} GB/s ({c:.4g} to {d:.4g}); "
        text += f"{LEVEL:.0%} intervals, {len(self.samples)} samples, scatter {self.scatter:.1%}"
        return text


def fit(samples: Iterable[Sample]) -> Fit:
    """The link that explains ``samples`` best.

    samples: at least three; of one algorithm or of several, for one K or several.
    Raises ValueError for samples that cannot tell alpha from 1/beta, or in whose scatter one of the two is lost.

    >>> from labkit.collectives import ring
    >>> link = Link(alpha=1e-4, beta=1e9)
    >>> samples = [Sample(ring, 4, n, ring.time(4, n, link)) for n in (1e2, 1e4, 1e6, 1e8)]
    >>> print(fit(samples).link)
    alpha = 100 µs, beta = 1 GB/s
    """
    samples = tuple(samples)
    if len(samples) < 3:
        raise ValueError(f"samples must be at least three, got {len(samples)}")
    X = np.array([s.terms for s in samples])
    seconds = np.array([s.seconds for s in samples])
    theta, scatter = _estimate(X, seconds)
    predicted = _total(theta, X)
    residuals = np.log(seconds / predicted)
    J = X / predicted[:, None]
    half = _half_widths(J, residuals, scatter)
    low, high = np.maximum(theta - half, 0.0), theta + half
    _determined(J.max(axis=0), low, high, scatter)
    with np.errstate(divide="ignore"):
        beta, fastest, slowest = (float(1 / each[1]) for each in (theta, low, high))
    link = Link(float(theta[0]), beta)
    alphas = float(low[0]), float(high[0])
    return Fit(link, alphas, (slowest, fastest), samples, residuals, scatter)


def _estimate(X: Array, seconds: Array) -> tuple[Array, float]:
    """theta (2,) >= 0 with log(X theta) close to log seconds (m,) for most samples, and the scatter of those."""
    optimize = scipy("optimize")
    # Scaled so that the unknowns are of one size.
    scale = np.maximum((X / seconds[:, None]).max(axis=0), TINY)
    X = X / scale

    def residuals(theta: Array) -> Array:
        return np.log(_total(theta, X) / seconds)

    def jacobian(theta: Array) -> Array:
        return X / _total(theta, X)[:, None]

    theta = _start(X / seconds[:, None])
    scatter = _scatter(residuals(theta))
    exact = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}
    # The scatter says which residuals are far, and the others what the scatter is.
    for _ in range(20):
        start, before = np.maximum(theta, 1e-9), scatter
        theta = optimize.least_squares(
            residuals,
            start,
            jacobian,
            bounds=(0, np.inf),
            loss="arctan",
            f_scale=FAR * scatter,
            **exact,
        ).x
        scatter = _scatter(residuals(theta))
        if abs(scatter - before) <= 1e-3 * before:
            break
    return theta / scale, scatter


def _start(X: Array) -> Array:
    """Of many theta through two samples X theta = 1, always the same, the one with the least median distance to all: up to
    half of the samples cannot mislead it (Rousseeuw 1984).
    """
    m = len(X)
    pairs = np.random.default_rng(m).integers(m, size=(500, 2))
    through = np.linalg.pinv(X[pairs]).sum(axis=2)  # times (1, 1)
    theta = np.maximum(through, 0.0)
    distance = np.sort(np.abs(X @ theta.T - 1), axis=0)
    return theta[np.argmin(distance[m // 2 + 1])]


def _total(theta: Array, X: Array) -> Array:
    """The predicted seconds (m,), kept from 0 so that they have a logarithm."""
    return np.maximum(X @ theta, TINY)


def _scatter(residuals: Array) -> float:
    """Standard deviation from the median distance to 0 (0.6745 of a normal variable), without the smallest two, which two
    unknowns can make vanish; 1 + 5 / (m - 2): for few samples (Rousseeuw and Leroy 1987).
    """
    distance = np.sort(np.abs(residuals))
    few = 1 + 5 / (len(distance) - 2)
    return max(float(np.median(distance[2:])) / 0.6745 * few, ROUNDING)


def _half_widths(J: Array, residuals: Array, scatter: float) -> Array:
    """Half of each unknown's interval, (2,): Student's t times the standard error; infinite where nothing supports it.

    J (m, 2): the derivatives of log predicted. The standard error is Huber's for an M-estimator (section 7.6).
    """
    m, p = J.shape
    z = (residuals / (FAR * scatter)) ** 2
    weight, slope = 1 / (1 + z**2), (1 - 3 * z**2) / (1 + z**2) ** 2
    correction = 1 + p / m * np.var(slope) / np.mean(slope) ** 2
    spent = np.sum((weight * residuals) ** 2) / (m - p)
    variance = correction**2 * spent / np.mean(slope) ** 2
    supported = J * np.sqrt(weight / weight.mean())[:, None]
    norm = np.maximum(np.linalg.norm(supported, axis=0), TINY)
    _, singular, basis = np.linalg.svd(supported / norm, full_matrices=False)
    if singular[-1] < 1e-9:
        return np.full(p, math.inf)  # sizes so much alike that they tell nothing
    spread = np.sum((basis.T / singular) ** 2, axis=1) / norm**2
    return scipy("special").stdtrit(m - p, (1 + LEVEL) / 2) * np.sqrt(
        variance * spread
    )


def _determined(most: Array, low: Array, high: Array, scatter: float) -> None:
    """Refuse unknowns that could as well be 0. most: of any sample's time, the share that one unit of each is."""
    for j, (name, cure) in enumerate((("alpha", "shorter"), ("1/beta", "longer"))):
        measured_as_0 = math.isfinite(high[j]) and most[j] * high[j] < 1e-6
        if not (low[j] > 0 or measured_as_0):
            raise ValueError(
                f"samples must determine {name}, but its {LEVEL:.0%} interval goes from 0 to {high[j]:.3g}, "
                f"lost in a scatter of {scatter:.1%}: measure {cure} vectors too"
            )
