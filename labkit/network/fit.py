"""Alpha and beta from a stopwatch: fit a link to measured times of known algorithms.

Every closed form is linear in (alpha, 1/beta) (``labkit.network.linear``), so a time measured for K workers and n bytes is

    seconds = (messages * alpha + nbytes / beta + handled * o) * noise,

where messages and bytes are those that the form counts one after the other. Times span decades and their scatter is
relative, so the fit is one of logarithms, and robust (Huber and Ronchetti, Robust Statistics, 2nd edition, 2009, chapter 7):
scipy's least squares with the loss arctan(z), z = (residual / far)^2, which is quadratic for what scatters and flat for what
is far out. What disturbs a time mostly makes it longer; a loss that went on growing would be pulled that way.
The intervals are from the Jacobian, not from resampling: they describe the scatter of independent samples, and nothing of
what the model leaves out.

Symbols: ``alpha``, ``beta`` of the link; o ``overhead_s``, seconds of CPU for a message that a rank handles; theta the
unknown ones among (alpha, 1/beta, o); m samples, p unknowns.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from labkit.checks import integer, number
from labkit.extras import scipy
from labkit.network.linear import Form, evaluate, name, terms
from labkit.network.link import Link

Array = NDArray[np.float64]
NAMES = ("alpha", "1/beta", "o")
#: Residuals of as many scatters hardly count.
FAR = 2.0
#: Chance of an unjustified doubt.
LEVEL = 0.05
#: Below this, relatively, all scatter is rounding.
ROUNDING = 1e-12
_CURES = {
    "alpha": "measure shorter vectors too, or give alpha",
    "1/beta": "measure longer vectors too, or give beta",
    "o": "leave handled out",
}


@dataclass(frozen=True)
class Sample:
    """One measured time.

    form: what ran, such as ``ring``, or its closed form.
    K: workers, >= 2. nbytes: bytes of the vector, >= 0. seconds: what it took, > 0.
    handled: messages that the busiest rank sends or receives, each costing it o seconds; 0: no such cost to be fitted.
    Raises ValueError for anything else.
    """

    form: Form
    K: int
    nbytes: float
    seconds: float
    handled: float = 0.0

    def __post_init__(self) -> None:
        if not callable(getattr(self.form, "time", self.form)):
            raise ValueError(f"form must be a collective such as ring, or a closed form, got {self.form!r}")
        integer("K", self.K, least=2)
        number("nbytes", self.nbytes, least=0)
        number("handled", self.handled, least=0)
        number("seconds", self.seconds, above=0)


@dataclass(frozen=True, eq=False)
class Fit:
    """A link fitted to samples.

    link: the fitted ``Link``; overhead_s: the fitted o, 0 if no sample has any.
    alpha_interval, beta_interval, overhead_interval: each holds the true value with probability ``level``, if the samples
    are independent and the model holds. What was given is its own interval.
    residuals: (m,) log(measured / predicted), so 0.05 is a sample 5 % slower than predicted.
    scatter: their standard deviation, estimated so that a few far ones do not matter; ``outliers``: which are further
    from 0 than four times that.
    """

    link: Link
    overhead_s: float
    alpha_interval: tuple[float, float]
    beta_interval: tuple[float, float]
    overhead_interval: tuple[float, float]
    level: float
    samples: tuple[Sample, ...]
    residuals: Array
    scatter: float

    @property
    def doubt(self) -> str:
        """What speaks against the model, in words; empty where nothing does (and, wrongly, in at most 1 of 20 fits).

        Residuals that follow the size, or that rise or fall with K for the longest vectors.
        """
        where = np.array([(s.K, s.nbytes) for s in self.samples])
        order = np.lexsort(where.T[::-1])
        (Ks, first), said = np.unique(where[order, 0], return_index=True), []
        groups, sizes = (np.split(x[order], first[1:]) for x in (self.residuals, where[:, 1]))
        p = order_p(groups)
        if p < LEVEL / 2 and np.quantile(np.abs(self.residuals), 0.9) > 0.1:
            said.append(f"residuals follow the size (p = {p:.1g}): the times are no straight line")
        ends = np.array([np.median(r[n == n.max()]) for r, n in zip(groups, sizes, strict=True)])
        slope, p = trend_p(np.log(Ks), ends)
        if p < LEVEL / 2 and np.ptp(ends) > 0.15:
            what = "bandwidth falls with K, as by contention" if slope > 0 else "bandwidth rises with K"
            few, many = (f"{math.exp(ends[i]):.2g} times with K = {Ks[i]:.0f}" for i in (0, -1))
            said.append(f"{what}: of what is predicted the longest vectors take {few}, {many} (p = {p:.1g})")
        return "lack of fit: " + "; ".join(said) if said else ""

    @property
    def outliers(self) -> tuple[Sample, ...]:
        """The samples that the model does not explain; they are in the fit, but hardly count."""
        far = np.abs(self.residuals) > max(4 * self.scatter, 1e-9)
        return tuple(s for s, is_far in zip(self.samples, far, strict=True) if is_far)

    def predict(self, form: Form, K: int, nbytes: float, handled: float = 0.0) -> float:
        """Seconds of any algorithm on the fitted link, measured before or not. It warns far beyond the sizes fitted."""
        largest = max(s.nbytes for s in self.samples)
        if nbytes > 10 * largest:
            said = f"{nbytes:.3g} bytes are {nbytes / largest:.3g} times the largest size fitted"
            warnings.warn(f"{said}, {largest:.3g}: no time measured speaks for this prediction", stacklevel=2)
        return evaluate(form, K, nbytes, self.link) + handled * self.overhead_s

    def __str__(self) -> str:
        (a, b), (c, d), (e, f) = self.alpha_interval, self.beta_interval, self.overhead_interval
        text = f"alpha = {self.link.alpha * 1e6:.4g} µs ({a * 1e6:.4g} to {b * 1e6:.4g}), "
        text += f"beta = {self.link.beta / 1e9:.4g} GB/s ({c / 1e9:.4g} to {d / 1e9:.4g})"
        if self.overhead_s or f:
            text += f", o = {self.overhead_s * 1e6:.4g} µs ({e * 1e6:.4g} to {f * 1e6:.4g})"
        text += f"; {self.level:.0%} intervals, {len(self.samples)} samples, scatter {self.scatter:.1%}"
        return f"{text}; {self.doubt}" if self.doubt else text


def fit(
    samples: Iterable[Sample],
    *,
    alpha: float | None = None,
    beta: float | None = None,
    level: float = 0.95,
) -> Fit:
    """The link that explains ``samples`` best, and o too if any sample has ``handled`` messages.

    samples: at least one more than there are unknowns; of one algorithm or of several, for one K or several.
    alpha, beta: given where it is known (``alpha=0.0``, ``beta=math.inf``) or these samples can't tell; else fitted.
    level: of the intervals, between 0 and 1.
    Returns a ``Fit``. ValueError, in one sentence, for samples that don't determine what is asked: too few, too much alike,
    or so short (or so long) that beta (or alpha) is lost in the scatter.
    """
    samples = tuple(samples)
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.95, got {level!r}")
    known = _known(alpha, beta, any(s.handled for s in samples))
    unknown = np.isnan(known)
    names = _asked(unknown, alpha, beta, samples)
    counts = [terms(s.form, s.K, s.nbytes) for s in samples]
    table = np.array([[c.messages, c.nbytes, s.handled] for c, s in zip(counts, samples, strict=True)])
    rest = np.array([c.seconds for c in counts]) + table[:, ~unknown] @ known[~unknown]
    seconds = np.array([s.seconds for s in samples], dtype=np.float64)
    X = table[:, unknown]
    _distinguishable(X / seconds[:, None], names, samples)

    theta, scatter = _estimate(X, rest, seconds)
    predicted = _total(theta, X, rest)
    residuals = np.log(seconds / predicted)
    half = _half_widths(X / predicted[:, None], residuals, scatter, level)
    low, high = np.maximum(theta - half, 0.0), theta + half
    _determined((X * high / predicted[:, None]).max(axis=0), low, high, names, level, scatter)

    found = np.stack([known] * 3)  # the estimates, and the ends of their intervals
    found[:, unknown] = theta, low, high
    (a, a_low, a_high), (b, b_low, b_high), (o, o_low, o_high) = found.T.tolist()
    link, beta_interval = Link(a, _inverse(b)), (_inverse(b_high), _inverse(b_low))
    return Fit(
        link, o, (a_low, a_high), beta_interval, (o_low, o_high), level, samples, residuals, scatter
    )  # fmt: skip


# -- lack of fit -------------------------------------------------------------------------------------------


def order_p(groups: Iterable[Array]) -> float:
    """P value of residuals that are alike next to each other, each group in order: small where they are no chance.

    By the rank version of von Neumann's ratio (Bartels 1982): about 2 for chance, less for residuals with a course; the
    normal scores of groups of at least 6 are added up.
    """
    scores = []
    for group in groups:
        if (m := len(group)) >= 6 and np.ptp(group) > 1e-9:
            rank = np.argsort(np.argsort(group, kind="stable"))
            ratio = np.sum(np.diff(rank) ** 2) / np.sum((rank - rank.mean()) ** 2)
            variance = 4 * (m - 2) * (5 * m**2 - 2 * m - 9) / (5 * m * (m + 1) * (m - 1) ** 2)
            scores.append((ratio - 2) / math.sqrt(variance))
    return 0.5 * math.erfc(-sum(scores) / math.sqrt(2 * len(scores))) if scores else 1.0


def trend_p(x: Array, y: Array) -> tuple[float, float]:
    """Slope of y over x by least squares, and the p value (two-sided, Student's t) of there being none; 0, 1 for m < 3."""
    ok = np.isfinite(x) & np.isfinite(y)
    if (m := int(ok.sum())) < 3 or np.ptp(x[ok]) == 0:
        return 0.0, 1.0
    x, y = x[ok] - x[ok].mean(), y[ok] - y[ok].mean()
    slope = float(x @ y / (x @ x))
    error = math.sqrt(max(float(np.sum((y - slope * x) ** 2)), 1e-20) / (m - 2) / float(x @ x))
    return slope, float(2 * scipy("special").stdtr(m - 2, -abs(slope) / error))


# -- the estimate: log seconds = log(rest + X theta) + residual, with theta >= 0 --------------------------


def _estimate(X: Array, rest: Array, seconds: Array) -> tuple[Array, float]:
    """theta (p,) >= 0 with log(rest + X theta) close to log seconds for most samples, and the scatter of those."""
    optimize = scipy("optimize")
    scale = (X / seconds[:, None]).max(axis=0)  # of each column, so that the unknowns are of one size
    X = X / scale
    p = X.shape[1]

    def residuals(theta: Array) -> Array:
        return np.log(_total(theta, X, rest) / seconds)

    def jacobian(theta: Array) -> Array:
        return X / _total(theta, X, rest)[:, None]

    theta = _start(X / seconds[:, None], 1 - rest / seconds)
    scatter = _scatter(residuals(theta), p)
    for _ in range(20):  # the scatter says which residuals are far, and the others what the scatter is
        found = optimize.least_squares(
            residuals, np.maximum(theta, 1e-9), jacobian, bounds=(0, np.inf), loss="arctan", f_scale=FAR * scatter,
            ftol=1e-15, xtol=1e-15, gtol=1e-15,
        )  # fmt: skip
        theta, before = found.x, scatter
        scatter = _scatter(residuals(theta), p)
        if abs(scatter - before) <= 1e-3 * before:
            break
    return theta / scale, scatter


def _start(X: Array, y: Array) -> Array:
    """Of all theta that pass through p of the samples X theta = y, the one with the least median distance to the samples.

    Up to half of the samples cannot mislead it (Rousseeuw 1984). Of many samples it tries some subsets, always the same.
    """
    m, p = X.shape
    every = (
        list(combinations(range(m), p)) if m <= 16 else np.random.default_rng(m).integers(m, size=(500, p))
    )
    subsets = np.asarray(every)
    theta = np.maximum(np.einsum("spq,sq->sp", np.linalg.pinv(X[subsets]), y[subsets]), 0.0)
    distance = np.sort(np.abs(X @ theta.T - y[:, None]), axis=0)
    return np.asarray(theta[np.argmin(distance[(m + p) // 2])])


def _total(theta: Array, X: Array, rest: Array) -> Array:
    """The predicted seconds (m,), kept from 0 so that they have a logarithm."""
    return np.maximum(rest + X @ theta, 1e-300)


def _scatter(residuals: Array, p: int) -> float:
    """Standard deviation from the median distance to 0, without the p smallest: p residuals can be made to vanish.

    0.6745: the median distance of a normal variable; 1 + 5 / (m - p): for few samples (Rousseeuw and Leroy 1987).
    """
    distance = np.sort(np.abs(residuals))
    few = 1 + 5 / (len(distance) - p)
    return max(float(np.median(distance[p:])) / 0.6745 * few, ROUNDING)


def _half_widths(J: Array, residuals: Array, scatter: float, level: float) -> Array:
    """Half of each unknown's interval, (p,): Student's t times the standard error.

    J (m, p): the derivatives of log predicted. The standard error is Huber's for an M-estimator, with his correction for
    few samples (section 7.6), each sample supporting an unknown by its weight only. Infinite where nothing does.
    """
    m, p = J.shape
    z = (residuals / (FAR * scatter)) ** 2
    weight, slope = 1 / (1 + z**2), (1 - 3 * z**2) / (1 + z**2) ** 2
    correction = 1 + p / m * np.var(slope) / np.mean(slope) ** 2
    variance = correction**2 * np.sum((weight * residuals) ** 2) / (m - p) / np.mean(slope) ** 2
    supported = J * np.sqrt(weight / weight.mean())[:, None]
    norm = np.maximum(np.linalg.norm(supported, axis=0), np.finfo(float).tiny)
    _, singular, basis = np.linalg.svd(supported / norm, full_matrices=False)
    spread = np.sum((basis.T / np.maximum(singular, 1e-9)) ** 2, axis=1) / norm**2
    return scipy("special").stdtrit(m - p, (1 + level) / 2) * np.sqrt(variance * spread)


# -- at the door ----------------------------------------------------------------------------------------


def _known(alpha: float | None, beta: float | None, any_handled: bool) -> Array:
    """(alpha, 1/beta, o), nan where unknown."""
    # Link refuses what is no link
    link = Link(0.0 if alpha is None else alpha, math.inf if beta is None else beta)
    return np.array(
        [
            math.nan if alpha is None else link.alpha,
            math.nan if beta is None else 1 / link.beta,
            math.nan if any_handled else 0.0,
        ]
    )


def _asked(
    unknown: NDArray[np.bool_], alpha: float | None, beta: float | None, samples: tuple[Sample, ...]
) -> list[str]:
    """The names of the unknowns, of which there must be some, and more samples."""
    names = [name for name, is_unknown in zip(NAMES, unknown, strict=True) if is_unknown]
    if not names:
        raise ValueError(f"alpha or beta must be left to fit, got alpha = {alpha!r}, beta = {beta!r}")
    if len(samples) <= len(names):
        raise ValueError(f"samples must be more than the unknowns ({', '.join(names)}), got {len(samples)}")
    return names


def _distinguishable(rows: Array, names: list[str], samples: tuple[Sample, ...]) -> None:
    """Refuse samples that would have the same times for many values of the unknowns."""
    for column, n in zip(rows.T, names, strict=True):
        if not column.any():
            raise ValueError(f"samples must tell {n}, but none of them has any part that depends on it")
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    rows = rows / np.linalg.norm(rows, axis=0)
    if np.linalg.svd(rows, compute_uv=False)[-1] < 1e-9:
        kinds = sorted({f"{name(s.form)}, K = {s.K}, {s.nbytes:g} bytes" for s in samples})
        raise ValueError(
            f"samples must tell {' from '.join(names)}, but these are too much alike "
            f"({'; '.join(kinds[:3])}{'; ...' if len(kinds) > 3 else ''}): {_CURES[names[-1]]}"
        )


def _determined(
    share: Array, low: Array, high: Array, names: list[str], level: float, scatter: float
) -> None:
    """Refuse unknowns that could as well be 0. share: the most of any sample's time that each could be."""
    for j, n in enumerate(names):
        if not low[j] > 0 and not share[j] < 1e-6:  # less than that is 0, and measured so
            raise ValueError(
                f"samples must determine {n}, but its {level:.0%} interval goes from 0 to {high[j]:.3g} s"
                f"{' per byte' if n == '1/beta' else ''}, lost in a scatter of {scatter:.1%}: {_CURES[n]}"
            )


def _inverse(value: float) -> float:
    return 1 / float(value) if value > 0 else math.inf
