"""Instructor's key of problem set 10.9."""

import json

import numpy as np

from labkit import Link
from labkit.collectives import doubling, halving
from labkit.network import least_time
from labkit_book.problems import Case, Wrong, close

# -- 1 ----------------------------------------------------------------------------------------------------------------


def exchange(hop, least, below):
    """All seats exchange with the one ``hop`` away the pieces that are so far from their own."""
    return [(k, k ^ hop, [p for p in range(8) if least <= p ^ k < below]) for k in range(8)]


IN, OUT = [exchange(4, 4, 8), exchange(2, 2, 4)], [exchange(2, 0, 2), exchange(4, 0, 4)]
EIGHT = [*IN, exchange(1, 0, 2), *OUT]


# -- 2 ----------------------------------------------------------------------------------------------------------------


def deal(quota, forbid=True):
    """Always of whom most is left, but never the same twice running, as long as that can be had."""
    left, owner = list(quota), []
    for _ in range(sum(quota)):
        k = max(range(len(left)), key=lambda k: (left[k] > 0 and not (forbid and owner[-1:] == [k]), left[k]))
        owner.append(k)
        left[k] -= 1
    return owner


def in_turn(quota):
    return [k for i in range(max(quota)) for k in range(len(quota)) if i < quota[k]]


# -- 3 ----------------------------------------------------------------------------------------------------------------

DATA = '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": [1, 2, 3, 4, 5], "values": [[9.20161194293275, 8.406224457645699, 9.529786009380611, 10.372275800797418, 10.480175232174865, 10.171970020837076, 9.25223999699444, 8.581184866098337, 9.872677220105231, 10.49571162159262, 10.60927362194428, 7.892220357541375], [0.7101884181226568, 0.7391225328125748, 0.8459724514352995, 0.8208185219652695, 0.7931918139715735, 0.7934859587468249, 0.7880755969748052, 0.8426567907981164, 0.8565999804424285, 0.7819473122147909, 0.8557697204329925, 0.724563875669675], [0.1410649013638326, 0.13788723667077749, 0.1516652420751714, 0.13105389364661402, 0.14294681194090197, 0.16585300521399463, 0.15211978575716295, 0.1524362668858476, 0.14294943629779128, 0.14636295821833428, 0.16962676076390987, 0.13116230923932254], [0.03065936718177308, 0.03313015919828321, 0.03147597287327496, 0.02513947879122979, 0.03533855390047441, 0.027876208645140888, 0.031155288276926884, 0.031213053998891842, 0.030124924842847657, 0.03236136400235254, 0.03396893102462288, 0.02911251984087654], [0.00857505657389769, 0.007387677618820055, 0.008234420124325084, 0.007257443697418569, 0.0077916904691649296, 0.007054900841230435, 0.006991156665183221, 0.0064751734950148285, 0.007405672848642792, 0.006369126064233508, 0.006149450787204744, 0.007787230927916425]], "span_s": 0.8317454769967298, "seal": "4d7d7b2e674a"}'  # noqa: E501


def of_quantiser(**change):
    values = np.array(json.loads(DATA)["values"])
    mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    floor, r = 1 / (4.0 ** np.arange(1, 6) - 1), error / mean
    answer = {
        "data": DATA,
        "times": mean / floor,
        "margin": 2 * error / floor,
        "worth": np.log2(1 + 1 / mean) / 2,
        "factor": mean[:-1] / mean[1:],
    }
    spread = 2 * np.sqrt(r[1:] ** 2 + r[:-1] ** 2)
    low, high = answer["factor"] * (1 - spread), answer["factor"] * (1 + spread)
    answer["four"] = [
        "more" if a > 4 else "less" if b < 4 else "not decided" for a, b in zip(low, high, strict=True)
    ]
    return answer | {key: f(mean, error, floor) for key, f in change.items()}


# -- 4 ----------------------------------------------------------------------------------------------------------------


def optimal(K, nbytes, alpha, beta, **change):
    m, v = K.bit_length() - 1, 2 * (K - 1) / K
    took, bound = 2 * m * alpha + v * nbytes / beta, max(m * alpha, v * nbytes / beta)
    found = {
        "doubling": m * alpha * beta / (m - v),
        "worst": m * alpha * beta / v,
        "tenth": 20 * m * alpha * beta / v,
        "left": 1 - bound / took,
        "switch": 1 / v,
    }
    return found | {step: f(m, v, alpha * beta) for step, f in change.items()}


SOLUTIONS = {"10.9-1": EIGHT, "10.9-2": deal, "10.9-3": of_quantiser(), "10.9-4": optimal}

MUTANTS = {
    "10.9-1": [
        [*IN, exchange(1, 1, 2), exchange(1, 0, 1), *OUT],  # halving and doubling
        [exchange(hop, 0, 8) for hop in (1, 2, 4)],
        EIGHT[:-1],
        [[(k, (k + 1) % 8, list(range(8))) for k in range(8)]] * 7,  # the sum so far around the ring
        [[(0, 1, 0), (0, 2, 1)]],
        [[(0, 2, 0), (1, 2, 1)]],
    ],
    "10.9-2": [
        lambda quota: [k for k, q in enumerate(quota) for _ in range(q)],
        in_turn,
        lambda quota: [i % len(quota) for i in range(sum(quota))],
        lambda quota: in_turn(sorted(quota)),
        lambda quota: sorted(deal(quota), key=lambda k: -quota[k]),
    ],
    "10.9-3": [
        of_quantiser(times=lambda mean, error, floor: mean),
        of_quantiser(margin=lambda mean, error, floor: 2 * error * np.sqrt(12) / floor),
        of_quantiser(margin=lambda mean, error, floor: error / floor),
        of_quantiser(worth=lambda mean, error, floor: np.log2(1 / mean) / 2),
        of_quantiser(worth=lambda mean, error, floor: np.log2(1 + 1 / mean)),
        of_quantiser(factor=lambda mean, error, floor: mean[1:] / mean[:-1]),
        of_quantiser(four=lambda mean, error, floor: ["more"] * 4),
        of_quantiser(four=lambda mean, error, floor: ["less"] * 4),
        of_quantiser(four=lambda mean, error, floor: ["not decided"] * 4),
    ],
    "10.9-4": [
        lambda *a: optimal(*a, doubling=lambda m, v, ab: m * ab),
        lambda *a: optimal(*a, worst=lambda m, v, ab: 2 * m * ab / v),
        lambda *a: optimal(*a, worst=lambda m, v, ab: m * ab / (m - v)),
        lambda *a: optimal(*a, tenth=lambda m, v, ab: 18 * m * ab / v),
        lambda K, n, alpha, beta: optimal(
            K, n, alpha, beta, left=lambda m, v, ab: 1 - (m * ab + v * n) / (2 * m * ab + v * n)
        ),
        lambda *a: optimal(*a) | {"left": 1 - optimal(*a)["left"]},
        lambda *a: optimal(*a, switch=lambda m, v, ab: v),
    ],
}


def against_labkit(rng):
    """The sizes of 10.9-4 by prices that stand elsewhere: to either side of each, and at it."""
    for m in (2, 5, 8):
        K, link = 2**m, Link(2e-5, 1e9)

        def judge(answer, K=K, link=link):
            n = answer["doubling"]
            close(
                halving.time(K, n, link) / doubling.time(K, n, link), 1.0, "halving over doubling", rtol=1e-9
            )
            sizes = answer["worst"] * np.geomspace(0.01, 100, 401)
            over = halving.time(K, sizes, link) / least_time(K, sizes, link)
            if over.argmax() != 200:
                raise Wrong("it is further from the bound at another size")
            n = answer["tenth"]
            close(halving.time(K, n, link) / least_time(K, n, link), 1.1, "time over bound", rtol=1e-9)

        yield Case((K, 1e5, link.alpha, link.beta), judge, label=f"K = {K}")


HIDDEN = {"10.9-4": against_labkit}
