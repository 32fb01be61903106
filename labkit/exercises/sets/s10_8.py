"""Problem set 10.8: large batches.

The judges compute what is right from the questions: a mean square that a step multiplies by a number, the largest eigenvalue
of a Hessian that is known, Goyal et al. 2017 (sections 2 and 3), McCandlish et al. 2018 (section 2.4), You, Gitman and
Ginsburg 2017 (Algorithm 1), and paired differences.

Symbols: K workers, b examples each, B = K b, ``eta`` the learning rate, m the momentum, v a velocity, S steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from labkit.comm.run import Run
from labkit.exercises import measured
from labkit.exercises.exercise import Case, Exercise, Wrong, _real, close, same_array
from labkit.exercises.sets import Array, each_rank, if_it_were, slip, steps, talked, unequal, workers
from labkit.learn.critical import fit_hyperbola

RunJudge = Callable[[Run], None]


def _slips(right: dict[str, Any], wrong: dict[str, dict[str, Any]], rtol: float = 1e-8) -> tuple[Any, ...]:
    """A case's mistakes: text to derivation, each recognised by its first step that differs from the right one."""
    out = []
    for text, other in wrong.items():
        off = [step for step in other if not np.allclose(other[step], right[step], rtol=1e-6, atol=1e-12)]
        out += [(text, slip(off[0], other[off[0]], rtol))] if off else []
    return tuple(out)


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
        wrong = {
            "The curvature that a batch happens to have is taken for its mean: what of its scatter?":
                {"growth": (1 - rate * lam) ** 2},
            "The scatter is that of one worker's batch, but the step averages over everybody's.":
                {"growth": (1 - rate * lam) ** 2 + rate**2 * tau2 / b},
            "The scatter enters with the rate as it is, but what is squared is rate times curvature.":
                {"growth": (1 - rate * lam) ** 2 + rate * scatter},
            "That ceiling holds where all examples curve alike.": {"ceiling": 2 / lam},
            "This lets the rate grow with K, but not the batch.": {"workers": 2 * lam / (lam**2 + tau2 / b) / eta},
            "That is the best rate for a batch without limit.": {"best": 1 / lam},
            "That counts the steps of the distance, not of its square.": {"steps": right["steps"] * 2},
        }  # fmt: skip
        label = f"lam = {lam:.3f}, tau2 = {tau2:.3f}, b = {b}, eta = {eta:.4f}, K = {K}"
        yield Case((lam, tau2, b, eta, K), steps(right), label=label, mistakes=_slips(right, wrong))


# -- 2: a sharpness below zero -----------------------------------------------------------------------------------------


def _start(rng: np.random.Generator) -> Iterator[Case]:
    for low, high in ((-9.0, 4.0), (-0.5, 30.0), (-40.0, 25.0), (-6.0, 2.0)):
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
        K = most + int(rng.choice([-3, 3]))

        def said(sharp: float, m: float = m, eta: float = eta, K: int = K) -> dict[str, Any]:
            most = math.floor(2 * (1 + m) / (eta * sharp))
            return {"sharpness": sharp, "workers": most, "warm_up": int(most < K)}

        right = said(float(values[-1]))
        wrong = {
            "This finds the curvature that is largest in size. Downhill bends set no ceiling.": said(float(values[0])),
            "A bend downwards, with its sign taken off, is no sharpness.": said(float(-values[0])),
            "That is the curvature along the gradient: no step needs to point the sharpest way.":
                said(float(g @ there @ g / (g @ g))),
            "The ceiling is that of steps without momentum.": said(float(values[-1]), 0.0),
            "Off by one: with so many workers the rate is above the ceiling.":
                {"workers": right["workers"] + 1},
            "The start is held against the ceiling of one worker's rate.": right | {"warm_up": int(right["workers"] < 1)},
        }  # fmt: skip
        label = f"eta = {eta:.4f}, m = {m}, K = {K}"
        yield Case(
            (grad, w, eta, m, K), steps(right, 1e-3), label=label, mistakes=_slips(right, wrong, 1e-3)
        )  # fmt: skip


# -- 3: a large batch, from its first step -----------------------------------------------------------------------------


def _large(rng: np.random.Generator) -> Iterator[Case]:
    for K in (1, 2, 3, 5):
        T, d = 6, int(rng.integers(4, 8))
        eta, m, decay = (float(x) for x in rng.uniform((0.01, 0.5, 0.05), (0.05, 0.9, 0.3)))
        counts = np.array([unequal(rng, K, 5, (1, 9)) for _ in range(T)]).T  # (K, T)
        sums, w = rng.standard_normal((K, T, d)) * counts[..., None], rng.standard_normal(d)
        warm = 0 if K == 2 else int(counts[:, :4].sum() - rng.integers(1, 4))

        def judge_of(
            expected: Array, K: int = K, most: int = T * 2 * (K - 1) * 8 * -(-(d + 1) // K)
        ) -> RunJudge:
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
            "The rate is never scaled up for the large batch.": _warmed(*job, top=1),
        }  # fmt: skip
        seen = [(text, x) for text, x in wrong.items() if not np.allclose(x, right, rtol=1e-7)]
        mistakes = tuple(
            (text, lambda run, x=x: same_array(run.results[0], x, rtol=1e-7)) for text, x in seen
        )
        args = tuple((sums[k], counts[k], w.copy(), *job[3:]) for k in range(K))
        label = f"with {workers(K)}, a warm-up of {warm} examples"
        yield Case(args, judge_of(right), K, label, mistakes=mistakes)


def _warmed(
    sums: Array, counts: Array, w: Array, eta: float, warm: int, m: float, decay: float, seen: str = "", f: int = 1,
    alike: bool = False, top: int = 0,
) -> Array:  # fmt: skip
    (K, T, _), v, last = sums.shape, np.zeros_like(w), 0.0
    for t in range(T):
        before = counts[: 1 if seen == "own" else K, : t + (seen == "early")].sum()
        rate = eta * (1 + ((top or K) - 1) * (min(1.0, before / warm) if warm else 1.0))
        g = (
            np.mean(sums[:, t] / counts[:, t, None], axis=0)
            if alike
            else sums[:, t].sum(axis=0) / counts[:, t].sum()
        )
        v = m * (rate / (last or rate)) ** f * v + rate * (g + decay * w)
        w, last = w - v, rate
    return w


# -- 4: a critical batch, measured -------------------------------------------------------------------------------------

_BATCHES, _HELD = (4, 16, 64, 256), 1024


def _critical(_: np.random.Generator) -> Iterator[Case]:
    flaws = {
        "The batch that was held back has gone into the fit: what it is to test it has helped to make.": "all",
        "The fit is of steps as they are: the small batches, which need most, then decide alone.": "absolute",
        "The middle of the runs is a mean here: one unlucky run moves it.": "mean",
    }
    mistakes = tuple((text, lambda a, how=how: _measured(a, how)) for text, how in flaws.items())
    yield Case((), _measured, mistakes=mistakes)


def _law(B: Any, S: Array, how: str = "") -> tuple[float, float]:
    """S_min and B_crit."""
    if how == "absolute":
        slope, level = np.polyfit(1 / np.array(B, float), S, 1)
        return float(level), float(slope / level)
    try:
        law = fit_hyperbola(B, S)
    except ValueError:
        raise Wrong(
            "Steps of your data do not level off: did the runs reach the target at every batch?"
        ) from None
    return law.S_min, law.B_crit


def _measured(answer: Any, how: str = "") -> None:
    keys = ("data", "S_min", "B_crit", "low", "high", "predicted", "held", "buys", "worth")
    if not isinstance(answer, dict) or set(answer) != set(keys):
        raise Wrong(f"keep the dict as it was, with the keys {', '.join(keys)}")
    data = measured.read(answer["data"], 5, 7)
    if set(data.at) != {*_BATCHES, _HELD} or data.values.min() < 1:
        raise Wrong(
            "The data should be steps at the batches 4, 16, 64, 256 and 1024, as the cell takes them."
        )
    runs = {B: np.array(data.values[data.at.index(B)]) for B in (*_BATCHES, _HELD)}
    Bs = (*_BATCHES, _HELD) if how == "all" else _BATCHES
    S = np.array([runs[B] for B in Bs])
    S_min, B_crit = _law(Bs, S.mean(axis=1) if how == "mean" else np.median(S, axis=1), how)
    fits = np.array([_law(Bs, row, how) for row in S.T])
    predicted = S_min * (1 + B_crit / _HELD)
    twice = (1 + fits[:, 1] / 64) / (1 + fits[:, 1] / 128)
    low, high = float(twice.min()), float(twice.max())
    right = {
        "S_min": S_min,
        "B_crit": B_crit,
        "low": fits[:, 1].min(),
        "high": fits[:, 1].max(),
        "predicted": predicted,
    }
    for key, value in right.items():
        close(answer[key], float(value), f"{key!r}", rtol=1e-3)
    if answer["held"] != ("yes" if runs[_HELD].min() <= predicted <= runs[_HELD].max() else "no"):
        raise Wrong(
            "'held' does not follow: where does your prediction lie among the seven runs that were held back?"
        )
    given = answer["buys"]
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise Wrong("'buys' should be a pair, the smallest and the largest of seven")
    for which, x, value in zip(("smallest", "largest"), given, (low, high), strict=True):
        close(x, value, f"the {which} of 'buys'", rtol=1e-3)
    if answer["worth"] != ("yes" if low > 1.2 else "no" if high < 1.2 else "not decided"):
        raise Wrong("'worth' does not follow from 'buys': hold both of its ends against the price of a step.")


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

        def judge_of(expected: Array, K: int = K, most: int = 2 * (K - 1) * 8 * -(-(d + 4) // K)) -> RunJudge:
            def judge(run: Run) -> None:
                talked(run, most, "a ring all-reduce of all numbers and one more a layer", "its gradient")
                each: Any = SimpleNamespace(results=[_flat(given) for given in run.results])
                each_rank(each, expected, "the weights and velocities, put end to end,")

            return judge

        step = partial(_trusted, ws, gs, vs, eta, c, m)
        right = step()
        wrong = {
            "Both faults of the given program are still there.": step("given"),
            "Each worker's ratio comes from its own gradient: the mean of what they scale is too short.": step("local"),
            "The ratios are averaged, not the gradients of which they are made.": step("mean ratio"),
            "A layer of zeros can never leave zero here, nor can a step be taken where a gradient vanishes.": step("zero"),
            "The biases are scaled, too.": step("biases"),
            "One ratio serves the whole network: a layer with long gradients gets too long a step.": step("whole"),
            "This adds the gradients up where their mean is meant: the ratio hides it, the biases do not.": step("sum"),
        }  # fmt: skip
        seen = [
            (text, x) for text, x in wrong.items() if not np.allclose(x, right, rtol=1e-7, equal_nan=True)
        ]
        args = tuple((ws, g, vs, eta, c, m) for g in gs)
        label = f"with {workers(K)}, {kind}" + ", in real processes" * (world != "simulated")
        yield Case(args, judge_of(right), K, label, world=world, mistakes=if_it_were(judge_of, *seen))


def _flat(given: Any) -> Array:
    if (
        not isinstance(given, (tuple, list))
        or len(given) != 2
        or any(len(part) != len(_SHAPES) for part in given)
    ):
        raise Wrong("return two lists, the new weights and the new velocities, an array for each layer")
    arrays = [_real(x) for part in given for x in part]
    if [None if x is None else x.shape for x in arrays] != [*_SHAPES, *_SHAPES]:
        raise Wrong("the new weights and velocities should have the shapes of the weights")
    return np.concatenate([x.ravel() for x in arrays if x is not None])


def _trusted(ws: Any, gs: Any, vs: Any, eta: float, c: float, m: float, how: str = "") -> Array:
    def ratio(w: Array, g: Array) -> float:
        above, below = float(np.linalg.norm(w)), float(np.linalg.norm(g))
        return (
            c * above / (below or 1)
            if how in ("zero", "given")
            else c * above / below
            if above and below
            else 1.0
        )

    new, means = [], [sum(parts) / (1 if how == "sum" else len(gs)) for parts in zip(*gs, strict=True)]
    for i, (w, g) in enumerate(zip(ws, means, strict=True)):
        if w.ndim > 1 or how == "biases":
            if how in ("local", "given"):
                g = sum(ratio(w, mine[i]) * mine[i] for mine in gs) / len(gs)
            elif how == "mean ratio":
                g = g * np.mean([ratio(w, mine[i]) for mine in gs])
            elif how == "whole":
                g = g * ratio(*(np.concatenate([x.ravel() for x in part[::2]]) for part in (ws, means)))
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
        wrong = {text: _gaps(epochs, loss, 2.093, flaw) for flaw, text in _FLAWS.items()}
        yield Case((epochs, loss, 2.093), steps(right), label=kind, mistakes=_slips(right, wrong))


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
    Exercise("10.8-4", "Your own critical batch", "measure", 3, "", _critical, (3,)),
    Exercise("10.8-5", "A step that shrinks with the workers", "debug", 3, "lars_step", _lars, (4,)),
    Exercise("10.8-6", "Do large batches generalise worse?", "criticise", 3, "weighed", _weighed, (4,)),
)
