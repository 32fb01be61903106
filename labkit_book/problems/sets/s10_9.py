"""Problem set 10.9: bounds with bystanders, the fewest rounds, a chain however dealt, a floor, a claim of optimality.

Sources: Patarasuk and Yuan 2009 (bytes), Chan et al. 2007 (rounds), Nesterov 2004 and Arjevani and Shamir 2015 (chain),
Suresh et al. 2017 (levels between the ends), Safaryan et al. 2021 (bits). Symbols: K workers, ``nbytes`` bytes, alpha and
beta of the link, d coordinates, t rounds, c bits a coordinate.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit.collectives import halving
from labkit.comm import Run, Simulated
from labkit.network import Link, least_bytes, least_rounds, least_time
from labkit_book.problems.exercise import Case, Exercise, Wrong, number, same_array
from labkit_book.problems.measured import read
from labkit_book.problems.sets import Array, dict_of, if_it_were, slips, spoke, steps, workers

# -- 1: bounds, with bystanders ---------------------------------------------------------------------------------------


def _bystanders(rng: np.random.Generator) -> Iterator[Case]:
    settings = [(5, 3, 10**7), (4, 4, 8), (4, 1, 10**6), (33, 20, 1000), (64, 63, 10**5), (1, 1, 10**6)]
    settings += [
        (K, int(rng.integers(1, K + 1)), int(10 ** rng.uniform(1, 8))) for K in rng.integers(3, 700, 6)
    ]
    for K, m, nbytes in ((int(K), m, nbytes) for K, m, nbytes in settings):
        alpha, beta = float(rng.uniform(1e-6, 1e-4)), float(rng.uniform(1e8, 1e10))
        port, rounds = (K + m - 2) / K * nbytes, least_rounds(K)
        right = {"before": m - 1, "after": K - 1, "port": port, "rounds": rounds}
        right["seconds"] = max(alpha * rounds, port / beta)
        wrong = [
            ("This waits for a message from somebody who has nothing to add.", "before", K - 1),
            ("Here the first worker that has the sum sends a message to itself.", "before", m),
            ("This forgets workers who brought nothing, and yet want the sum.", "after", m - 1),
            ("The worker with the sum needs no message that brings it there.", "after", K),
            ("That is all bytes together, and there are many ports.", "port", (K + m - 2) * nbytes),
            ("This shares the bytes among those who brought data; who else may send?", "port", (K + m - 2) / m * nbytes),
            ("This is the bound for workers who all bring data.", "port", 2 * (K - 1) / K * nbytes),
            ("With so many rounds not all have heard.", "rounds", K.bit_length() - 1),
            ("This is what a ring needs, and some do with less.", "rounds", K - 1),
            ("This lets the part arrive somewhere, and only then a sum go out.", "rounds", 2 * rounds),
            ("Some worker without data must hear, too.", "rounds", least_rounds(m)),
            ("Each part is a bound. Does it follow that nothing can do both at once?", "seconds",
             alpha * rounds + port / beta),
            ("That is a bound, and not the better one.", "seconds", min(alpha * rounds, port / beta)),
        ]  # fmt: skip
        label = f"{workers(K)}, {m} with data, {nbytes} bytes"
        yield Case((K, m, nbytes, alpha, beta), steps(right), label=label, mistakes=slips(right, *wrong))


# -- 2: the fewest rounds, by doing it --------------------------------------------------------------------------------


def _found(xs: Array, real: bool, run: Run) -> None:
    K, wanted = len(xs), xs.max(axis=0)
    for k, given in enumerate(run.results):
        if given is not None:
            spoke(run, k, "its part")
        if run.messages_sent[k] > least_rounds(K):
            raise Wrong(f"rank {k} sent more messages than there may be rounds")
    for k, given in enumerate(run.results):
        some = np.shape(given) == wanted.shape and (np.isin(given, xs) & (np.asarray(given) >= xs[k])).all()
        if some and (np.asarray(given) < wanted).any():
            raise Wrong(f"rank {k} has not heard of all that the others brought")
        same_array(given, wanted, f"what rank {k} returned", rtol=0.0)
    if not real and round(run.elapsed_s) > least_rounds(K):
        raise Wrong(f"it took {round(run.elapsed_s)} rounds, more than the bound")


def _maximum(rng: np.random.Generator) -> Iterator[Case]:
    for K, real in (*((K, False) for K in (2, 4, 3, 5, 1, 8, 6, 11)), (3, True)):
        n, hops = int(rng.integers(2, 7)), [0, *(2**i for i in range(least_rounds(K)))]
        xs = -1 - rng.exponential(size=(K, n))  # all negative: an empty buffer of zeros would show
        own = np.array([xs[[(k - h) % K for h in hops]].max(axis=0) for k in range(K)])
        wrong = [
            ("That is the sum, and not the maximum.", np.tile(xs.sum(axis=0), (K, 1))),
            ("Each rank passes on what it brought, and never what it has heard.", own),
        ]
        yield Case(
            tuple((x,) for x in xs),
            partial(_found, xs, real),
            K=K,
            label=f"{workers(K)}, n = {n} elements" + ", real processes" * real,
            world="processes" if real else Simulated(link=Link(1.0, np.inf)),
            mistakes=if_it_were(
                lambda v: lambda run: same_array(run.results, v),
                *(w for w in wrong if (w[1] != xs.max(axis=0)).any()),
            ),
        )


# -- 3 and 4: the chain, however dealt --------------------------------------------------------------------------------


def _furthest(owner: Array, t: int) -> int:
    """From coordinate c on, the owner of spring c goes to the end of its run of springs, once a round."""
    d, c = len(owner) - 1, 0
    for _ in range(t):
        if c >= d:
            break
        mine = owner[c]
        while c <= d and owner[c] == mine:
            c += 1
    return min(c, d)


def _at_once(owner: Array, t: int) -> int:
    """As if within a round each worker knew what those before it have just done."""
    d, c = len(owner) - 1, 0
    for _ in range(t):
        for k in range(max(owner) + 1):
            while c <= d and owner[c] == k:
                c += 1
    return min(c, d)


def _chain(rng: np.random.Generator) -> Iterator[Case]:
    d = int(rng.integers(8, 14))
    springs = np.arange(d + 1)
    splits = {
        "in turn": springs % 2,
        "cut in halves": (springs > d // 2).astype(int),
        "in pairs": springs // 2 % 2,
        "three workers in turn": springs % 3,
        "all on worker 1": np.ones(d + 1, int),
        "at random": rng.integers(0, 2, d + 1),
        "at random, three workers": rng.integers(0, 3, 2 * d),
    }
    for name, owner in splits.items():
        d = len(owner) - 1
        for t in (2, 1, 0, 3, 40):
            c = _furthest(owner, t)
            rounds = next(r for r in range(d + 1) if _furthest(owner, r) == d)
            gap = (1 / (c + 1) - 1 / (d + 1)) / 8
            right = {"reached": c, "first": c / (c + 1), "gap": gap, "rounds": rounds}
            runs = 1 + int(np.count_nonzero(np.diff(owner)))
            wrong = [
                ("One coordinate a round is for springs that are dealt in turn.", "reached", min(t, d)),
                ("Here a worker builds on what another one did in the same round.", "reached", _at_once(owner, t)),
                ("That is a round further than what was exchanged.", "reached", _furthest(owner, t + 1)),
                ("That counts springs: the far end is held, and is no coordinate.", "reached", c + 1),
                ("Are all springs up to the first zero stretched alike there?", "first", 1 - 1 / (d + 1)),
                ("That is how far the first spring is stretched.", "first", 1 / (c + 1)),
                ("That is the least value of f, and not by how much it is above the minimum.", "gap", 1 / (8 * (c + 1))),
                ("What counts is how far the point reaches, and not the number of rounds.", "gap",
                 (1 / (t + 1) - 1 / (d + 1)) / 8),
                ("This is without the factor of the springs' strength.", "gap", 8 * gap),
                ("A round for each coordinate: some workers have several springs in a row.", "rounds", d),
                ("Is the last run of springs needed, if the far end is held?", "rounds", runs),
            ]  # fmt: skip
            label = f"springs {name}: owner = {owner.tolist()}, t = {t}"
            yield Case((owner.copy(), t), steps(right), label=label, mistakes=slips(right, *wrong))


def _hard(quota: list[int], answer: Any) -> None:
    n, rest = sum(quota), sum(quota) - max(quota)
    same_array(np.shape(answer), np.array([n]), "the shape of what you return", rtol=0.0)
    owner = np.array([number(k, "a worker") for k in answer])
    has = [int((owner == k).sum()) for k in range(len(quota))]
    if has != quota:
        raise Wrong(f"the workers have {has} springs, and not as many as they are to have")
    single = n if max(quota) <= rest + 1 else 2 * rest  # springs, from the first on, without a like neighbour
    for t in range(n):
        if (c := _furthest(owner, t)) > (min(t, n - 1) if t <= single else n - 1):
            raise Wrong(f"after {t} rounds {c} coordinates can differ from zero; with another deal fewer can")


def _in_turn(quota: list[int]) -> list[int]:
    return [k for i in range(max(quota)) for k in range(len(quota)) if i < quota[k]]


def _deal(rng: np.random.Generator) -> Iterator[Case]:
    settings = [[4, 4], [3, 5], [5, 2, 2], [2, 2, 5], [1, 1, 8], [6], [1, 2, 3, 4]]
    settings += [[int(q) for q in rng.integers(1, 9, K)] for K in (2, 3, 4, 5)]
    for quota in settings:
        together = [k for k, q in enumerate(quota) for _ in range(q)]
        known = if_it_were(
            lambda v: lambda answer: same_array(answer, np.array(v)),
            ("Each worker's springs lie side by side, and one round takes it to their end.", together),
            ("In turn until somebody runs out: whose are the springs that are left?", _in_turn(quota)),
        )
        known = known if len(quota) > 1 else ()  # one worker has one deal
        yield Case((quota,), partial(_hard, quota), label=f"quota = {quota}", mistakes=known)


# -- 5: a quantiser, and its floor ------------------------------------------------------------------------------------


def _quantised(answer: Any) -> None:
    keys = ("data", "times", "margin", "worth", "factor", "four")
    data = read(dict_of(answer, keys)["data"], settings=5, repeats=10)
    if data.at != (1, 2, 3, 4, 5):
        raise Wrong("the data are to be of 1, 2, 3, 4 and 5 bits a coordinate, in this order")
    mean, R = data.values.mean(axis=1), data.values.shape[1]
    error, floor = data.values.std(axis=1, ddof=1) / np.sqrt(R), 1 / (4.0 ** np.arange(1, 6) - 1)
    ratio, spread = mean[:-1] / mean[1:], 2 * np.hypot(error[1:] / mean[1:], error[:-1] / mean[:-1])
    right = {"times": mean / floor, "margin": 2 * error / floor}
    right |= {"worth": np.log2(1 + 1 / mean) / 2, "factor": ratio}
    wrong = [
        ("This has the floor over what was measured.", "times", floor / mean),
        ("That is the error itself; how many times the least possible is it?", "times", mean),
        ("This takes the floor as if one bit fewer were sent.", "times", mean * (4.0 ** np.arange(5) - 1)),
        ("That is how far single runs scatter, and not how well their mean is known.", "margin",
         2 * error * np.sqrt(R) / floor),
        ("One standard error to either side is too narrow for 95 per cent.", "margin", error / floor),
        ("This margin is not in units of the floor.", "margin", 2 * error),
        ("That takes the logarithm of one over the error, and leaves out what the bound has beside it.", "worth",
         np.log2(1 / mean) / 2),
        ("As if a bit halved the variance at best.", "worth", np.log2(1 + 1 / mean)),
        ("This factor says how much is left, and asked is by how much it is divided.", "factor", 1 / ratio),
        ("That is what the distance to the floor is divided by.", "factor", ratio * floor[1:] / floor[:-1]),
    ]  # fmt: skip
    for step, want in right.items():
        for said, _, value in (w for w in wrong if w[1] == step and np.shape(answer[step]) == (len(want),)):
            if np.allclose(np.asarray(answer[step], float), value, rtol=0.01, atol=0):
                raise Wrong(said)
        same_array(answer[step], want, repr(step), rtol=0.01)
    low, high = ratio * (1 - spread), ratio * (1 + spread)
    said = answer["four"]
    if not isinstance(said, (list, tuple)) or len(said) != 4 or set(said) - {"more", "less", "not decided"}:
        raise Wrong("'four' is a list of four words, each 'more', 'less' or 'not decided'")
    for c, word in enumerate(said, 1):
        fits = {"more": low[c - 1] > 3.98, "less": high[c - 1] < 4.02}
        fits["not decided"] = low[c - 1] < 4.02 and high[c - 1] > 3.98
        if not fits[word]:
            why = "all of the interval lies on the other side of 4"
            why = "an interval that holds 4 decides nothing" if fits["not decided"] else why
            why = "the interval leaves 4 out" if word == "not decided" else why
            raise Wrong(f"from {c} to {c + 1} bits your data say otherwise: {why}")


# -- 6: optimal, of what? ---------------------------------------------------------------------------------------------


def _optimal(rng: np.random.Generator) -> Iterator[Case]:
    for m in (3, 4, 2, 6, 9, int(rng.integers(4, 12))):
        K, link = 2**m, Link(float(rng.uniform(1e-6, 1e-4)), float(rng.uniform(1e8, 1e10)))
        ab, v = link.alpha * link.beta, float(least_bytes(K, 1))
        nbytes = (
            m * ab / v * float(rng.uniform(2, 30)) ** (1 if m % 2 else -1)
        )  # to either side of where both tie
        took, latency_s, bytes_s = (
            float(halving.time(K, nbytes, link)),
            m * link.alpha,
            v * nbytes / link.beta,
        )
        left = 1 - float(least_time(K, nbytes, link)) / took
        right = {"doubling": m * ab / (m - v), "worst": m * ab / v, "tenth": 20 * m * ab / v, "left": left}
        right["switch"] = 1 / v
        wrong = [
            ("This lets doubling send no more than halving does.", "doubling", m * ab),
            ("This compares bytes with bytes; rounds are saved, too, and by how many?", "doubling", 2 * m * ab / (m - v)),
            ("There its own latency and bytes cost the same; how does the bound go on from there?", "worst", 2 * m * ab / v),
            ("There another algorithm is as fast; this one's distance is asked from the bound.", "worst", m * ab / (m - v)),
            ("This is where it takes at most 1.1 times as long as its bytes' bound with half of its rounds.", "tenth",
             10 * m * ab / v),
            ("Latency is to be a tenth of the bound, and not of the whole.", "tenth", 18 * m * ab / v),
            ("That is by how much it is above the bound, and not what part of its time could go.", "left",
             took / (took * (1 - left)) - 1),
            ("This adds the two bounds; is their sum one?", "left", 1 - (latency_s + bytes_s) / took),
            ("That is the part that must remain.", "left", 1 - left),
            ("This takes the lower of two bounds.", "left", 1 - min(latency_s, bytes_s) / took),
            ("This is how many times more halving sends, and not the other way round.", "switch", v),
            ("With a switch that adds, who needs to send anything twice?", "switch", 1.0),
        ]  # fmt: skip
        label = f"K = {K}, {nbytes:.0f} bytes, alpha = {link.alpha * 1e6:.3g} µs, beta = {link.beta / 1e9:.3g} GB/s"
        yield Case(
            (K, nbytes, link.alpha, link.beta), steps(right), label=label, mistakes=slips(right, *wrong)
        )


# fmt: off
EXERCISES = (
    Exercise("10.9-1", "Bounds with bystanders", "derive", 3, "bystanders", _bystanders, objectives=(1,)),
    Exercise("10.9-2", "Everyone's maximum in the fewest rounds", "build", 3, "fewest_rounds_max", _maximum,
             objectives=(1,)),
    Exercise("10.9-3", "A chain, however dealt", "derive", 3, "chain_steps", _chain, objectives=(2,)),
    Exercise("10.9-4", "Make it hard", "build", 3, "deal", _deal, objectives=(2,)),
    Exercise("10.9-5", "How far above the floor?", "measure", 4, "", lambda rng: [Case((), _quantised)],
             objectives=(3,)),
    Exercise("10.9-6", "Optimal, of what?", "criticise", 3, "optimal", _optimal, objectives=(1, 4)),
)
