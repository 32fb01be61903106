"""Problem set 10.7: fewer bytes.

Sources: Karimireddy et al. 2019 (memory), Stich 2019 (local steps), Karimireddy et al. 2020 (control variates), DiLoCo
(2023). Symbols: d coordinates, k coordinates kept, K workers, H local steps, alpha and beta of a link.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from labkit.comm.run import Run
from labkit_book.problems.exercise import Case, Exercise, Wrong, same_array
from labkit_book.problems.sets import Array, as_if, derived, each_rank, talked

# -- 1: four bits that lose nothing ----------------------------------------------------------------------------------


def _bits(rng: np.random.Generator) -> Iterator[Case]:
    for K, d, R in ((1, 64, 80), (2, 128, 120), (3, 64, 120)):
        # Nearly the same at every meeting: what rounding takes away once, it takes away each time.
        G = rng.standard_normal((K, 1, d)) + 0.05 * rng.standard_normal((K, R, d))
        yield Case(tuple((g,) for g in G), partial(_loses_nothing, G=G), K, f"K = {K}, {R} meetings, d = {d}")


def _loses_nothing(run: Run, G: Array) -> None:
    K, R, d = G.shape
    formula = "36 bytes for each 64 numbers, and 8, to each other rank"
    talked(run, R * (K - 1) * (36 * d // 64 + 8), formula, "how far it has moved")
    for rank, given in enumerate(run.results):
        same_array(given, np.zeros((R, d)), f"what rank {rank} returns", atol=1e12)
        if np.asarray(given).tobytes() != np.asarray(run.results[0]).tobytes():
            raise Wrong("the ranks hold different bits: each must take its own part as the others read it")
    given, most = np.asarray(run.results[0], float), 0.5 * np.abs(G).max()
    off = np.abs(np.cumsum(given - G.mean(axis=0), axis=0)).max(axis=1)
    if off.max() <= most:
        return
    if K > 1 and np.abs(np.cumsum(given - G.sum(axis=0), axis=0)).max() <= K * most:
        raise Wrong("this is the sum of what the workers have to say, not its mean")
    how = "with every meeting" if off[-1] > 3 * off[R // 4 - 1] else "as a walk does"
    after = int(np.argmax(off > most)) + 1
    said = "the sum of all means is off by more than half of the largest number"
    raise Wrong(f"after {after} meetings {said}; the error grows {how}")


# -- 2: a hook -------------------------------------------------------------------------------------------------------


def _hook(rng: np.random.Generator) -> Iterator[Case]:
    for K, world in ((1, "simulated"), (2, "simulated"), (3, "simulated"), (2, "processes")):
        yield _hook_case(rng, K, world)


def _hook_case(rng: np.random.Generator, K: int, world: str = "simulated", k: int = 3, T: int = 6) -> Case:
    n = int(rng.integers(8, 12))
    layout = [(n, n, 2 * n)] + [(n, 2 * n, n)] * (T - 1)  # DDP makes its buckets anew after the first step
    scale = 10.0 ** rng.integers(-1, 2, size=2 * n)
    streams = [[[rng.standard_normal(m) * scale[:m] for m in ms] for ms in layout] for _ in range(K)]
    most = sum(2 * (K - 1) * 8 * -(-m // K) for ms in layout[:2] for m in ms) + (T - 2) * 3 * (K - 1) * 16 * k
    right = _hooked(streams, k)
    judge = partial(_exchanged, most=most)
    wrong = {
        "One memory serves two buckets of one length here: what one left out is sent as the other's.":
            _hooked(streams, k, key=lambda i, m: m),
        "What this hook remembers lies in the bucket's own buffer, and DDP writes the next gradient there.":
            _hooked(streams, k, alias=True),
        "It compresses before DDP has settled what is in which bucket: memories change their owner.":
            _hooked(streams, k, plain=0),
        "This is the sum over the workers: with a hook, DDP no longer divides.": [K * x for x in right],
        "What a worker has not sent is forgotten here.": _hooked(streams, k, remember=0),
    }  # fmt: skip
    label = f"K = {K}, three buckets" + ", in real processes" * (world != "simulated")
    args = tuple((stream, k) for stream in streams)
    return Case(args, partial(judge, right), K, label, world=world, mistakes=as_if(judge, *wrong.items()))


def _exchanged(means: list[Array], run: Run, most: int) -> None:
    talked(run, most, "two steps' all-reduces, then (K - 1) k pairs of 16 bytes a bucket", "it")
    for rank, given in enumerate(run.results):
        if not isinstance(given, (list, tuple)) or len(given) != len(means):
            raise Wrong(f"rank {rank} should return {len(means)} means, as as_ddp_does makes them")
    for i, mean in enumerate(means):
        each: Any = SimpleNamespace(results=[given[i] for given in run.results])
        each_rank(mean, each, f"the mean of bucket {i % 3} in step {i // 3}")


def _hooked(
    streams: list, k: int, key: Any = lambda i, n: i, plain: int = 2, remember: int = 1, alias: bool = False
) -> list[Array]:
    """The mean of every bucket in every step. The rest is what a hook may get wrong."""
    memory: dict[Any, Array] = {}
    out, last = [], len(streams[0]) - 1
    for t, step in enumerate(zip(*streams, strict=True)):
        for i, gs in enumerate(zip(*step, strict=True)):
            said = list(gs)
            for rank, g in enumerate(gs if t >= plain else ()):
                at = (rank, key(i, len(g)))
                old = memory.get(at, g * 0)
                x = g + remember * (old if len(old) == len(g) else 0)
                rest = np.argsort(-np.abs(x), kind="stable")[k:]  # all but the k largest in size
                said[rank] = np.where(np.isin(np.arange(len(x)), rest), 0, x)
                memory[at] = streams[rank][t + 1][i] if alias and t < last else x - said[rank]
            out.append(np.mean(said, axis=0))
    return out


# -- 3: a thousand times less ----------------------------------------------------------------------------------------


def _thousand(rng: np.random.Generator) -> Iterator[Case]:
    for K in (4, 16, 64):
        H, kept = int(rng.integers(20, 60)), float(rng.uniform(0.01, 0.05))
        P, T = float(rng.uniform(1e7, 1e9)), float(rng.integers(10_000, 50_000))
        longer, t = float(rng.uniform(1.1, 1.6)), float(rng.uniform(0.1, 0.5))
        ring, gather = 8 * (K - 1) / K * P, (K - 1) * 4 * kept * P  # bytes
        above = (T * ring - longer * T * gather / H) / (t * (longer - 1) * T)
        beta = above * float(rng.uniform(0.05, 0.5))
        both = T * (t + ring / beta), longer * T * (t + gather / H / beta)
        right = {"claimed": H / kept, "a_step": ring * H / gather, "to_loss": ring * H / gather / longer}
        right |= {"K_even": 2 / kept, "sooner": both[0] / both[1], "above": above}
        yield derived(
            (K, P, H, kept, T, longer * T, t, beta), right, f"K = {K}, H = {H}, kept {kept:.3f}",
            ("This takes a message for what a worker sends: count to how many others it goes, and what a ring sends.",
             "a_step", H / kept),
            ("Steps are compared here, not what is sent until the loss is reached.", "to_loss", ring * H / gather),
            ("The longer run sends for longer: it does not send less.", "to_loss", ring * H / gather * longer),
            ("That is where a message is as long as a vector.", "K_even", 1 / kept),
            ("Its steps are counted as if they were as many.", "sooner", longer * both[0] / both[1]),
            ("At that bandwidth a step takes equally long, not the whole run.", "above", (ring - gather / H) / t),
        )  # fmt: skip


# -- 4: how many local steps are free --------------------------------------------------------------------------------


def _free(rng: np.random.Generator) -> Iterator[Case]:
    for K in (3, 5, 16):
        eta, L, s2, t = (float(x) for x in rng.uniform((0.002, 0.5, 0.5, 0.01), (0.01, 2, 4, 0.03)))
        share, H = float(rng.uniform(0.3, 0.9)), int(rng.integers(4, 20))
        rho, sent = float(rng.uniform(1.2, 2.5)), float(rng.uniform(1e5, 1e7))
        V, one = (1 - 1 / K) * eta**2 * s2, eta * L * (K - 1)  # a step's drift; the harm of one more step
        ring, tie_s = 2 * (K - 1) / K * sent, t * (rho - 1) / (1 - rho / H)
        beta = ring / tie_s * float(rng.uniform(0.2, 3))
        ratio = rho * (t + ring / beta / H) / (t + ring / beta)
        right = {"round": V * (H - 1) / 2, "harm": one * (H - 1), "free": math.floor(1 + share / one)}
        right |= {"ratio": ratio, "stops": ring / tie_s}
        label = f"H = {H}, K = {K}, eta = {eta:.4f}, share {share:.2f}, rho = {rho:.2f}"
        yield derived(
            (H, K, eta, L, s2, share, rho, t, sent, beta), right, label,
            ("At a round's first gradient all are still together; this counts them as a step apart.",
             "round", V * (H + 1) / 2),
            ("That is the drift at the last gradient of a round, not its mean.", "round", V * (H - 1)),
            ("The harm is held against the noise of one worker, but it is the mean of all that moves.",
             "harm", one * (H - 1) / K),
            ("This allows a step too many: with it the harm is above the share.", "free", right["free"] + 1),
            ("Steps are compared here, as if both runs had as much to send.", "ratio", rho),
            ("A whole vector has been sent once here: a ring has more to do.", "stops", sent / tie_s),
        )  # fmt: skip


# -- 5: workers that part and meet -----------------------------------------------------------------------------------


def _clients(rng: np.random.Generator) -> Iterator[Case]:
    eta, meetings, d = 0.05, 4, 6
    for K in (1, 2, 3, 5):
        root, m = rng.standard_normal((K, d, d)), rng.standard_normal((K, d))
        A = np.einsum("kij,klj->kil", root, root) / d + 0.5 * np.eye(d)
        p, Hs = rng.dirichlet(np.full(K, 3.0)), rng.permutation(np.arange(2, 9))[:K]
        rest = eta, meetings, float(rng.uniform(0.5, 0.9)), float(rng.uniform(0.3, 0.6))
        even, most = np.full(K, 1 / K), int(Hs.max())
        met = partial(_met, A, m, Hs, *rest)
        right, also = met(Hs, p, p), met(Hs, p, even)  # both come to rest where they should
        judge = partial(_rested, sent=meetings * 4 * (K - 1) * 8 * -(-d // K))
        alike = "The clients' slopes count alike in their mean, however many rows each client has."
        wrong = (
            ("Neither of the given program's two flaws is mended here.", met(most, even, even)),
            (alike, met(Hs, even, even)),
            (alike, met(Hs, even, p)),
            ("A mean slope is taken over steps never made: who is slow seems to stand on flat ground.", met(most, p, p)),
            ("The shares already add up to one, and here the sum is divided by K as well.", met(Hs, p / K, p / K)),
        )  # fmt: skip
        args = tuple((A[k], m[k], float(p[k]), int(Hs[k]), most, *rest) for k in range(K))
        label = f"K = {K}, local steps {', '.join(map(str, Hs))}"
        yield Case(args, partial(judge, right, also=also), K, label, mistakes=as_if(judge, *wrong))


def _rested(right: Array, run: Run, sent: int, also: Array | None = None) -> None:
    """sent: bytes, at most. also: a w that is right as well."""
    talked(run, sent, "two ring all-reduces of d numbers at each meeting", "where it is")
    with suppress(Wrong):
        return each_rank(right if also is None else also, run)
    return each_rank(right, run)


def _met(
    A: Array, m: Array, H: Array, eta: float, meetings: int, lr: float, momentum: float, counted: Any, p: Array, q: Array
) -> Array:  # fmt: skip
    """w in the end. A slope is over so many steps ``counted``; weights p in the mean of slopes, q in that of ways."""
    C, (w, c, v) = np.zeros_like(m), np.zeros((3, m.shape[1]))
    for _ in range(meetings):
        W = np.tile(w, (len(m), 1))
        for k, steps_of_k in enumerate(H):
            for _ in range(steps_of_k):
                W[k] -= eta * (A[k] @ (W[k] - m[k]) - C[k] + c)
        C = C - c + (w - W) / (eta * counted * np.ones(len(m)))[:, None]
        c, g = p @ C, q @ (w - W)
        v = momentum * v + g
        w = w - lr * (g + momentum * v)
    return w


_READY = ("labkit.compress.ErrorFeedback", "labkit.compress.compressed_mean")
EXERCISES = (
    Exercise("10.7-1", "Four bits that lose nothing", "build", 3, "agreed", _bits, (2, 5, 8, 12), (), _READY),
    Exercise("10.7-2", "A hook for every bucket", "build", 4, "exchanged", _hook, (1, 2, 4), withheld=_READY),
    Exercise("10.7-3", "A thousand times less", "criticise", 3, "bill", _thousand, (3, 9, 10, 11, 13, 14)),
    Exercise("10.7-4", "How many local steps are free?", "derive", 4, "free_steps", _free, (6, 10, 11)),
    Exercise("10.7-5", "The slow clients are forgotten", "debug", 3, "clients", _clients, (5, 7, 8)),
)
