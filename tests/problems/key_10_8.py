"""Key of problem set 10.8: solutions, and the mistakes that students make."""

import json
import math

import numpy as np

from labkit.collectives import ring
from labkit.learn import fit_hyperbola

# -- 1 --------------------------------------------------------------------------------------------------------------


def bent(grad, w, v, h=1e-4):
    return (np.asarray(grad(w + h * v)) - np.asarray(grad(w - h * v))) / (2 * h)


def top(grad, w, shift=0.0):
    v = np.random.default_rng(0).standard_normal(len(w))
    for _ in range(300):
        v = v / np.linalg.norm(v)
        v = bent(grad, w, v) + shift * v
    v = v / np.linalg.norm(v)
    return float(v @ bent(grad, w, v))


def said(sharp, eta, m, K):
    most = math.floor(2 * (1 + m) / (eta * sharp))
    return {"sharpness": sharp, "workers": most, "warm_up": int(most < K)}


def start(grad, w, eta, m, K):
    H = np.array([bent(grad, w, e) for e in np.eye(len(w))])
    return said(float(np.linalg.eigvalsh((H + H.T) / 2)[-1]), eta, m, K)


def start_by_shift(grad, w, eta, m, K):
    size = abs(top(grad, w))
    return said(top(grad, w, 1.1 * size), eta, m, K)


def start_as_given(grad, w, eta, m, K):
    return said(top(grad, w), eta, m, K)


def start_along_the_gradient(grad, w, eta, m, K):
    g = np.asarray(grad(w))
    g = g / np.linalg.norm(g)
    return said(float(g @ bent(grad, w, g)), eta, m, K)


# -- 2 --------------------------------------------------------------------------------------------------------------


def run_with(own=False, early=False, f=1, alike=False, everyone=False):
    def large_run(comm, sums, counts, w, eta, warm, m, decay):
        v, seen, last = np.zeros_like(w), 0, None
        for g, count in zip(sums, counts, strict=True):
            mine = np.append(g / count, 1.0) if alike else np.append(g, float(count))
            total = ring.allreduce(comm, mine)
            now = count if own else counts_of(comm, total, count, alike)
            share = min(1.0, (seen + early * now) / warm) if warm else 1.0
            rate = eta * (1 + (comm.K - 1) * share)
            mean = total[:-1] / total[-1]
            v = m * (rate / (last or rate)) ** f * v + rate * (mean + (comm.K if everyone else 1) * decay * w)
            w, last, seen = w - v, rate, seen + now
        return w

    return large_run


def counts_of(comm, total, count, alike):
    return count * comm.K if alike else total[-1]


# -- 3 --------------------------------------------------------------------------------------------------------------

MEASURED = '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, 2026-11-22", "at": [4, 16, 64, 256, 1024], "values": [[261.0, 260.0, 217.0, 272.0, 213.0, 257.0, 209.0], [86.0, 122.0, 130.0, 111.0, 97.0, 90.0, 94.0], [58.0, 65.0, 74.0, 71.0, 45.0, 64.0, 68.0], [45.0, 41.0, 49.0, 50.0, 45.0, 46.0, 44.0], [48.0, 40.0, 45.0, 38.0, 41.0, 37.0, 42.0]], "span_s": 4.111556961997849, "seal": "dca44b11594e"}'  # noqa: E501


def law_of(B, S, absolute=False):
    if absolute:
        slope, level = np.polyfit(1 / np.array(B), S, 1)
        return level, slope / level
    law = fit_hyperbola(B, S)
    return law.S_min, law.B_crit


def critical(fitted=4, middle=np.median, absolute=False):
    body = json.loads(MEASURED)
    B, S = body["at"][:fitted], np.array(body["values"])
    S_min, B_crit = law_of(B, middle(S[:fitted], axis=1), absolute)
    each = [law_of(B, S[:fitted, i], absolute)[1] for i in range(7)]
    buys = [(1 + x / 64) / (1 + x / 128) for x in each]
    predicted = S_min * (1 + B_crit / 1024)
    return {
        "data": MEASURED,
        "S_min": S_min,
        "B_crit": B_crit,
        "low": min(each),
        "high": max(each),
        "predicted": predicted,
        "held": "yes" if S[4].min() <= predicted <= S[4].max() else "no",
        "buys": (min(buys), max(buys)),
        "worth": "yes" if min(buys) > 1.2 else "no" if max(buys) < 1.2 else "not decided",
    }


FITS = [law_of([4, 16, 64, 256], S)[1] for S in np.array(json.loads(MEASURED)["values"][:4]).T]
OPPOSITE = {"yes": "no", "no": "yes", "not decided": "yes"}


# -- 4 --------------------------------------------------------------------------------------------------------------


def weighed(epochs, loss, t95, flaw=""):
    def errors(table):
        at = {}
        for name, (choose, judge) in table.items():
            mean = (judge if flaw == "own half" else choose).mean(axis=1)
            if flaw == "nan":
                mean = np.nanmean(choose, axis=1)
            at[name] = np.argmin(np.where(np.isfinite(mean), mean, np.inf))
        if flaw == "one rate":
            at["large"] = at["small"]
        return (table[name][1][at[name]] for name in ("small", "large"))

    small, large = errors(epochs)
    far = (large - small).mean()
    small, large = errors(loss)
    gap = (large - small)[np.isfinite(large - small)]
    sd = gap.std(ddof=1)
    if flaw == "unpaired":
        sd = math.sqrt(np.var(small, ddof=1) + np.var(large, ddof=1))
    half = t95 * sd / (1 if flaw == "scatter" else math.sqrt(len(gap)))
    low, high = gap.mean() - half, gap.mean() + half
    wide = 0.0 if flaw == "middle" else half
    return {
        "epochs": far,
        "loss": gap.mean(),
        "share": (gap.mean() if flaw == "upside" else far - gap.mean()) / far,
        "interval": [low, high],
        "shown": 1 if gap.mean() > wide else -1 if gap.mean() < -wide else 0,
        "seeds": math.ceil((1.96 * sd / 0.1) ** 2),
    }


def weighed_with(flaw):
    return lambda *args: weighed(*args, flaw=flaw)


SOLUTIONS = {"10.8-1": start_by_shift, "10.8-2": run_with(), "10.8-3": critical(), "10.8-4": weighed}

MUTANTS = {
    "10.8-1": [
        start_as_given,
        lambda grad, w, eta, m, K: said(abs(top(grad, w)), eta, m, K),
        start_along_the_gradient,
        lambda grad, w, eta, m, K: (
            start(grad, w, eta, m, K) | {"workers": start(grad, w, eta, 0, K)["workers"]}
        ),
        lambda grad, w, eta, m, K: (
            start(grad, w, eta, m, K) | {"workers": start(grad, w, eta, m, K)["workers"] + 1}
        ),
        lambda grad, w, eta, m, K: start(grad, w, eta, m, K) | {"warm_up": 0},
        lambda grad, w, eta, m, K: start(grad, w, eta, m, K) | {"warm_up": 1},
    ],
    "10.8-2": [
        run_with(own=True), run_with(early=True), run_with(f=0), run_with(f=-1), run_with(everyone=True),
    ],
    "10.8-3": [
        critical(fitted=5),
        critical(absolute=True),
        critical(middle=np.mean),
        critical() | {"B_crit": np.median(FITS)},
        critical() | {"predicted": critical()["S_min"]},
        critical() | {"held": OPPOSITE[critical()["held"]]},
        critical() | {"worth": OPPOSITE[critical()["worth"]]},
    ],
    "10.8-4": [
        weighed_with(flaw)
        for flaw in ("own half", "one rate", "nan", "unpaired", "scatter", "upside", "middle")
    ],
}  # fmt: skip
