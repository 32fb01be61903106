"""Key of problem set 10.10: solutions, and the mistakes that students make."""

import json
import math

import numpy as np

from labkit_book.problems.sets.s10_10 import _bill_case

# -- 1 --------------------------------------------------------------------------------------------------------------

FEW = """{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": ["1x16", "1x64", "2x16"], "values": [[0.0008896054499928141, 0.0010244220500680967, 0.0010240095500194002, 0.0008701400500285672, 0.0008494633500959025, 0.0008345710499270354, 0.0008663222499308177, 0.0010557038000115425, 0.0010902658499617247], [0.0027921934000914917, 0.0033841012498669444, 0.0031634969000151614, 0.0037390191999293167, 0.0027884467999683693, 0.0028228834500623632, 0.0032317756000338703, 0.0025268061999668134, 0.0031522495000899653], [0.00164247400007298, 0.0016028993999498199, 0.0023109691499485054, 0.002165230250102468, 0.002127308650051418, 0.001690386399968702, 0.0015335005500674015, 0.0019852407500366097, 0.002115941349984496]], "span_s": 3.270390647001477, "seal": "ce0e52d805f5"}"""  # noqa: E501
THEN = """{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": ["2x64"], "values": [[0.0047431481500098014, 0.00547615230007068, 0.005099883149887319, 0.005516010999963327, 0.005545681200055696, 0.005340494200027024, 0.0054387361000408415, 0.005694164450142125, 0.004786347150002257]], "span_s": 1.6937274859992613, "seal": "a9ecfc97dda0"}"""  # noqa: E501


def foretold(**changed):
    few, then = json.loads(FEW), json.loads(THEN)
    v = dict(zip(few["at"], 1e3 * np.array(few["values"]), strict=True))
    said = v["1x64"] + v["2x16"] - v["1x16"]
    low, high, seen = said.min(), said.max(), 1e3 * np.median(then["values"])
    verdict = "holds" if low <= seen <= high else "too low" if seen > high else "too high"
    numbers = {"predicted_ms": float(np.median(said)), "low_ms": float(low), "high_ms": float(high)}
    answer = {"data": FEW, **numbers, "promise": 0.8, "then": THEN, "verdict": verdict}
    return answer | {name: value(v) if callable(value) else value for name, value in changed.items()}


OTHER_VERDICT = {"holds": "too low", "too low": "holds", "too high": "holds"}[foretold()["verdict"]]

# -- 2 --------------------------------------------------------------------------------------------------------------


def sure(c1, n1, c2, n2, f, beta, sigma):
    even = (c1 + n1 / beta) / (c2 + n2 / beta)
    return {
        "tie": (n1 - f * n2) / (f * c2 - c1),
        "everywhere": c1 / c2,
        "nowhere": n1 / n2,
        "elasticity": -f * n2 / (n1 - f * n2) - f * c2 / (f * c2 - c1),
        "break_even": even,
        "seeds": math.ceil((2 * sigma / (even - f)) ** 2),
    }


def slipped(step, f):
    """The derivation with this step wrong: ``f`` of the method's numbers, of sigma, and of the right steps."""

    def answer(c1, n1, c2, n2, factor, beta, sigma):
        right = sure(c1, n1, c2, n2, factor, beta, sigma)
        return right | {step: f(c1, n1, c2, n2, factor, sigma, right)}

    return answer


# -- 3 --------------------------------------------------------------------------------------------------------------


def bill(loaded, ready, left, price_per_hour, hidden=False, inside=False, negative=False):
    begun, last = np.append(0.0, left[:-1]), ready.max(axis=0)
    start = np.maximum(begun, loaded)
    seconds = {
        "load": ((loaded if negative else start) - begun).sum(),
        "work": (ready - (loaded if hidden or negative else start)).sum(),
        "wait": (last - ready).sum(),
        "sum": (left - (ready if inside else np.tile(last, (len(ready), 1)))).sum(),
    }
    return {part: s * price_per_hour / 3600 for part, s in seconds.items()}


def bill_given(loaded, ready, left, price_per_hour):
    """The program of the notebook."""
    begun, last = np.append(0.0, left[:-1]), ready.max(axis=0)
    seconds = {
        "load": np.maximum(loaded - begun, 0).sum(),
        "work": (ready - loaded).sum(),
        "wait": (last - ready).sum(),
        "sum": (left - ready).sum(),
    }
    return {part: s * price_per_hour / 3600 for part, s in seconds.items()}


def bill_scaled(loaded, ready, left, price_per_hour):
    parts = bill_given(loaded, ready, left, price_per_hour)
    whole = len(ready) * left[-1] * price_per_hour / 3600
    return {part: x * whole / sum(parts.values()) for part, x in parts.items()}


def bill_hidden(*log):
    return bill(*log, hidden=True)


def bill_inside(*log):
    return bill(*log, inside=True)


def bill_negative(*log):
    return bill(*log, negative=True)


def bill_of_one(loaded, *log):
    return {part: x / len(loaded) for part, x in bill(loaded, *log).items()}


def bill_hours(*log):
    return {part: x * 3600 for part, x in bill(*log).items()}


# -- 4 --------------------------------------------------------------------------------------------------------------


def claim():
    steps = {K: 1 + 1024 / (32 * K) for K in (1, 8, 16, 32, 64)}  # in units of S_min
    step_s = {1: 0.128, 8: 256 / 1800, 16: 512 / 3500, 32: 1024 / 6850, 64: 2048 / 13500}
    sooner = {K: steps[1] * step_s[1] / (steps[K] * step_s[K]) for K in steps}
    return {
        "efficiency": 13500 / (64 * 250),
        "sooner": sooner[64],
        "dearer": 64 / sooner[64],
        "most_K": max(K for K in steps if sooner[K] >= K / 2),
        "fixed_batch": (0.008 + 0.00375 * 256) / (step_s[64] - 0.120 + 0.00375 * 256 / 64),
        "overlap": "not decided",
    }


CLAIM = claim()

SOLUTIONS = {"10.10-1": foretold(), "10.10-2": sure, "10.10-3": bill, "10.10-4": CLAIM}
MUTANTS = {
    "10.10-1": [
        foretold(predicted_ms=lambda v: float(np.median(4 * v["2x16"]))),
        foretold(predicted_ms=lambda v: float(np.median(v["2x16"] * v["1x64"] / v["1x16"]))),
        foretold(predicted_ms=lambda v: float(np.median(list(v.values()), axis=1) @ [-1, 1, 1])),
        foretold(low_ms=lambda v: float(v["1x64"].min() + v["2x16"].min() - v["1x16"].min())),
        foretold(promise=1.0),
        foretold(promise=0.9),
        foretold(promise=0.95),
        foretold(verdict=OTHER_VERDICT),
        foretold(then=THEN.replace("0.0", "0.1")),
    ],
    "10.10-2": [
        slipped("tie", lambda c1, n1, c2, n2, f, sigma, right: (n1 - f * n2) / (c2 - c1)),
        slipped("everywhere", lambda c1, n1, c2, n2, f, sigma, right: n1 / n2),
        slipped("elasticity", lambda c1, n1, c2, n2, f, sigma, right: right["elasticity"] * right["tie"] / f),
        slipped("elasticity", lambda c1, n1, c2, n2, f, sigma, right: -f * n2 / (n1 - f * n2)),
        slipped("break_even", lambda c1, n1, c2, n2, f, sigma, right: n1 / n2),
        slipped("seeds", lambda c1, n1, c2, n2, f, sigma, right: math.ceil(math.sqrt(right["seeds"]))),
        slipped("seeds", lambda *a: math.ceil((a[-2] / (a[-1]["break_even"] - a[-3])) ** 2)),
    ],
    "10.10-3": [bill_given, bill_scaled, bill_hidden, bill_inside, bill_negative, bill_of_one, bill_hours],
    "10.10-4": [
        CLAIM | {"efficiency": 13500 / (8 * 1800)},
        CLAIM | {"sooner": 54.0},
        CLAIM | {"sooner": (1 + 32) / (1 + 0.5)},
        CLAIM | {"dearer": 16000 / 13500},
        CLAIM | {"most_K": 64},
        CLAIM | {"fixed_batch": 54.0},
        CLAIM | {"overlap": "refuted"},
    ],
}


def hidden_bill(rng):
    """Two ranks; who loads ahead loads slowly."""
    loaded, ready = np.array([[0.03, 0.08], [0.05, 0.06]]), np.array([[0.08, 0.15], [0.09, 0.16]])
    yield _bill_case(loaded, ready, np.array([0.1, 0.17]), 2.0, "two steps of two workers")


HIDDEN = {"10.10-3": hidden_bill}
