"""Problem set 10.8: large batches.

The judges compute what is right from the questions: a mean square that a step multiplies by a number, the largest eigenvalue
of a Hessian that is known, Goyal et al. 2017 (sections 2 and 3), McCandlish et al. 2018 (section 2.4), You, Gitman and
Ginsburg 2017 (Algorithm 1), and paired differences.

Symbols: K workers, b examples each, B = K b, ``eta`` the learning rate, m the momentum, v a velocity, S steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from labkit.comm.run import Run
from labkit.learn.critical import fit_hyperbola
from labkit_book.problems import measured
from labkit_book.problems.exercise import Case, Exercise, Wrong, same_array
from labkit_book.problems.sets import (
    Array,
    Judge,
    each_rank,
    follow,
    handed_in,
    if_it_were,
    slips,
    steps,
    talked,
)

# -- 1: a ceiling of curvatures that scatter ---------------------------------------------------------------------------


def _ceiling(rng: np.random.Generator) -> Iterator[Case]:
    for K in (1, 4, int(rng.integers(8, 30))):
        lam, eta, b = float(rng.uniform(0.5, 3)), float(rng.uniform(0.005, 0.02)), int(rng.integers(2, 9))
        tau2 = float(rng.uniform(0.5, 4)) * lam**2
        B, rate = K * b, K * eta
        below, scatter = lam**2 + tau2 / B, tau2 / B
        right = {
            "growth": (1 - rate * lam) ** 2 + rate**2 * scatter,
            "ceiling": 2 * lam / below,
            "workers": 2 / (eta * lam) - tau2 / (b * lam**2),
            "best": lam / below,
            "critical": tau2 / lam**2,
            "steps": math.log(10) / math.log(1 + B * lam**2 / tau2),
        }
        mistakes = slips(
            right,
            ("The curvature that a batch happens to have is taken for its mean: what of its scatter?",
             "growth", (1 - rate * lam) ** 2),
            ("The scatter is that of one worker's batch, but the step averages over everybody's.",
             "growth", (1 - rate * lam) ** 2 + rate**2 * tau2 / b),
            ("The scatter enters with the rate as it is, but what is squared is rate times curvature.",
             "growth", (1 - rate * lam) ** 2 + rate * scatter),
            ("That ceiling holds where all examples curve alike.", "ceiling", 2 / lam),
            ("This lets the rate grow with K, but not the batch.", "workers", 2 * lam / (lam**2 + tau2 / b) / eta),
            ("That counts the steps of the distance, not of its square.", "steps", right["steps"] * 2),
        )  # fmt: skip
        label = f"lam = {lam:.3f}, tau2 = {tau2:.3f}, b = {b}, eta = {eta:.4f}, K = {K}"
        yield Case((lam, tau2, b, eta, K), steps(right), label=label, mistakes=mistakes)


# -- 2: a sharpness below zero -----------------------------------------------------------------------------------------


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
        mistakes = if_it_were(
            partial(steps, rtol=1e-3),
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


# -- 3: a large batch, from its first step -----------------------------------------------------------------------------


def _large(rng: np.random.Generator) -> Iterator[Case]:
    for K in (1, 2, 3, 5):
        T, d = 6, int(rng.integers(4, 8))
        eta, m, decay = (float(x) for x in rng.uniform((0.01, 0.5, 0.05), (0.05, 0.9, 0.3)))
        each = np.tile(np.arange(1, K + 1)[:, None], T) * 5 + rng.integers(1, 9, T)
        counts = rng.permuted(each, axis=0)  # (K, T), no two workers alike in a step
        sums, w = rng.standard_normal((K, T, d)) * counts[..., None], rng.standard_normal(d)
        warm = 0 if K == 2 else int(counts[:, :4].sum() - rng.integers(1, 4))

        def judge_of(expected: Array, most: int = T * 2 * (K - 1) * 8 * -(-(d + 1) // K)) -> Judge:
            def judge(run: Run) -> None:
                talked(run, most, "a ring all-reduce of d + 1 numbers a step", "its gradients")
                each_rank(run, expected, "w")

            return judge

        job = (sums, counts, w, eta, warm, m, decay)
        right = _warmed(*job)
        wrong = {
            "The warm-up counts one worker's examples, and so lasts too long.": _warmed(*job, seen="own"),
            "The warm-up is a step ahead: it counts the examples of the step being taken.": _warmed(*job, seen="early"),
            "The velocity holds an old rate when the rate changes.": _warmed(*job, f=0),
            "The velocity is corrected the wrong way round.": _warmed(*job, f=-1),
            "A worker with few examples counts as much as one with many.": _warmed(*job, alike=True),
            "Every worker decays the weights, and all that is added up.": _warmed(*job[:-1], decay * K),
        }  # fmt: skip
        mistakes = tuple(  # by rank 0 alone: with some of them the workers part
            (text, lambda run, x=x: same_array(run.results[0], x, rtol=1e-7))
            for text, x in wrong.items()
            if not np.allclose(x, right, rtol=1e-7)
        )
        args = tuple((sums[k], counts[k], w.copy(), *job[3:]) for k in range(K))
        label = f"K = {K}, a warm-up of {warm} examples"
        yield Case(args, judge_of(right), K, label, mistakes=mistakes)


def _warmed(
    sums: Array, counts: Array, w: Array, eta: float, warm: int, m: float, decay: float, seen: str = "", f: int = 1,
    alike: bool = False,
) -> Array:  # fmt: skip
    (K, T, _), v, last = sums.shape, np.zeros_like(w), 0.0
    for t in range(T):
        before = counts[: 1 if seen == "own" else K, : t + (seen == "early")].sum()
        rate = eta * (1 + (K - 1) * (min(1.0, before / warm) if warm else 1.0))
        n = counts[:, t, None]
        g = np.mean(sums[:, t] / n, axis=0) if alike else sums[:, t].sum(axis=0) / n.sum()
        v = m * (rate / (last or rate)) ** f * v + rate * (g + decay * w)
        w, last = w - v, rate
    return w


# -- 4: a critical batch, measured -------------------------------------------------------------------------------------

_BATCHES, _HELD = (4, 16, 64, 256), 1024


def _law(B: Any, S: Array) -> Array:
    """S_min and B_crit."""
    try:
        law = fit_hyperbola(B, S)
    except ValueError:
        raise Wrong("These steps do not level off: did the runs reach the target at every batch?") from None
    return np.array([law.S_min, law.B_crit])


def _measured(answer: Any) -> None:
    data = measured.read(handed_in(answer), 5, 7)
    if set(data.at) != {*_BATCHES, _HELD} or data.values.min() < 1:
        raise Wrong("The data should be steps at 4, 16, 64, 256 and 1024, as the cell takes them.")
    *fitted, held = (data.values[data.at.index(B)] for B in (*_BATCHES, _HELD))
    S = np.array(fitted)
    S_min, B_crit = _law(_BATCHES, np.median(S, axis=1))
    each = np.array([_law(_BATCHES, row)[1] for row in S.T])
    predicted, twice = S_min * (1 + B_crit / _HELD), (1 + each / 64) / (1 + each / 128)
    right = {
        "S_min": S_min,
        "B_crit": B_crit,
        "low": each.min(),
        "high": each.max(),
        "predicted": predicted,
        "buys": np.array([twice.min(), twice.max()]),
    }
    said = {
        "held": "yes" if held.min() <= predicted <= held.max() else "no",
        "worth": "yes" if twice.min() > 1.2 else "no" if twice.max() < 1.2 else "not decided",
    }
    level = np.polyfit(1 / np.array(_BATCHES, float), np.median(S, axis=1), 1)[1]
    absolute = "The fit is of steps as they are: the small batches, which need most, then decide alone."
    helped = "The batch that was held back has gone into the fit: what it is to test it has helped to make."
    all_of_them = _law((*_BATCHES, _HELD), np.median(np.vstack([S, held]), axis=1))
    follow(
        {key: value for key, value in answer.items() if key not in said},
        right,
        (helped, "S_min", all_of_them[0]),
        (absolute, "S_min", level),
        ("The middle of the runs is a mean here: one unlucky run moves it.", "S_min", _law(_BATCHES, S.mean(axis=1))[0]),
        ("The fit to the medians is not the middle of seven fits.", "B_crit", np.median(each)),
        ("This leaves out what larger batches than 1024 could still save.", "predicted", S_min),
    )  # fmt: skip
    for key, why in (("held", "where does your prediction lie among the seven runs?"),
                     ("worth", "hold both ends of 'buys' against the price of a step.")):  # fmt: skip
        if answer.get(key) != said[key]:
            raise Wrong(f"{key!r} does not follow: {why}")


# -- 5: LARS on several workers ----------------------------------------------------------------------------------------

_SHAPES = ((4, 3), (4,), (2, 4), (2,))
_LAYERS = ("ordinary layers", "a layer of zeros", "a gradient of zeros")


def _lars(rng: np.random.Generator) -> Iterator[Case]:
    asked = ((1, _LAYERS[0], "simulated"), (2, _LAYERS[1], "simulated"), (3, _LAYERS[2], "simulated"))
    for K, kind, world in (*asked, (5, _LAYERS[0], "simulated"), (2, _LAYERS[0], "processes")):
        ws, vs = ([rng.standard_normal(s) * rng.uniform(0.2, 3) for s in _SHAPES] for _ in range(2))
        gs = [[rng.standard_normal(s) * rng.uniform(0.2, 3) for s in _SHAPES] for _ in range(K)]
        if kind == _LAYERS[1]:
            ws[0] *= 0
        for g in gs if kind == _LAYERS[2] else ():
            g[2] *= 0
        eta, c, m = (float(x) for x in rng.uniform((0.5, 0.001, 0.5), (3.0, 0.05, 0.95)))
        d = sum(w.size for w in ws)

        def judge_of(expected: Array, most: int = 2 * (K - 1) * 8 * -(-(d + 4) // K)) -> Judge:
            def judge(run: Run) -> None:
                talked(run, most, "a ring all-reduce of all numbers and one more a layer", "its gradient")
                each: Any = SimpleNamespace(results=[_flat(given) for given in run.results])
                each_rank(each, expected, "the array of all weights, then all velocities,")

            return judge

        step = partial(_trusted, ws, gs, vs, eta, c, m)
        right = step()
        wrong = {
            "Both faults of the given program are still there.": step("given"),
            "Each worker's ratio comes from its own gradient: the mean of what they scale is too short.": step("local"),
            "The ratios are averaged, not the gradients of which they are made.": step("mean ratio"),
            "A layer of zeros can never leave zero here, nor can a step be taken where a gradient vanishes.": step("zero"),
            "The biases are scaled, too.": step("biases"),
            "This adds the gradients up where their mean is meant: the ratio hides it, the biases do not.": step("sum"),
        }  # fmt: skip
        args = tuple((ws, g, vs, eta, c, m) for g in gs)
        label = f"K = {K}, {kind}" + ", in real processes" * (world != "simulated")
        mistakes = if_it_were(judge_of, *wrong.items())
        yield Case(args, judge_of(right), K, label, world=world, mistakes=mistakes)


def _flat(given: Any) -> Array:
    if not isinstance(given, (tuple, list)) or [len(part) for part in given] != 2 * [len(_SHAPES)]:
        raise Wrong("return two lists, the new weights and the new velocities, an array for each layer")
    arrays = [x for part in given for x in part]
    for x, shape in zip(arrays, 2 * _SHAPES, strict=True):
        same_array(x, np.zeros(shape), f"what belongs to a layer of shape {shape}", atol=1e300)
    return np.concatenate([np.asarray(x).ravel() for x in arrays])


def _trusted(ws: Any, gs: Any, vs: Any, eta: float, c: float, m: float, how: str = "") -> Array:
    def ratio(w: Array, g: Array) -> float:
        above, below = float(np.linalg.norm(w)), float(np.linalg.norm(g))
        some = how in ("zero", "given") or (above and below)
        return c * above / (below or 1) if some else 1.0

    new, means = [], [sum(parts) / (1 if how == "sum" else len(gs)) for parts in zip(*gs, strict=True)]
    for i, (w, g) in enumerate(zip(ws, means, strict=True)):
        if w.ndim > 1 or how == "biases":
            if how in ("local", "given"):
                g = sum(ratio(w, mine[i]) * mine[i] for mine in gs) / len(gs)
            elif how == "mean ratio":
                g = g * np.mean([ratio(w, mine[i]) for mine in gs])
            else:
                g = g * ratio(w, g)
        new.append(m * vs[i] + eta * g)
    return _flat(([w - v for w, v in zip(ws, new, strict=True)], new))


# -- 6: do large batches generalise worse? -----------------------------------------------------------------------------

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
        mistakes: list[tuple[str, Judge]] = []
        for flaw, text in _FLAWS.items():
            other = _gaps(epochs, loss, 2.093, flaw)
            mistakes += slips(
                right, *((text, at, other[at]) for at in ("epochs", "loss", "share", "interval"))
            )
        hasty = right | {"shown": 1 if right["loss"] > 0 else -1}
        mistakes += if_it_were(steps, ("The interval holds zero, and the middle decides.", hasty))
        yield Case((epochs, loss, 2.093), steps(right), label=kind, mistakes=tuple(mistakes))


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
    Exercise("10.8-1", "A ceiling of curvatures that scatter", "derive", 4, "ceilings", _ceiling, (1, 3)),
    Exercise("10.8-2", "A sharpness below zero", "debug", 3, "start", _start, (1, 2)),
    Exercise("10.8-3", "A large batch, from its first step", "build", 4, "large_run", _large, (1, 2)),
    Exercise("10.8-4", "Your own critical batch", "measure", 3, "", lambda _: [Case((), _measured)], (3,)),
    Exercise("10.8-5", "A step that shrinks with the workers", "debug", 3, "lars_step", _lars, (4,)),
    Exercise("10.8-6", "Do large batches generalise worse?", "criticise", 3, "weighed", _weighed, (4,)),
)
