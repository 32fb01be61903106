"""Models of a measured all-reduce held beside each other, chosen by what each misses on sizes that it was not shown.

    alpha-beta         2 (K-1) alpha + 2 (K-1)/K n / beta, the ring's (Hockney 1994); for one K any algorithm's
    two regimes        the same with two links, one up to a size and one beyond: a switch of protocol
    latency by hosts   a + c g(K) + 2 (K-1)/K n / beta, g one of log2 K, K - 1 and H - 1
    contention         a + c log2 K + 2 (K-1)/K n H^gamma / beta: bandwidth falls with the number of hosts
    interpolation      of log seconds in log n, by monotone cubics (Fritsch and Carlson 1980), and linear in log K

Every model is learnt as often as there are sizes (and K), each time without one of them, and asked for that one: the errors
it is judged by, and from which a prediction's interval comes (the jackknife's quantile: it covers a further size's time with
the level stated, if that is as far from its neighbours as those left out were). Parameters are fitted to relative errors,
none below 0. Beside it stands a verdict on alpha-beta: whether its residuals follow the size, whether bandwidth falls or
latency grows with the hosts otherwise than it says.

Symbols: K ranks on H hosts; n bytes of the vector; alpha, beta of the link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labkit.checks import FloatArray, integer, number
from labkit.extras import scipy
from labkit.network.fit import order_p, trend_p
from labkit_book.planner.sweep import Sweep

#: Relative errors: held out at a size's neighbours beyond which its prediction is refused, and median of a sweep's.
WORST, USUAL = 0.2, 0.12
#: A deviation that matters, relatively; times the largest size, how far beyond it a prediction goes.
MATTERS, BEYOND = 0.15, 4.0
#: In order; of equals the first is chosen.
MODELS = ("alpha-beta", "two regimes", "latency by hosts", "contention", "interpolation")
_Model = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Prediction:
    """Seconds, and an interval [low, high] that holds the measured time with probability ``level``.

    doubt: why nothing measured speaks for the prediction, where so; then the interval is [0, inf].
    """

    seconds: float
    low: float
    high: float
    level: float
    doubt: str = ""


@dataclass(frozen=True)
class Curve:
    """What a sweep says of other sizes and K. sweep: at least four points, else ValueError. level: of the intervals."""

    sweep: Sweep
    level: float = 0.9

    def __post_init__(self) -> None:
        number("level", self.level, above=0, most=1 - 1e-9)
        if len(self._rows) < 4:
            raise ValueError(f"sweep must have at least four different sizes or K, got {len(self._rows)}")

    # -- what it says ---------------------------------------------------------------------------------------
    def predict(self, K: int, nbytes: float) -> Prediction:
        """The all-reduce of ``nbytes`` bytes (> 0) by K >= 2 ranks, measured or not."""
        K, nbytes = integer("K", K, least=2), number("nbytes", nbytes, above=0)
        held = "size" if K in self.sweep.Ks else "K"
        name = self._chosen[held]
        seconds = float(self._models[name](K, nbytes))
        if doubt := self._doubt(K, nbytes):
            return Prediction(seconds, 0.0, math.inf, self.level, doubt)
        known = np.sort(_known(self._errors[held][name]))
        rank = min(math.ceil(self.level * (len(known) + 1)), len(known))
        width = math.exp(known[rank - 1])
        return Prediction(seconds, seconds / width, seconds * width, min(self.level, rank / (len(known) + 1)))

    def error(self, model: str | None = None, held: str = "size") -> tuple[float, float]:
        """Median and worst relative error of a model (None: the chosen) on "size" or "K" held out; nan if none was."""
        known = np.expm1(_known(self._errors[held][model or self._chosen[held]]))
        return (float(np.median(known)), float(known.max())) if len(known) else (math.nan, math.nan)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that there are points enough for."""
        return tuple(name for name in MODELS if next(_designs(name, self._rows), None))

    def shortest(self, K: int) -> float:
        """The smallest size measured, in bytes, with K ranks or any."""
        return float(min(n for k, n in self._rows[:, [0, 2]] if K not in self.sweep.Ks or k == K))

    @property
    def bandwidth(self) -> float:
        """Bytes per second that the longest vector of the largest K got of a ring's links: 2 (K-1)/K n over its seconds."""
        K, _, n, seconds = self._rows[-1]
        return float(_volume(K, n) / seconds)

    @property
    def model(self) -> str:
        """The model with the least mean error on sizes held out."""
        return self._chosen["size"]

    @property
    def model_between(self) -> str:
        """The model with the least mean error on K held out, for a K that was not measured; else as ``model``."""
        return self._chosen["K"]

    @cached_property
    def found(self) -> Mapping[str, str]:
        """What is wrong with alpha-beta here, a sentence by name; each of three tests speaks falsely in 1 of 60 sweeps."""
        return dict(self._found())

    @property
    def verdict(self) -> str:
        """The sentences of ``found``, or that alpha-beta is not contradicted; and which model is used for what it misses."""
        median, worst = self.error()
        said = " ".join(self.found.values()) or "Alpha-beta is not contradicted by these times."
        used = f" Used: {self.model}, held-out error {median:.0%} (median), {worst:.0%} (worst)."
        return said + (used if median >= 0 else "")

    # -- held-out errors ------------------------------------------------------------------------------------
    @cached_property
    def _rows(self) -> FloatArray:
        """(m, 4): K, H, n and the median of its seconds, rising."""
        hosts = dict(self.sweep.hosts)
        times: dict[tuple[int, float], list[float]] = {}
        for K, n, s in self.sweep.points:
            times.setdefault((K, n), []).append(s)
        every = [(K, hosts.get(K, K), n, float(np.median(s))) for (K, n), s in sorted(times.items()) if n > 0]
        return np.array(every, dtype=np.float64).reshape(-1, 4)

    @cached_property
    def _errors(self) -> dict[str, dict[str, FloatArray]]:
        """Of every model with a "size", a "K" held out; beyond the least and the largest K nothing is promised."""
        K, _, n, _ = self._rows.T
        inner = np.where((K[0] == K) | (K[-1] == K), math.nan, K)
        of_size = self._held_out(n)
        return {"size": of_size, "K": of_size if np.isnan(inner).all() else self._held_out(inner)}

    @cached_property
    def _chosen(self) -> dict[str, str]:
        """The model with the least mean error, by what was held out."""

        def miss(errors: FloatArray) -> float:
            return float(known.mean()) if len(known := _known(errors)) else math.inf

        return {held: min(each, key=lambda name: miss(each[name])) for held, each in self._errors.items()}

    def _held_out(self, key: FloatArray) -> dict[str, FloatArray]:
        """log(measured / predicted) of every row, each predicted without all rows of its key; nan where impossible."""
        rows = self._rows
        out = {name: np.full(len(rows), math.nan) for name in self.models}
        for value in np.unique(key[np.isfinite(key)]):
            left = key == value
            for name, errors in out.items():
                if len(rest := rows[~left]) >= 3:
                    seconds = self._learn(name, rest)(rows[left, 0], rows[left, 2])
                    errors[left] = np.log(rows[left, 3] / seconds)
        return out

    @cached_property
    def _models(self) -> dict[str, _Model]:
        return {name: self._learn(name, self._rows) for name in self.models}

    def _learn(self, name: str, rows: FloatArray) -> _Model:
        if name == "interpolation":
            return _between(rows)
        Ks, hosts = self._rows[:, :2].T
        best: tuple[float, Any, Any] = (math.inf, None, None)
        for columns in [*_designs(name, rows)] or _designs("alpha-beta", rows):
            theta, left = _nonnegative(columns(*rows[:, :3].T), rows[:, 3])
            best = min(best, (left, theta, columns), key=lambda each: each[0])
        _, theta, columns = best

        def seconds(K: Any, n: Any) -> Any:
            K, n = np.broadcast_arrays(np.asarray(K, dtype=float), n)
            X = columns(K, np.interp(K, Ks, hosts), n)
            return np.maximum(sum(t * x for t, x in zip(theta, X, strict=True)), 1e-12)

        return seconds

    # -- what is refused --------------------------------------------------------------------------------------
    def _doubt(self, K: int, nbytes: float) -> str:
        """Why nothing measured speaks for a prediction, or nothing."""
        Ks = self.sweep.Ks
        if not Ks[0] <= K <= Ks[-1]:
            return f"K = {K} is beyond what was measured, {' to '.join(map(str, sorted({Ks[0], Ks[-1]})))}."
        if K not in Ks:
            if len(Ks) < 3:
                return f"K = {K} lies between {Ks[0]} and {Ks[1]}, and no K between was measured to hold it against."
            if self.error(held="K")[0] > WORST:
                return f"K = {K} was not measured, and K left out are missed by {self.error(held='K')[0]:.0%} (median)."
            i = int(np.searchsorted(Ks, K))
            return self._doubt(Ks[i - 1], nbytes) or self._doubt(Ks[i], nbytes)
        mine = self._rows[:, 0] == K
        (n, s), miss = self._rows[mine, 2:].T, np.expm1(np.abs(self._errors["size"][self.model][mine]))
        if len(n) < 4:
            return f"only {len(n)} sizes were measured with K = {K}."
        steep = np.diff(np.log(s)) / np.diff(np.log(n))
        if nbytes > n[-1] and (nbytes > BEYOND * n[-1] or steep[-1] < 0.5 or miss[-1] > WORST):
            return f"{nbytes:.3g} bytes: {nbytes / n[-1]:.3g} times the largest size measured, {n[-1]:.3g}."
        if nbytes < n[0] and steep[0] > 0.1:
            return f"{nbytes:.3g} bytes are below the smallest size measured, {n[0]:.3g}, where time still falls."
        inner = miss[1:-1]
        if np.mean(inner > 0.3) > 0.2 or np.median(inner) > USUAL:
            return f"sizes left out with K = {K} are missed by {np.median(inner):.0%} (median), {inner.max():.0%} (worst)."
        if n[0] < nbytes < n[-1] and nbytes not in n:
            i = int(np.searchsorted(n, nbytes))
            near = max(miss[j] for j in (i - 1, i) if 0 < j < len(n) - 1)
            if near > WORST or s[i - 1] > 1.3 * s[i] or s[i] > 1.3 * s[i - 1] * n[i] / n[i - 1]:
                return f"times jump near {nbytes:.3g} bytes: there a size left out is missed by {near:.0%}."
        return ""

    def _found(self) -> Iterator[tuple[str, str]]:
        level, by_K = 0.05 / 3, []
        for K in self.sweep.Ks:  # alpha and beta of each by itself
            _, hosts, n, seconds = self._rows[self._rows[:, 0] == K].T
            volume, left = _volume(K, n), np.zeros(0)
            short, per_byte = math.nan, seconds[-1] / volume[-1]
            if len(n) >= 3:
                (a, per_byte), _ = _nonnegative([np.ones(len(n)), volume], seconds)
                left = np.log(seconds / (a + per_byte * volume))
                short = max(seconds[0] - per_byte * volume[0], 0.1 * seconds[0])
            by_K.append((K, hosts[0], 1 / max(per_byte, 1e-300), short, left))
        p = order_p([left for *_, left in by_K])
        most = max((float(np.abs(left).max(initial=0)) for *_, left in by_K), default=0.0)
        if p < level and most > MATTERS:
            name = "not straight"
            why = f"alpha-beta's residuals follow the size (p = {p:.1g}), up to {math.expm1(most):.0%}"
            two, one = (self.error(each)[0] if each in self.models else 1 for each in MODELS[1::-1])
            if two < 0.8 * one:
                name, why = MODELS[1], f"{why}; two lines miss sizes left out by {two:.0%}, one by {one:.0%}"
            yield name, f"{name.capitalize()}: {why}."
        Ks, H, beta, latency = (np.array(each, dtype=float) for each in list(zip(*by_K, strict=True))[:4])
        slope, p = trend_p(np.log(H), np.log(beta))
        if slope < 0 and p < 2 * level and -math.expm1(slope * np.ptp(np.log(H))) > MATTERS:
            fall = f"{beta[0] / 1e9:.3g} GB/s on {H[0]:.0f} to {beta[-1] / 1e9:.3g} GB/s on {H[-1]:.0f} hosts"
            said = f"Contention: bandwidth falls from {fall}, as hosts^{slope:.2f} (p = {p:.1g})."
            yield "contention", said
        slope, p = trend_p(np.log(Ks - 1), np.log(latency / (Ks - 1)))
        if p < level and abs(slope) > 0.2:
            way = f"as K^{1 + slope:.2f}, {'like log2 K' if slope < 0 else 'more than K'}, where a ring's is K - 1"
            grows = f"{1e6 * latency[0]:.3g} us with K = {Ks[0]:.0f}, {1e6 * latency[-1]:.3g} us with {Ks[-1]:.0f}"
            yield "latency by hosts", f"Latency grows with hosts: {grows}, {way} (p = {p:.1g})."


# -- the models: functions (K, H, n) -> columns, of which seconds are a sum with weights >= 0 -------------------------


def _known(errors: FloatArray) -> FloatArray:
    """Without what could not be held out, and without sign."""
    return np.abs(errors[np.isfinite(errors)])


def _volume(K: Any, n: Any) -> Any:
    return 2 * (K - 1) / K * n


def _nonnegative(columns: Any, seconds: FloatArray) -> tuple[FloatArray, float]:
    """The weights >= 0 of the columns with the least squares of relative errors, and what those leave."""
    X = np.stack(columns, axis=1) / seconds[:, None]
    size = np.maximum(np.linalg.norm(X, axis=0), 1e-300)
    theta, left = scipy("optimize").nnls(X / size, np.ones(len(X)))
    return theta / size, float(left)


def _designs(name: str, rows: FloatArray) -> Iterator[Any]:
    """What is tried for a model; nothing, where the rows are too few for it."""
    sizes = np.unique(rows[:, 2])[1:-2]
    if name == "alpha-beta" or (name == "interpolation" and len(rows) >= 4):
        yield lambda K, H, n: [2 * (K - 1), _volume(K, n)]
    elif name == "two regimes" and len(sizes) >= 2:
        for last in sizes[:: max(1, len(sizes) // 15)]:
            yield lambda K, H, n, last=last: [
                x * side for side in (n <= last, n > last) for x in (2 * (K - 1), _volume(K, n))
            ]
    elif name == "latency by hosts" and len(np.unique(rows[:, 0])) >= 3:
        for grows in (lambda K, H: np.log2(K), lambda K, H: K - 1, lambda K, H: H - 1):
            yield lambda K, H, n, g=grows: [np.ones_like(K), g(K, H), _volume(K, n)]
    elif name == "contention" and len(np.unique(rows[:, 1])) >= 3:
        for gamma in np.arange(0.05, 1.51, 0.1):
            yield lambda K, H, n, g=gamma: [np.ones_like(K), np.log2(K), _volume(K, n) * H**g]


def _between(rows: FloatArray) -> _Model:
    """Interpolation. Below the smallest size constant, beyond the largest with the last slope in n; beyond K as a ring."""
    Ks = np.unique(rows[:, 0])
    curves = {K: _in_size(*rows[rows[:, 0] == K, 2:].T) for K in Ks}

    def one(K: float, n: float) -> float:
        i = int(np.clip(np.searchsorted(Ks, K), 0, len(Ks) - 1))
        if Ks[i] == K or not Ks[0] < K < Ks[-1]:
            return curves[Ks[i]](n) * (1 if Ks[i] == K else _volume(K, 1) / _volume(Ks[i], 1))
        part = math.log(K / Ks[i - 1]) / math.log(Ks[i] / Ks[i - 1])
        return float(curves[Ks[i - 1]](n) ** (1 - part) * curves[Ks[i]](n) ** part)

    return np.vectorize(one, otypes=[float])


def _in_size(n: FloatArray, s: FloatArray) -> Callable[[float], float]:
    slope = max(0.0, (s[-1] - s[-2]) / (n[-1] - n[-2])) if len(n) > 1 else s[0] / n[0]
    cubic = scipy("interpolate").PchipInterpolator(np.log(n), np.log(s)) if len(n) > 1 else None

    def seconds(x: float) -> float:
        if x >= n[-1] or cubic is None:
            return float(max(s[-1] + slope * (x - n[-1]), 1e-12))
        return float(s[0] if x <= n[0] else math.exp(cubic(math.log(x))))

    return seconds
