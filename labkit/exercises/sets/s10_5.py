"""Problem set 10.5: the halves of a ring, its bytes, its rival, a deadlock, a slow port, and who sits on which host.

Sources: Patarasuk and Yuan 2009 (ring), Chan et al. 2007 (tree), Hockney 1994 (alpha-beta). Chunk i of n elements is
those from i n // K to (i + 1) n // K. Symbols: K workers, n elements, ``nbytes`` bytes, alpha and beta of the link.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from labkit.collectives import ring, tree
from labkit.comm import Run, Simulated
from labkit.exercises.exercise import Case, Exercise, Wrong, close, number, same_array
from labkit.network import Link

LENGTHS = {1: (5,), 2: (6, 7), 3: (9, 11, 2), 4: (12, 10, 3), 5: (20, 13, 4)}


def _edges(K: int, n: int) -> list[int]:
    return [i * n // K for i in range(K + 1)]


def _shape(K: int, n: int) -> str:
    return f"K = {K} worker{'s' * (K > 1)}, n = {n} elements"


def _settings() -> Iterator[tuple[int, int]]:
    return ((K, n) for K, lengths in LENGTHS.items() for n in lengths)


def _every_rank(run: Run, wanted: list[np.ndarray]) -> None:
    for k, (given, want) in enumerate(zip(run.results, wanted, strict=True)):
        if isinstance(given, tuple):
            raise Wrong(f"rank {k} returned a tuple of {len(given)}; return the array alone")
        same_array(given, want, f"what rank {k} returned", rtol=1e-9, atol=1e-9)


def _some_bytes(run: Run, wanted: np.ndarray) -> None:
    """Whoever has something to send has sent something: said before anything about wrong values."""
    for k, (sent, want) in enumerate(zip(run.bytes_sent, wanted, strict=True)):
        if sent == 0 < want and run.results[k] is not None:
            raise Wrong(f"rank {k} sent no bytes at all, so its data cannot have got anywhere")


def _traffic(run: Run, wanted: np.ndarray, rounds: int) -> None:
    """Each rank's bytes to the byte, and not more messages than rounds."""
    for k, (sent, want) in enumerate(zip(run.bytes_sent, wanted, strict=True)):
        if sent != want:
            raise Wrong(
                f"rank {k} sent {sent} bytes, {'more' if sent > want else 'fewer'} than the ring makes it send: "
                f"one chunk per round, and each rank skips just one chunk"
            )
        if run.messages_sent[k] > rounds:
            raise Wrong(f"rank {k} sent {run.messages_sent[k]} messages; the ring has K - 1, one per round")


# -- 1 and 2: the two halves ------------------------------------------------------------------------------------------


def _chunks_in_place(run: Run, mine: list[np.ndarray]) -> None:
    """Say so if a rank has a finished chunk, but another rank's."""
    for k, given in enumerate(run.results):
        for i, chunk in enumerate(mine):
            if (
                i != k
                and len(chunk)
                and np.shape(given) == chunk.shape
                and np.allclose(given, chunk, rtol=1e-9)
            ):
                raise Wrong(f"rank {k} returned a finished chunk, but that of rank {i}")


def _reduce_scatter(rng: np.random.Generator) -> Iterator[Case]:
    for K, n in _settings():
        xs = rng.standard_normal((K, n))
        edges = _edges(K, n)
        total = xs.sum(axis=0)
        mine = [total[edges[k] : edges[k + 1]] for k in range(K)]
        left_out = np.diff(edges)  # rank k keeps chunk k to the end: the one it never sends

        def judge(run: Run, mine: Any = mine, sent: Any = 8 * (n - left_out), K: int = K) -> None:
            _some_bytes(run, sent)
            _chunks_in_place(run, mine)
            _every_rank(run, mine)
            _traffic(run, sent, K - 1)

        yield Case(tuple((x,) for x in xs), judge, K=K, label=_shape(K, n))


def _all_gather(rng: np.random.Generator) -> Iterator[Case]:
    for K, n in _settings():
        whole = rng.standard_normal(n)
        edges = _edges(K, n)
        left_out = np.roll(np.diff(edges), -1)  # the right neighbour's own chunk comes last, and stays

        def judge(run: Run, whole: Any = whole, sent: Any = 8 * (n - left_out), K: int = K) -> None:
            _some_bytes(run, sent)
            _every_rank(run, [whole] * K)
            _traffic(run, sent, K - 1)

        args = tuple((whole[edges[k] : edges[k + 1]].copy(), n) for k in range(K))
        yield Case(args, judge, K=K, label=_shape(K, n))


# -- 3: its bytes -----------------------------------------------------------------------------------------------------


def _bytes(rng: np.random.Generator) -> Iterator[Case]:
    settings = [(4, 12), (1, 6), (2, 7), (3, 8), (5, 3)]
    settings += [(int(rng.integers(3, 40)), int(rng.integers(0, 2000))) for _ in range(6)]
    for K, n in settings:
        itemsize = int(rng.choice([2, 4, 8]))
        counts = ring.bytes(K, n, itemsize)

        def judge(answer: Any, K: int = K, want: Any = counts) -> None:
            if np.shape(answer) != (K,):
                shape = np.shape(answer)
                raise Wrong(
                    f"return one number of bytes per rank, {K} of them, not something of shape {shape}"
                )
            for k, (given, right) in enumerate(zip(answer, want, strict=True)):
                close(given, float(right), f"the count for rank {k}", rtol=0.0)

        yield Case((K, n, itemsize), judge, label=f"{_shape(K, n)} of {itemsize} bytes")


# -- 4: the tree's last stand -----------------------------------------------------------------------------------------


def _crossover(rng: np.random.Generator) -> Iterator[Case]:
    for K in (16, 8, 6, 33, 2, 3, int(rng.integers(65, 600))):
        link = Link(float(rng.uniform(1e-6, 1e-4)), float(rng.uniform(1e8, 1e10)))

        def judge(answer: Any, K: int = K, link: Link = link) -> None:
            size = number(answer, "the size")
            if size < 0:
                raise Wrong(f"a size cannot be negative, but yours is {size:.6g} bytes")
            lead = [ring.time(K, n, link) - tree.time(K, n, link) for n in (0.0, 1e6)]  # a straight line in n
            tie = 1e6 * lead[0] / (lead[0] - lead[1])
            if abs(size - tie) > 1e-3:  # a thousandth of a byte, for those who search and don't solve
                close(size, tie, "the size", rtol=1e-6)

        label = f"K = {K}, alpha = {link.alpha * 1e6:.3g} µs, beta = {link.beta / 1e9:.3g} GB/s"
        yield Case((K, link.alpha, link.beta), judge, label=label)


# -- 5: a deadlock to mend --------------------------------------------------------------------------------------------


def _neighbours(rng: np.random.Generator) -> Iterator[Case]:
    link = Link(1e-5, 1e9)
    for K in (2, 3, 4, 5, 1):
        n = int(rng.integers(2, 9))
        xs = rng.standard_normal((K, n))

        def judge(run: Run, xs: Any = xs, K: int = K) -> None:
            for k, given in enumerate(run.results):
                if not (isinstance(given, (tuple, list)) and len(given) == 2):
                    raise Wrong(f"rank {k} should return (from_left, from_right), but returned {given!r:.60}")
                if K > 2 and np.array_equal(given[0], xs[(k + 1) % K]):
                    raise Wrong(f"rank {k}'s from_left is what its right neighbour brought")
                same_array(given[0], xs[(k - 1) % K], f"rank {k}'s from_left", rtol=0.0)
                same_array(given[1], xs[(k + 1) % K], f"rank {k}'s from_right", rtol=0.0)
                most = 2 if K > 1 else 0
                if run.messages_sent[k] != most:
                    raise Wrong(
                        f"rank {k} sent {run.messages_sent[k]} where {most} should do: one message to each "
                        f"neighbour, and none to itself"
                    )

        yield Case(tuple((x,) for x in xs), judge, K=K, label=_shape(K, n), world=Simulated(link=link))


# -- 6: a link read off a clock ---------------------------------------------------------------------------------------


def _slow_port(rng: np.random.Generator) -> Iterator[Case]:
    for K, hiccup in ((3, False), (4, False), (5, True), (8, True)):
        for direction in ("out", "in"):
            slow = int(rng.integers(K))
            seconds = np.full((K, K), float(rng.uniform(1e-3, 1e-1)))
            if direction == "out":
                seconds[slow, :] *= rng.uniform(1.5, 4.0)
            else:
                seconds[:, slow] *= rng.uniform(1.5, 4.0)
            seconds *= rng.uniform(0.95, 1.05, (K, K))
            if hiccup:  # one message between two healthy ports had bad luck, and is the slowest of all
                a, b = rng.choice([k for k in range(K) if k != slow], 2, replace=False)
                seconds[a, b] = 20 * np.max(seconds)
            np.fill_diagonal(seconds, np.nan)

            def judge(answer: Any, slow: int = slow, direction: str = direction) -> None:
                if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
                    raise Wrong(f"return a pair (rank, direction), not {answer!r:.60}")
                rank, way = answer
                if way not in ("out", "in"):
                    raise Wrong(f"the direction must be 'out' or 'in', not {way!r:.20}")
                if number(rank, "the rank") != slow:
                    raise Wrong(f"rank {rank} is not the one whose port is slow")
                if way != direction:
                    raise Wrong("that is the rank, but it is its other direction that is slow")

            said = f"K = {K}" + (", and one message that had bad luck" if hiccup else "")
            yield Case((seconds,), judge, label=said)


# -- 7: who sits where ------------------------------------------------------------------------------------------------


def _seats(rng: np.random.Generator) -> Iterator[Case]:
    for K, H in ((8, 2), (8, 4), (6, 2), (12, 3), (4, 4), (int(rng.integers(2, 6)) * 4, 4)):
        around = [(1, 960)] * (2 * (K - 1))  # a ring
        far = [(K // 2, 3840), (K // 4 or 1, 1920), (1, 960)]
        some = [
            (int(h), int(m)) for h, m in zip(rng.integers(1, K, 5), rng.integers(1, 10**6, 5), strict=True)
        ]
        alone = [(H, 500)] * 3 if H < K else []  # in turn, nothing leaves
        for rounds in (around, far, some, alone):
            least = {
                name: sum(m * sum(host[k] == 0 != host[(k + h) % K] for k in range(K)) for h, m in rounds)
                for name, host in (("packed", np.arange(K) // (K // H)), ("in turn", np.arange(K) % H))
            }
            best = min(least, key=lambda name: least[name])  # packed if they tie

            def judge(answer: Any, best: str = best, nbytes: int = least[best]) -> None:
                if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
                    raise Wrong(f"return a pair (seating, bytes), not {answer!r:.60}")
                if answer[0] not in ("packed", "in turn"):
                    raise Wrong(f"the seating must be 'packed' or 'in turn', not {answer[0]!r:.20}")
                close(answer[1], float(nbytes), "the bytes through a host's port", rtol=0.0)
                if answer[0] != best:
                    raise Wrong("the bytes are right, but it is the other seating that has them")

            yield Case((K, H, rounds), judge, label=f"K = {K} workers on H = {H} hosts")


EXERCISES = (
    Exercise(
        "10.5-1",
        "Reduce-scatter around the ring",
        "build",
        3,
        "reduce_scatter",
        _reduce_scatter,
        objectives=(1,),
        withheld=tuple(
            f"labkit.collectives.reduce_scatter.{way}" for way in ("__call__", "inplace", "among")
        ),
    ),
    Exercise(
        "10.5-2",
        "All-gather around the ring",
        "build",
        2,
        "all_gather",
        _all_gather,
        objectives=(1,),
        withheld=tuple(f"labkit.collectives.all_gather.{way}" for way in ("__call__", "inplace", "among")),
    ),
    Exercise(
        "10.5-3",
        "The bytes each rank sends",
        "build",
        2,
        "bytes_each_rank_sends",
        _bytes,
        objectives=(1, 2),
        withheld=(
            "labkit.collectives.ring.bytes",
            "labkit.collectives.reduce_scatter.bytes",
            "labkit.collectives.all_gather.bytes",
            "labkit.collectives.reduce_scatter._sent",  # of which all others are made
            "labkit.collectives.all_gather._sent",
        ),
    ),
    Exercise(
        "10.5-4",
        "Where tree and ring tie",
        "build",
        2,
        "tie_bytes",
        _crossover,
        objectives=(2,),
        withheld=("labkit.collectives.crossovers",),
    ),
    Exercise("10.5-5", "Mend a deadlock", "debug", 3, "swap_with_neighbours", _neighbours, objectives=(3,)),
    Exercise("10.5-6", "Which port is slow?", "build", 2, "slow_port", _slow_port, objectives=(4, 5)),
    Exercise("10.5-7", "Who sits where?", "build", 2, "seat", _seats, objectives=(6,)),
)
