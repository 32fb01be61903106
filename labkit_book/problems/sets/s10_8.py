"""Problem set 10.8: large batches.

Sources: Goyal et al. 2017, sections 2 and 3; McCandlish et al. 2018, section 2.4. Symbols: K workers, b examples each,
B = K b, ``eta`` the learning rate, m the momentum, v a velocity, S steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit.learn.critical import fit_hyperbola
from labkit_book.problems.exercise import Case, Exercise, Wrong, once, same_array
from labkit_book.problems.sets import Array, as_if, each_rank, follow, pasted, slips, steps

# -- 1: a sharpness below zero -----------------------------------------------------------------------------------------


def _start(rng: np.random.Generator) -> Iterator[Case]:
    for low, high, more in ((-9.0, 4.0, -3), (-0.5, 30.0, 3), (-40.0, 25.0, -3), (-6.0, 2.0, 3)):
        d, m, most = 7, float(rng.choice([0.0, 0.5, 0.9])), int(rng.integers(8, 60))
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        H = (Q * np.r_[low, high, rng.uniform(-0.3, 0.6, d - 2) * min(-low, high)]) @ Q.T
        cubic, w = rng.uniform(0.1, 0.4, d), rng.standard_normal(d)

        def grad(w: Array, H: Array = H, cubic: Array = cubic) -> Array:
            return H @ np.asarray(w) + cubic * np.asarray(w) ** 3 / 3

        there = H + np.diag(cubic * w**2)
        values = np.linalg.eigvalsh(there)
        g = grad(w)
        eta = 2 * (1 + m) / (values[-1] * (most + 0.5))  # half way between two K, so that no digit decides
        K = most + more

        def said(sharp: float, m: float = m, eta: float = eta, K: int = K) -> dict[str, Any]:
            most = math.floor(2 * (1 + m) / (eta * sharp))
            return {"sharpness": sharp, "workers": most, "warm_up": int(most < K)}

        right = said(float(values[-1]))
        # The whole dict must be the mistake's: a small number alone can be that of another one, by chance.
        mistakes = as_if(
            lambda wanted, answer: steps(wanted, 1e-3)(answer),
            ("This finds the curvature that is largest in size. Downhill bends set no ceiling.", said(float(values[0]))),
            ("A bend downwards, with its sign taken off, is no sharpness.", said(float(-values[0]))),
            ("That is the curvature along the gradient: no step needs to point the sharpest way.",
             said(float(g @ there @ g / (g @ g)))),
            ("Off by one: with so many workers the rate is above the ceiling.", right | {"workers": most + 1}),
            ("The start is held against the ceiling of one worker's rate.", right | {"warm_up": 0}),
            ("This start is below its ceiling, and is to warm up all the same.", right | {"warm_up": 1}),
        )  # fmt: skip
        fewer = said(right["sharpness"], 0.0)["workers"]
        mistakes += slips(right, ("The ceiling is that of steps without momentum.", "workers", fewer))
        label = f"eta = {eta:.4f}, m = {m}, K = {K}"
        yield Case((grad, w, eta, m, K), steps(right, 1e-3), label=label, mistakes=mistakes)


# -- 2: a large batch, from its first step -----------------------------------------------------------------------------


def _large(rng: np.random.Generator) -> Iterator[Case]:
    for K in (1, 2, 3, 5):
        T, d = 6, int(rng.integers(4, 8))
        eta, m, decay = (float(x) for x in rng.uniform((0.01, 0.5, 0.05), (0.05, 0.9, 0.3)))
        each = np.tile(np.arange(1, K + 1)[:, None], T) * 5 + rng.integers(1, 9, T)
        counts = rng.permuted(each, axis=0)  # (K, T), no two workers alike in a step
        sums, w = rng.standard_normal((K, T, d)) * counts[..., None], rng.standard_normal(d)
        warm = 0 if K == 2 else int(counts[:, :4].sum() - rng.integers(1, 4))

        job = (sums, counts, w, eta, warm, m, decay)
        right = _warmed(*job)
        wrong = {
            "The warm-up counts one worker's examples, and so lasts too long.": _warmed(*job, seen="own"),
            "The warm-up is a step ahead: it counts the examples of the step being taken.": _warmed(*job, seen="early"),
            "The velocity holds an old rate when the rate changes.": _warmed(*job, f=0),
            "The velocity is corrected the wrong way round.": _warmed(*job, f=-1),
            "Every worker decays the weights, and all that is added up.": _warmed(*job[:-1], decay * K),
        }  # fmt: skip
        known = [(text, x) for text, x in wrong.items() if not np.allclose(x, right, rtol=1e-7)]
        # by rank 0 alone: with some of them the workers part
        mistakes = as_if(lambda x, run: same_array(run.results[0], x, rtol=1e-7), *known)
        args = tuple((sums[k], counts[k], w.copy(), *job[3:]) for k in range(K))
        world = "processes" if K == 2 else "simulated"
        label = f"K = {K}, a warm-up of {warm} examples" + ", in real processes" * (K == 2)
        most, formula = T * 2 * (K - 1) * 8 * -(-(d + 1) // K), "a ring all-reduce of d + 1 numbers a step"
        judge = partial(each_rank, right, most=most, formula=formula, has="its gradients")
        yield Case(args, judge, K, label, world, mistakes=mistakes)


def _warmed(
    sums: Array, counts: Array, w: Array, eta: float, warm: int, m: float, decay: float, seen: str = "", f: int = 1
) -> Array:  # fmt: skip
    (K, T, _), v, last = sums.shape, np.zeros_like(w), 0.0
    for t in range(T):
        before = counts[: 1 if seen == "own" else K, : t + (seen == "early")].sum()
        rate = eta * (1 + (K - 1) * (min(1.0, before / warm) if warm else 1.0))
        g = sums[:, t].sum(axis=0) / counts[:, t].sum()
        v = m * (rate / (last or rate)) ** f * v + rate * (g + decay * w)
        w, last = w - v, rate
    return w


# -- 3: a critical batch, measured -------------------------------------------------------------------------------------

_BATCHES, _HELD = (4, 16, 64, 256), 1024


def _law(B: Any, S: Array) -> Array:
    """S_min and B_crit."""
    try:
        law = fit_hyperbola(B, S)
    except ValueError:
        raise Wrong("These steps do not level off: did the runs reach the target at every batch?") from None
    return np.array([law.S_min, law.B_crit])


def _measured(answer: Any) -> None:
    keys = ("S_min", "B_crit", "low", "high", "predicted", "buys", "held", "worth")
    answer, v = pasted(answer, keys, (*_BATCHES, _HELD), 7)
    S, held = np.array([v[B] for B in _BATCHES]), v[_HELD]
    S_min, B_crit = _law(_BATCHES, np.median(S, axis=1))
    each = np.array([_law(_BATCHES, row)[1] for row in S.T])
    predicted, twice = S_min * (1 + B_crit / _HELD), (1 + each / 64) / (1 + each / 128)
    right = {"S_min": S_min, "B_crit": B_crit, "low": each.min(), "high": each.max(), "predicted": predicted}
    right["buys"] = np.array([twice.min(), twice.max()])
    right["held"] = "yes" if held.min() <= predicted <= held.max() else "no"
    right["worth"] = "yes" if twice.min() > 1.2 else "no" if twice.max() < 1.2 else "not decided"
    level = np.polyfit(1 / np.array(_BATCHES, float), np.median(S, axis=1), 1)[1]
    absolute = "The fit is of steps as they are: the small batches, which need most, then decide alone."
    helped = "The batch that was held back has gone into the fit: what it is to test it has helped to make."
    all_of_them = _law((*_BATCHES, _HELD), np.median(np.vstack([S, held]), axis=1))
    mean = _law(_BATCHES, S.mean(axis=1))[0]
    follow(
        answer, right,
        (helped, "S_min", all_of_them[0]),
        (absolute, "S_min", level),
        ("The middle of the runs is a mean here: one unlucky run moves it.", "S_min", mean),
        ("The fit to the medians is not the middle of seven fits.", "B_crit", np.median(each)),
        ("This leaves out what larger batches than 1024 could still save.", "predicted", S_min),
        ("where does your prediction lie among the seven runs?", "held", ""),
        ("hold both ends of 'buys' against the price of a step.", "worth", ""),
        rtol=1e-3,
    )  # fmt: skip


# -- 4: do large batches generalise worse? -----------------------------------------------------------------------------

_FLAWS = {
    "own half": "The rates are chosen by the very errors that they are judged by.",
    "one rate": "Both batches run at the small one's best rate: a batch is then blamed for a rate that does not suit it.",
    "nan": "A rate at which some runs never arrived is taken: its mean is of the lucky ones.",
    "unpaired": "The interval treats the two batches as strangers, though each seed gave both the same digits.",
    "scatter": "The interval says how far single seeds scatter, not how well their mean is known.",
    "upside": "The share is turned round: that part of the gap stays when both train equally far.",
}


def _weighed(rng: np.random.Generator) -> Iterator[Case]:
    for kind, gap in (("a gap of a tenth", 0.1), ("a gap of one point", 1.0), ("no gap", 0.0)):
        n, seeds = 4, 20
        digits = rng.normal(0, 1.0, seeds)  # some seeds' digits are harder, for every run

        def errors(level: float, best: int, n: int = n, digits: Array = digits) -> tuple[Array, ...]:
            by_rate = level + 0.15 * np.abs(np.arange(n) - best)[:, None]
            return tuple(by_rate + digits + rng.normal(0, 0.5, (n, len(digits))) for _ in "cj")

        epochs = {"small": errors(5.0, 1), "large": errors(14.0, 3)}
        loss = {"small": errors(5.0, 2), "large": errors(5.0 + gap, 1)}
        for half in loss["large"]:  # the rate that looks best: one of its runs never arrived
            half[0], half[0, 3] = half[0] - 0.6, math.nan
        right = _gaps(epochs, loss, 2.093)
        flawed = [(text, _gaps(epochs, loss, 2.093, flaw)) for flaw, text in _FLAWS.items()]
        apart = ("epochs", "loss", "share", "interval")
        mistakes = slips(right, *((text, at, other[at]) for text, other in flawed for at in apart))
        hasty = right | {"shown": 1 if right["loss"] > 0 else -1}
        mistakes += (("The interval holds zero, and the middle decides.", steps(hasty)),)
        yield Case((epochs, loss, 2.093), steps(right), label=kind, mistakes=mistakes)


def _gaps(epochs: dict[str, Any], loss: dict[str, Any], t95: float, flaw: str = "") -> dict[str, Any]:
    def pair(table: dict[str, Any]) -> tuple[Array, Array]:
        rows = {}
        for name, (choose, judge) in table.items():
            by = judge if flaw == "own half" else choose
            mean = np.nanmean(by, axis=1) if flaw == "nan" else by.mean(axis=1)
            rows[name] = int(np.nanargmin(mean))
        if flaw == "one rate":
            rows["large"] = rows["small"]
        return table["small"][1][rows["small"]], table["large"][1][rows["large"]]

    far, (small, large) = np.mean(np.subtract(*pair(epochs)[::-1])), pair(loss)
    there = np.isfinite(large - small)
    gaps = (large - small)[there]
    gap, sd, n = gaps.mean(), gaps.std(ddof=1), len(gaps)
    if flaw == "unpaired":
        sd = math.sqrt(np.var(small, ddof=1) + np.nanvar(large, ddof=1))
    half = t95 * sd / (1 if flaw == "scatter" else math.sqrt(n))
    return {
        "epochs": far,
        "loss": gap,
        "share": gap / far if flaw == "upside" else 1 - gap / far,
        "interval": np.array([gap - half, gap + half]),
        "shown": 1 if gap > half else -1 if gap < -half else 0,
        "seeds": math.ceil((1.96 * sd / 0.1) ** 2),
    }


EXERCISES = (
    Exercise("10.8-1", "A sharpness below zero", "debug", 3, "start", _start, (2, 5)),
    Exercise("10.8-2", "A large batch, from its first step", "build", 4, "large_run", _large, (1, 5)),
    Exercise("10.8-3", "Your own critical batch", "measure", 3, "", once(_measured), (3,)),
    Exercise("10.8-4", "Do large batches generalise worse?", "criticise", 3, "weighed", _weighed, (4,)),
)
