"""Problem set 10.5: half an all-reduce, a price on a plot, bytes, a bandwidth, a deadlock, a link measured, and seats.

Sources: Patarasuk and Yuan 2009 (ring), Chan et al. 2007 (tree), Hockney 1994 (alpha-beta, half of the speed), the README of
nccl-tests (bus bandwidth). Chunk i of n elements is those from i n // K to (i + 1) n // K. Symbols: K workers, n elements,
``nbytes`` bytes, alpha and beta of the link.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from labkit.collectives import ring
from labkit.comm import Run, Simulated
from labkit.network import Link
from labkit_book.problems.drawn import curve, labelled, shown
from labkit_book.problems.exercise import Case, Exercise, Wrong, close, number, same_array
from labkit_book.problems.measured import read
from labkit_book.problems.sets import Array, dict_of, if_it_were, slips, spoke, steps, workers


def _edges(K: int, n: int) -> Array:
    return np.arange(K + 1) * n // K


def _refuse(*found: tuple[Any, str]) -> None:
    """Wrong, with the first sentence that holds."""
    for holds, said in found:
        if holds:
            raise Wrong(said)


# -- 1: half an all-reduce, in a given order --------------------------------------------------------------------------

SLOW_S = 1000.0  # of a message off the ring, where one along it takes a second


def _every_rank(wanted: list[Array], run: Run) -> None:
    for k, (given, want) in enumerate(zip(run.results, wanted, strict=True)):
        same_array(given, want, f"what rank {k} returned", rtol=1e-9, atol=1e-9)


def _scattered(mine: list[Array], order: Array, real: bool, run: Run) -> None:
    K, n = len(mine), sum(map(len, mine))
    for k, given in enumerate(run.results):
        if (sent := 8 * (n - len(mine[k]))) and given is not None:
            spoke(run, k, "its part of the sum")
        for i, chunk in enumerate(mine):
            if i != k and len(chunk) and np.shape(given) == chunk.shape and np.allclose(given, chunk):
                where = "whose number is its place in the order" if order[i] == k else f"of rank {i}"
                raise Wrong(f"rank {k} returned a finished chunk, but the one {where}")
        than = "more" if run.bytes_sent[k] > sent else "fewer"
        _refuse(
            (sent != run.bytes_sent[k], f"rank {k} sent {than} bytes than all chunks but one have"),
            (run.messages_sent[k] > K - 1, f"rank {k} sent more messages than there are other ranks"),
        )
    _every_rank(mine, run)
    took_s = 0 if real else run.elapsed_s
    _refuse(
        (took_s >= SLOW_S, "a message went to a rank that does not come next in the order"),
        (took_s > K - 1, "the ranks wait for one another, longer than K - 1 rounds take"),
    )


def _reduce_scatter(rng: np.random.Generator) -> Iterator[Case]:
    for K, n in ((4, 12), (3, 9), (1, 5), (2, 7), (3, 2), (5, 13), (4, 3), (6, 20), (3, 7)):
        real = (K, n) == (3, 7)
        xs, order, edges = rng.standard_normal((K, n)), rng.permutation(K), _edges(K, n)
        total, after = xs.sum(axis=0), dict(zip(order, np.roll(order, -1), strict=True))
        mine = [total[a:b] for a, b in pairwise(edges)]

        def link(source: int, to: int, after: Any = after) -> Link:
            return Link(1.0 if after[source] == to else SLOW_S, np.inf)

        even = [total[k * (n // K) : (k + 1) * (n // K)] for k in range(K)]
        own, kept = ([xs[of[k]][a:b] for k, (a, b) in enumerate(pairwise(edges))] for of in (range(K), after))
        mistakes = if_it_were(
            lambda value: partial(_every_rank, value),
            ("Each rank returns what it brought itself: to this chunk nobody has added anything.", own),
            ("Of each chunk the share of one single rank is left: nothing has been added up.", kept),
            ("As if all chunks had n // K elements: some elements are then in nobody's chunk.", even),
        )
        label = f"{workers(K)}, n = {n} elements, order {order.tolist()}" + ", real processes" * real
        yield Case(
            tuple((x, order.tolist()) for x in xs),
            partial(_scattered, mine, order, real),
            K=K,
            label=label,
            world="processes" if real else Simulated(link=link),
            mistakes=mistakes[: 2 + (n % K > 0)] if K > 1 else (),
        )


# -- 2: price and clock on one plot -----------------------------------------------------------------------------------


def _plotted(x: Array, quickest: Array, price: Array, half: float, answer: Any) -> None:
    axes = shown(answer)
    for axis, unit in (("x", "kB"), ("y", "ms")):
        labelled(axes, axis, unit)
    log = axes["xscale"] == axes["yscale"] == "log"
    _refuse((not log, "Sizes span a factor of thousands: here most points lie in one corner."))
    curve(axes, x, quickest, "the quickest of the repeats")
    curve(axes, x, price, "the price of the ring")
    lines = [(c["label"], np.asarray(c["x"], float)) for c in axes["curves"]]
    at = np.array([line[0] for _, line in lines if len(line) > 1 and np.ptp(line) == 0])
    names = [name for name, line in lines if len(line) == len(x) and not name.startswith("_")]
    _refuse(
        (not len(at), "no vertical line shows where latency and bytes cost the same"),
        (not np.isclose(at, half).any(), "the vertical line is not where half of the price is latency"),
        (not axes["legend"], "which curve is measured, which is the price? There is no legend"),
        (names and len(set(names)) < 2, "the legend does not tell the two curves apart"),
    )


def _plot(rng: np.random.Generator) -> Iterator[Case]:
    for K in (4, 6):
        link = Link(float(rng.uniform(5e-5, 3e-4)), float(rng.uniform(1e7, 1e8)))
        sizes = np.array([1e3, 1e4, 4e4, 2e5, 1e6, 4e6])
        slower = 1.1 + rng.exponential(0.2, (6, 5)) + np.geomspace(1, 0.01, 6)[:, None]
        price, half = ring.time(K, sizes, link), K * link.alpha * link.beta / 1e3
        seconds, bytes_ms = price[:, None] * slower, 2e3 * (K - 1) * sizes / link.beta
        x, quickest, price = sizes / 1e3, 1e3 * seconds.min(axis=1), 1e3 * price
        mistakes = if_it_were(
            lambda line: lambda answer: curve(shown(answer), line[0], line[1], ""),
            ("The median of the repeats has other programs in it.", (x, 1e3 * np.median(seconds, axis=1))),
            ("These heights are seconds, and the task asks for ms.", (x, quickest / 1e3)),
            ("This prices each message as the whole vector.", (x, price + (1 - 1 / K) * bytes_ms)),
            ("This price has the bytes and no latency.", (x, bytes_ms / K)),
            ("This prices a reduce-scatter, which is half of the matter.", (x, price / 2)),
            ("The vertical line stands as if a message held the whole vector.", ([half / K] * 2, [0, 1])),
        )
        judge = partial(_plotted, x, quickest, price, half)
        yield Case((sizes, seconds, K, link.alpha, link.beta), judge, label=workers(K), mistakes=mistakes)


# -- 3: bytes where K does not divide n -------------------------------------------------------------------------------


def _bytes(rng: np.random.Generator) -> Iterator[Case]:
    settings = [(4, 12), (3, 8), (2, 7), (1, 6), (5, 3)]
    settings += [(int(rng.integers(4, 40)), int(rng.integers(1, 2000))) for _ in range(6)]
    for K, n in settings:
        itemsize, r = int(rng.choice([4, 8])), np.arange(K)
        size = np.diff(_edges(K, n))
        sent = itemsize * (2 * n - size[(r + 1) % K] - size[(r + 2) % K])
        right: dict[str, Any] = {
            "first": (r + 1) % K,
            "second": (r + 2) % K,
            "sent": sent,
            "all": 2 * (K - 1) * n * itemsize,
            "longest": 2 * (K - 1) * -(-n // K) * itemsize,
        }
        wrong = [
            ("Rank r begins with chunk r, so this is one that it does send.", "first", r),
            ("That chunk is left out in the other half.", "first", (r + 2) % K),
            ("As if each half left out the same chunk: who has what between the halves?", "second", (r + 1) % K),
            ("That is the average of all ranks; chunks differ.", "sent", np.full(K, right["all"] / K)),
            ("This has every chunk as long as the longest.", "sent", np.full(K, right["longest"])),
            ("That is K times the busiest rank, and not all ranks are as busy.", "all", K * sent.max()),
            ("That is the busiest rank's bytes. Is it the one with the longest message in every round?", "longest",
             sent.max()),
            ("This takes the average chunk of a round; who has to wait?", "longest", right["all"] / K),
        ]  # fmt: skip
        for step in ("sent", "all", "longest"):
            wrong.append(("These are elements, and not bytes.", step, right[step] / itemsize))
            wrong.append(("That is one half of the all-reduce.", step, right[step] / 2))
        label = f"{workers(K)}, n = {n} elements of {itemsize} bytes"
        yield Case((K, n, itemsize), steps(right), label=label, mistakes=slips(right, *wrong))


# -- 4: ninety per cent of the bandwidth ------------------------------------------------------------------------------


def _claimed(right: dict[str, float], answer: Any) -> None:
    """As ``steps``, but a thousandth of a byte is near enough, for those who search and don't solve."""
    if isinstance(answer, dict) and "tie" in answer:
        near = abs(number(answer["tie"], "step 'tie'") - right["tie"]) < 1e-3
        answer = answer | {"tie": right["tie"]} if near else answer
    steps(right, 1e-6)(answer)


def _ninety(rng: np.random.Generator) -> Iterator[Case]:
    for K in (16, 8, 6, 33, 2, 3, int(rng.integers(65, 600))):
        link = Link(float(rng.uniform(1e-6, 1e-4)), float(rng.uniform(1e8, 1e10)))
        ab, L, bus = link.alpha * link.beta, (K - 1).bit_length(), 2 * (K - 1) / K
        tie = ab * (K - 1 - L) / (L - (K - 1) / K)
        right = {"from": 9 * K * ab, "pace": 0.9 / bus, "halving": 10 * (K - 1) / (L + 9 * (K - 1))}
        right |= {"tree": (K - 1) / (K * L), "tie": tie}
        wrong = [
            ("As if each message of the ring were the whole vector.", "from", 9 * ab),
            ("That is where latency takes 10 % of what the bytes take, and not of the whole.", "from", 10 * K * ab),
            ("That is the bus bandwidth again. How many vectors is a second worth?", "pace", 0.9),
            ("The factor between the two bandwidths goes the other way.", "pace", 0.9 * bus),
            ("That is the ratio of the rounds, as if bytes took no time.", "halving", (K - 1) / L),
            ("As if halving had no latency at all.", "halving", 10 / 9),
            ("That is a vector's pace in the tree, without the factor of the bus bandwidth.", "tree", 0.5 / L),
            ("So fast is the way up; the sum has yet to come down.", "tree", 2 * right["tree"]),
            ("This has the rounds of a K that is a power of two.", "tie",
             ab * (K - 1 - np.log2(K)) / (np.log2(K) - (K - 1) / K)),
        ]  # fmt: skip
        label = f"K = {K}, alpha = {link.alpha * 1e6:.3g} µs, beta = {link.beta / 1e9:.3g} GB/s"
        mistakes = slips(right, *wrong, rtol=1e-6)
        yield Case((K, link.alpha, link.beta), partial(_claimed, right), label=label, mistakes=mistakes)


# -- 5: a deadlock ----------------------------------------------------------------------------------------------------


def _followed(K: int, plan: Any) -> None:
    """Carry out the calls, each message as soon as both its ends stand in it: one unit of time, both ends busy."""
    try:
        plan = [[(str(what), int(number(whom, "a rank"))) for what, whom in calls] for calls in plan]
    except (TypeError, ValueError):
        plan = []
    _refuse((len(plan) != K, f"return a list of K lists of pairs, here K = {K}"))
    for k, calls in enumerate(plan):
        right, left = (k + 1) % K, (k - 1) % K
        wanted = [("send", right), ("send", left), ("recv", left), ("recv", right)] if K > 1 else []
        whole = sorted(calls) == sorted(wanted)
        _refuse((any(whom == k for _, whom in calls), f"rank {k} calls itself"))
        _refuse((not whole, f"rank {k} has not one send and one recv for each neighbour, and nothing else"))
    at, clock = [0] * K, [0] * K
    now = {k: plan[k][0] for k in range(K) if plan[k]}
    while now:
        ready = [k for k, (what, to) in now.items() if what == "send" and now.get(to) == ("recv", k)]
        if not ready:
            said = [f"rank {k} in {what}({whom})" for k, (what, whom) in now.items()]
            raise Wrong(f"nobody can go on: {', '.join(said[:6])}")
        for k in ready:
            to = now[k][1]
            clock[k] = clock[to] = max(clock[k], clock[to]) + 1
            for end in (k, to):
                at[end] += 1
                now.pop(end)
                if at[end] < len(plan[end]):
                    now[end] = plan[end][at[end]]
    _refuse((max(clock) > 6, f"it ends, but takes as long as {max(clock)} messages one after the other"))


def _deadlock(rng: np.random.Generator) -> Iterator[Case]:
    for K in (4, 3, 2, 5, 1, 7, 10, int(rng.integers(15, 40)), 41):
        yield Case((K,), partial(_followed, K), label=workers(K))


# -- 6: a link that is measured ---------------------------------------------------------------------------------------

RING_BYTES = 600_000


def _measured(answer: Any) -> None:
    keys = ("data", "alpha", "beta", "predicted", "low", "high", "chance", "prediction")
    data = read(dict_of(answer, keys)["data"], settings=6, repeats=6)
    sizes = np.array([x for x in data.at if not isinstance(x, str)], float)
    if len(sizes) < 5 or "ring" not in data.at:
        raise Wrong("the data need five sizes of message at least, and the setting 'ring'")
    medians = np.median([v for x, v in zip(data.at, data.values, strict=True) if x != "ring"], axis=1)
    ran = data.values[data.at.index("ring")]
    alpha, beta, predicted, low, high, chance = (number(answer[k], k) for k in keys[1:-1])
    _refuse(
        (beta <= 1, "this beta is no speed in bytes per second; is it what one byte costs?"),
        (alpha > 20 * medians.min(), "this alpha is longer than a whole message took: in which unit is it?"),
    )

    def like(weights: Array) -> bool:
        """Whether the line is, to three digits, the one with the least squares of the misses with these weights."""
        line = np.linalg.lstsq(np.column_stack([weights, weights * sizes]), weights * medians, rcond=None)[0]
        apart = np.column_stack([1 / medians, sizes / medians]) @ (line - [alpha, 1 / beta])
        return bool(abs(apart).max() < 0.015)

    loose = not like(1 / medians)
    price = 6 * (alpha + RING_BYTES / 4 / beta)  # of a ring of four
    by = {
        "This predicts one message of all the bytes, and a ring has more to do.": alpha + RING_BYTES / beta,
        "This prices every message of the ring as long as the vector.": 6 * (alpha + RING_BYTES / beta),
        "This prices one half of the ring.": price / 2,
        "That is what was measured, and so no prediction.": np.median(ran),
    }
    off = abs(predicted / price - 1) > 0.01
    both, r = 1 - 2 * 0.5 ** len(ran), 0.01
    unsure = abs(chance - both) > max((1 - both) / 4, 0.0005)
    _refuse(
        (loose and like(medians**0), "To this fit a short message's relative miss hardly matters."),
        (loose, "Another line is nearer to the medians, relative to each of them."),
        *((off and abs(predicted / other - 1) < r, said) for said, other in by.items()),
        (off, "predicted is not the price of that ring by your own alpha and beta"),
        (abs(low / ran.min() - 1) > r, "low is not what the task says of your rings' times"),
        (abs(high / ran.max() - 1) > r, "high is not what the task says of your rings' times"),
        (unsure and (both < chance < 1), "This chance forgets one side on which the median may lie."),
        (unsure, "the chance: how could all of so many repeats miss the median?"),
    )
    fits = {
        "too short": predicted < (1 + r) * low,
        "inside": (1 - r) * low <= predicted <= (1 + r) * high,
        "too long": predicted > (1 - r) * high,
    }
    _refuse(
        (answer["prediction"] not in fits, f"the prediction is one of {', '.join(map(repr, fits))}"),
        (not fits.get(answer["prediction"]), "your own numbers do not say so of the prediction"),
    )


# -- 7: who sits where ------------------------------------------------------------------------------------------------


def _seated(best: str, nbytes: int, answer: Any) -> None:
    pair = isinstance(answer, (tuple, list)) and len(answer) == 2
    _refuse((not pair, f"return a pair (seating, bytes), not {answer!r:.60}"))
    _refuse((answer[0] not in ("packed", "in turn"), f"no seating is called {answer[0]!r:.20}"))
    close(answer[1], float(nbytes), "the bytes through a host's port", rtol=0.0)
    _refuse((answer[0] != best, "the bytes are right, and yet the task asks for the other seating here"))


def _seats(rng: np.random.Generator) -> Iterator[Case]:
    for K, H in ((12, 3), (8, 2), (8, 4), (6, 2), (4, 4), (int(rng.integers(2, 6)) * 4, 4)):
        around = [(1, 960)] * (2 * (K - 1))  # a ring
        far = [(K // 2, 3840), (K // 4 or 1, 1920), (1, 960)]
        hops, lengths = rng.integers(1, K, 5), rng.integers(1, 10**6, 5)
        some = [(int(h), int(m)) for h, m in zip(hops, lengths, strict=True)]
        alone = [(H, 500)] * 3 if H < K else []  # in turn, nothing leaves
        for rounds in (around, far, some, alone):
            seats = {"packed": np.arange(K) // (K // H), "in turn": np.arange(K) % H}

            def leave(host: Array, bend: int, rounds: Any = rounds) -> int:
                pairs = [(k, k + h, m) for h, m in rounds for k in range(len(host)) if k + h < bend]
                return sum(m for k, to, m in pairs if host[k] == 0 != host[to % len(host)])

            least = {name: leave(host, 2 * K) for name, host in seats.items()}
            best = min(least, key=lambda name: least[name])  # packed if they tie
            few = "Here the last ranks have no partner: who is round the corner?"
            wrong = [
                ("Through a host that is seated so more leaves than need be.", max(least.values())),
                ("That counts the bytes of all hosts together; each has a port of its own.", H * least[best]),
                ("In and out are two directions, and this adds them.", 2 * least[best]),
                ("Some of these messages stay inside the host.", K // H * sum(m for _, m in rounds)),
                *((few, short) for name, host in seats.items() if (short := leave(host, K)) != least[name]),
            ]
            other = [(said, v) for said, v in wrong if v != least[best]]
            mistakes = if_it_were(lambda v: lambda answer: close(answer[1], v, rtol=0.0), *other)
            judge, label = partial(_seated, best, least[best]), f"K = {K} workers on H = {H} hosts"
            yield Case((K, H, rounds), judge, label=label, mistakes=mistakes)


_HALF = tuple(f"labkit.collectives.reduce_scatter.{way}" for way in ("__call__", "inplace", "among"))
_OWN = ("ring.bytes", "reduce_scatter.bytes", "all_gather.bytes", "reduce_scatter._sent", "all_gather._sent")
_RING_BYTES = tuple(f"labkit.collectives.{name}" for name in _OWN)  # all others are made of these
# fmt: off
EXERCISES = (
    Exercise("10.5-1", "Reduce-scatter in the order of the seats", "build", 3, "reduce_scatter", _reduce_scatter,
             objectives=(1,), withheld=_HALF),
    Exercise("10.5-2", "Price and clock on one plot", "plot", 2, "price_plot", _plot, objectives=(2, 4)),
    Exercise("10.5-3", "A ring whose chunks differ", "derive", 3, "ring_counts", _bytes, objectives=(1, 2),
             withheld=_RING_BYTES),
    Exercise("10.5-4", "Ninety per cent of the bandwidth", "criticise", 3, "ninety", _ninety, objectives=(2,),
             withheld=("labkit.collectives.crossovers",)),
    Exercise("10.5-5", "Mend a deadlock", "debug", 3, "mended", _deadlock, objectives=(3,)),
    Exercise("10.5-6", "A link, and a run foretold", "measure", 4, "", lambda rng: [Case((), _measured)],
             objectives=(4, 5)),
    Exercise("10.5-7", "Who sits where?", "build", 2, "seat", _seats, objectives=(6,)),
)
