"""Problem set 10.7: fewer bytes.

The judges compute what is right from the questions: messages may be added if decoding is additive; top-k with and without a
memory (Karimireddy et al. 2019); two straight lines; the drift of local steps (Stich 2019) and control variates (Karimireddy
et al. 2020); DiLoCo (Douillard et al. 2023).

Symbols: d coordinates, k coordinates kept, K workers, H local steps, alpha and beta of a link.
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
from labkit.exercises.exercise import Case, Exercise, Wrong, _real, close
from labkit.exercises.sets import Array, Judge, each_rank, if_it_were, slip, steps, talked, workers

RunJudge = Callable[[Run], None]


def _told(judge_of: Callable[[Any], Judge], right: Any, wrong: dict[str, Any]) -> tuple[Any, ...]:
    """A case's mistakes: those whose value differs from the right one in this case."""
    seen = [(text, x) for text, x in wrong.items() if not all(map(np.allclose, x, right))]
    return if_it_were(judge_of, *seen)


def _two(answer: Any, names: str) -> tuple[Any, Any]:
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong(f"return two things: {names}")
    return answer[0], answer[1]


def _array(answer: Any, shape: tuple[int, ...], what: str) -> Array:
    given = _real(answer)
    if given is None or given.shape != shape or not np.isfinite(given).all():
        raise Wrong(f"{what} should be an array of shape {shape} of finite numbers")
    return given


def _largest(x: Array, k: int) -> Array:
    """Of each row the k largest in size, in their places; the rest is zero."""
    out, at = np.zeros_like(x), np.argsort(-np.abs(x), axis=-1, kind="stable")[..., :k]
    np.put_along_axis(out, at, np.take_along_axis(x, at, -1), -1)
    return out


# -- 1: what an all-reduce can add ----------------------------------------------------------------------------------

_D = 12


def _codes(rng: np.random.Generator) -> dict[str, tuple[Any, Any, bool]]:
    """Of each: encode, decode, and whether messages may be added."""
    drawn, S = np.sort(rng.permutation(_D)[:3]), rng.choice([-1.0, 1.0], (4, _D))
    Q = np.linalg.qr(rng.standard_normal((4, 2)))[0]

    def places(x: Array) -> Array:
        at = np.argsort(-np.abs(x), kind="stable")[:3]
        return np.concatenate([at, x[at]])

    def unit(x: Array) -> Array:
        top = np.float32(np.abs(x).max() or 1.0)
        return np.frombuffer(top.tobytes() + np.rint(x / top * 7).astype(np.int8).tobytes(), np.uint8)

    def united(m: Array) -> Array:
        top = float(np.frombuffer(m[:4].tobytes(), np.float32)[0])
        return np.frombuffer(m[4:].tobytes(), np.int8) * (top / 7)

    def thin(x: Array) -> Array:
        U, s, V = np.linalg.svd(x.reshape(3, 4))
        return np.concatenate([U[:, 0] * s[0], V[0]])

    return {
        "largest": (places, lambda m: np.bincount(m[:3].astype(int) % _D, m[3:], _D), False),
        "own unit": (unit, united, False),
        "common unit": (lambda x: np.rint(np.clip(x, -100, 100)).astype(np.int8), lambda m: m * 1.0, False),
        "own directions": (thin, lambda m: np.outer(m[:3], m[3:]).ravel(), False),
        "drawn alike": (lambda x: x[drawn] * 1.0, lambda m: np.bincount(drawn, m, _D), True),
        "mixtures": (lambda x: S @ x, lambda m: S.T @ m / 4, True),
        "common directions": (lambda x: x.reshape(3, 4) @ Q, lambda m: (m @ Q.T).ravel(), True),
    }  # fmt: skip


def _carried(rng: np.random.Generator) -> Iterator[Case]:
    for name, (encode, decode, adds) in _codes(rng).items():
        K, m = int(rng.integers(3, 9)), encode(np.ones(_D)).nbytes
        gathered, summed = (K - 1) * m, 2 * (K - 1) * m / K

        def judge_of(nbytes: float, code: Any = (encode, decode, adds)) -> Judge:
            return lambda answer: _adds_up(answer, nbytes, *code)

        right, other = (summed, gathered) if adds else (gathered, summed)
        mistakes = if_it_were(
            judge_of,
            ("These bytes are those of the other road: only sums can stay short on their way round the ring.", other),
            ("That is what all workers send together; asked is one of them.", K * right),
            ("That is the size of one message; on its way round the ring a worker sends more.", m),
        )  # fmt: skip
        yield Case((name, encode, decode, K), judge_of(right), label=f"{name!r}, K = {K}", mistakes=mistakes)


def _adds_up(answer: Any, nbytes: float, encode: Any, decode: Any, adds: bool) -> None:
    given, pair = _two(answer, "the bytes, and None or a pair of vectors")
    if pair is None and not adds:
        raise Wrong(
            "You let an all-reduce add these, and for vectors like those you had in mind it may go well: there are two "
            "others whose sum comes out as something else."
        )
    if pair is not None:
        x, y = (_array(v, (_D,), "each of the pair") for v in _two(pair, "x and y"))
        if max(np.abs(x).max(), np.abs(y).max()) > 1000:
            raise Wrong("The numbers of the pair must lie between -1000 and 1000.")
        apart, together = decode(encode(x)) + decode(encode(y)), decode(encode(x) + encode(y))
        if np.allclose(together, apart, rtol=1e-6, atol=1e-9 * (1 + np.abs(apart).max())):
            raise Wrong(
                "Your pair is no counterexample: the added messages stand for the sum of what each stood for. (That this "
                "sum is not x + y is the compressor's own loss, and another matter.)"
            )
    close(given, nbytes, "the bytes")


# -- 2: where the largest say nothing -------------------------------------------------------------------------------


def _stuck(rng: np.random.Generator) -> Iterator[Case]:
    for K, d, k in ((2, 2, 1), (3, 5, 2), (int(rng.integers(4, 7)), 6, 3)):
        yield Case((K, d, k), partial(_stays, K=K, d=d, k=k), label=f"K = {K}, d = {d}, k = {k}")


def _path(m: Array, w: Array, k: int, eta: float, T: int, remember: bool) -> Array:
    """Distances from the minimum over T steps of top-k SGD on half the squared distances from each row of m."""
    error, aim, out = np.zeros_like(m), m.mean(axis=0), []
    for _ in range(T):
        x = w - m + error * remember
        error = x - _largest(x, k)
        w = w - eta * (x - error).mean(axis=0)
        out.append(np.linalg.norm(w - aim))
    return np.array(out)


def _stays(answer: Any, K: int, d: int, k: int) -> None:
    m, w = _two(answer, "m and the start")
    m, w = _array(m, (K, d), "m"), _array(w, (d,), "the start")
    if max(np.abs(m).max(), np.abs(w).max()) > 1e6:
        raise Wrong("No number of it may be larger than a million.")
    far = float(np.linalg.norm(w - m.mean(axis=0)))
    if far < 1e-6 * (1 + np.abs(m).max()):
        raise Wrong("You start at the minimum of the mean loss: staying there proves nothing.")
    if any(_path(m, w, k, eta, 300, False).min() < 0.9 * far for eta in (0.01, 0.1, 0.5, 1.0)):
        if np.ptp(m, axis=0).max() < 1e-9:
            raise Wrong("All workers have the same loss and send the same: what is small now is large later.")
        raise Wrong("It comes nearer without a memory: what the workers send at the start moves w.")
    if _path(m, w, k, 0.01, 2000, True)[-100:].max() > 0.1 * far:
        raise Wrong(
            "Nothing moves without a memory, but in 2000 steps with one it does not arrive either: too much must pile up "
            "before a small coordinate has its turn."
        )


# -- 3: a hook -------------------------------------------------------------------------------------------------------


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

    def judge_of(means: list[Array]) -> RunJudge:
        def judge(run: Run) -> None:
            talked(run, most, "two steps' all-reduces, then (K - 1) k pairs of 16 bytes a bucket", "it")
            for rank, given in enumerate(run.results):
                if not isinstance(given, (list, tuple)) or len(given) != len(means):
                    raise Wrong(f"rank {rank} should return {len(means)} means, as as_ddp_does makes them")
            for i, mean in enumerate(means):
                each: Any = SimpleNamespace(results=[given[i] for given in run.results])
                each_rank(each, mean, f"the mean of bucket {i % 3} in step {i // 3}")

        return judge

    wrong = {
        "One memory serves two buckets of one length here: what one left out is sent as the other's.":
            _hooked(streams, k, key=lambda i, m: m),
        "What this hook remembers lies in the bucket's own buffer, and DDP writes the next gradient there.":
            _hooked(streams, k, alias=True),
        "It compresses before DDP has settled what is in which bucket: memories change their owner.":
            _hooked(streams, k, plain=0),
        "This is the sum over the workers: with a hook, DDP no longer divides.": [K * x for x in right],
        "What a worker has not sent is forgotten here.": _hooked(streams, k, remember=0),
        "The choice is made by the gradient alone: what has waited long may wait for ever.":
            _hooked(streams, k, chosen_by_g=True),
    }  # fmt: skip
    label = f"with {workers(K)}, three buckets" + ", in real processes" * (world != "simulated")
    args = tuple((stream, k) for stream in streams)
    return Case(args, judge_of(right), K, label, world=world, mistakes=_told(judge_of, right, wrong))


def _hooked(
    streams: list, k: int, key: Any = lambda i, n: i, plain: int = 2, remember: int = 1, chosen_by_g: bool = False,
    alias: bool = False,
) -> list[Array]:  # fmt: skip
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
                said[rank] = np.where(_largest(g, k) != 0, x, 0.0) if chosen_by_g else _largest(x, k)
                memory[at] = streams[rank][t + 1][i] if alias and t < last else x - said[rank]
            out.append(np.mean(said, axis=0))
    return out


# -- 4: what coding costs, measured ----------------------------------------------------------------------------------

_N, _ALPHA = 4_000_000.0, 1e-4  # bytes of a vector; seconds a message
_SENT = {"top": 80_000.0, "sign": 125_004.0}  # bytes of a message
_GIGABIT = 1.25e8


def _coding(_: np.random.Generator) -> Iterator[Case]:
    flaws = {
        "Your ends come from all fifteen repeats: one bad moment of the machine moves them.": "range",
        "Your ends are made of a mean and a standard deviation: single repeats scatter so, and slow ones pull.": "scatter",
        "The ends stand the wrong way round: which end belongs to slow coding?": "swapped",
        "The coding is set against the bytes alone, but the two ways differ in their messages, too.": "rounds",
    }  # fmt: skip
    mistakes = tuple((text, lambda a, how=how: _pays(a, how)) for text, how in flaws.items())
    yield Case((), _pays, mistakes=mistakes)


def _ends(seconds: Array, sent: float, how: str) -> tuple[float, float]:
    """Between which bandwidths (bytes per second) the break-even lies: the median lies between two repeats."""
    fast, slow = np.sort(seconds)[[0, -1] if how == "range" else [3, -4]]
    if how == "scatter":
        fast, slow = seconds.mean() - seconds.std(), seconds.mean() + seconds.std()
    lost = np.array([slow, fast]) - (0 if how == "rounds" else _ALPHA)
    low, high = (math.inf if x <= 0 else (_N - sent) / x for x in lost)
    return (high, low) if how == "swapped" else (low, high)


def _pays(answer: Any, how: str = "") -> None:
    keys = {"data", "top", "sign", "top_pays", "sign_pays", "higher"}
    if not isinstance(answer, dict) or set(answer) != keys:
        raise Wrong(f"keep the dict as it was, with the keys {', '.join(sorted(keys))}")
    data = measured.read(answer["data"], 2, 15)
    if set(data.at) != set(_SENT) or data.values.shape[1] != 15:
        raise Wrong('The data should be of "top" and "sign", fifteen times each, as the cell takes them.')
    if data.values.min() <= 0 or data.values.max() > 60:
        raise Wrong("These are no seconds of coding: they must lie above zero and below a minute.")
    ends = {at: _ends(x, _SENT[at], how) for at, x in zip(data.at, data.values, strict=True)}
    for name, right in ends.items():
        pair = _two(answer[name], f"{name}'s low and high end")
        for which, given, end in zip(("low", "high"), pair, right, strict=True):
            if not (math.isinf(end) and given == math.inf):
                close(given, end, f"the {which} end of {name!r}", rtol=1e-4)
    known = {at: sorted(pair) for at, pair in ends.items()}
    said = {f"{at}_pays": "yes" if low > _GIGABIT else "no" if high < _GIGABIT else "not decided"
            for at, (low, high) in known.items()}  # fmt: skip
    (low, high), (its_low, its_high) = known["top"], known["sign"]
    said["higher"] = "top" if low > its_high else "sign" if its_low > high else "not decided"
    for key, word in said.items():
        if answer[key] != word:
            raise Wrong(f"{key!r} does not follow from your intervals: what do both of their ends say?")


# -- 5: how many local steps are free --------------------------------------------------------------------------------


def _free(rng: np.random.Generator) -> Iterator[Case]:
    for K in (2, 5, 16):
        eta, L, s2 = (float(x) for x in rng.uniform((0.002, 0.5, 0.5), (0.01, 2, 4)))
        z2, share, H = float(rng.uniform(0.2, 1) * s2), float(rng.uniform(0.3, 0.9)), int(rng.integers(4, 20))
        V, one = (1 - 1 / K) * eta**2 * s2, eta * L * (K - 1)  # a step's drift; the harm of one more step
        many = np.arange(1, 5000)
        harm = eta * L * K * z2 / s2 * (many - 1) * (2 * many - 1) / 3
        right = {
            "round": V * (H - 1) / 2,
            "harm": one * (H - 1),
            "free": math.floor(1 + share / one),
            "apart_round": eta**2 * z2 * (H - 1) * (2 * H - 1) / 6,
            "apart_free": int(many[harm <= share][-1]),
            "alike": (1 - 1 / K) * s2 / z2,
        }
        mistakes = (
            ("At a round's first gradient all are still together; this counts them as a step apart.",
             slip("round", V * (H + 1) / 2)),
            ("That is the drift at the last gradient of a round, not its mean.", slip("round", V * (H - 1))),
            ("Here noise walks straight: its squared length does not grow with the square of the steps.",
             slip("round", V * (H - 1) * (2 * H - 1) / 6)),
            ("The harm is held against the noise of one worker, but it is the mean of all that moves.",
             slip("harm", one * (H - 1) / K)),
            ("This allows a step too many: with it the harm is above the share.", slip("free", math.ceil(1 + share / one))),
            ("A straight walk's squared length is counted as if it grew like a random walk's.",
             slip("apart_round", eta**2 * z2 * (H - 1) / 2)),
        )  # fmt: skip
        label = f"H = {H}, K = {K}, eta = {eta:.4f}, share {share:.2f}"
        yield Case((H, K, eta, L, s2, z2, share), steps(right), label=label, mistakes=mistakes)


# -- 6: workers that part and meet -----------------------------------------------------------------------------------


def _clients(rng: np.random.Generator) -> Iterator[Case]:
    eta, meetings, d = 0.05, 4, 6
    for K in (1, 2, 3, 5):
        root, m = rng.standard_normal((K, d, d)), rng.standard_normal((K, d))
        A = np.einsum("kij,klj->kil", root, root) / d + 0.5 * np.eye(d)
        p, Hs = rng.dirichlet(np.full(K, 3.0)), rng.permutation(np.arange(2, 9))[:K]
        lr, momentum = float(rng.uniform(0.5, 0.9)), float(rng.uniform(0.3, 0.6))

        def met(
            p: Array = p, own: bool = True, control: float = 1.0, corrected: bool = True, plain: bool = False,
            job: Any = (A, m, Hs, lr, momentum),
        ) -> Array:  # fmt: skip
            A, m, Hs, lr, momentum = job
            C, (w, c, v) = np.zeros_like(m), np.zeros((3, m.shape[1]))
            for _ in range(meetings):
                W = np.tile(w, (len(m), 1))
                for k, H in enumerate(Hs):
                    for _ in range(H):
                        W[k] -= eta * (A[k] @ (W[k] - m[k]) - control * (C[k] - c))
                walked = (w - W) / (eta * (Hs if own else max(Hs) + 0 * Hs)[:, None])
                C = walked + (C - c) * corrected * control
                c, g = p @ C, w - p @ W
                v = momentum * v + g
                w = w - (g if plain else lr * (g + momentum * v))
            return w

        def judge_of(expected: Array, K: int = K) -> RunJudge:
            def judge(run: Run) -> None:
                most = meetings * 4 * (K - 1) * 8 * -(-d // K)
                talked(run, most, "two ring all-reduces of d numbers at each meeting", "where it is")
                each_rank(run, expected, "w")

            return judge

        even, right = np.full(K, 1 / K), met()
        wrong = {
            "All clients count alike in the means, however many rows each of them has.": met(even),
            "A mean slope is taken over steps never made: who is slow seems to stand on flat ground.": met(own=False),
            "Neither of the given program's two flaws is mended here.": met(even, own=False),
            "The control variates have no effect here: it is plain DiLoCo, for twice the bytes.": met(control=0.0),
            "The correction has the wrong sign: it drives clients further in their own way.": met(control=-1.0),
            "The way walked counts as the client's own slope, corrections and all.": met(corrected=False),
            "That is the plain mean at each meeting: the outer step has gone.": met(plain=True),
        }  # fmt: skip
        args = tuple(
            (A[k], m[k], float(p[k]), int(Hs[k]), int(max(Hs)), eta, meetings, lr, momentum) for k in range(K)
        )
        label = f"with {workers(K)}, local steps {', '.join(map(str, Hs))}"
        yield Case(args, judge_of(right), K, label, mistakes=_told(judge_of, right, wrong))


# -- 7: a race, judged -----------------------------------------------------------------------------------------------

_SLIPS = {
    "given": "The program is still in a hurry: dips count as arrivals, and a meeting counts as a step.",
    "touches": "A run that dips to the target for a moment counts as arrived here.",
    "meetings": "Meetings are counted as if each were one step.",
    "exchange": "Local steps pay here for an exchange after every step.",
    "scatter": "The interval says how far single seeds scatter, not how well their mean is known.",
    "middle": "Where the seeds don't agree this still names a winner: the middle alone decides.",
    "tie": "At the tie, the further steps are charged for computing only: they too meet now and then.",
}


def _race(rng: np.random.Generator) -> Iterator[Case]:
    for kind, beta in (("a slow cable", 2e6), ("a fast cable", 5e8), ("a cable between", 0.0)):
        losses, n, T, H, K = [], 5, 240, 12, int(rng.integers(2, 6))
        for slower in (1.0, 1.7):
            fall = slower * rng.uniform(24, 42, (n, 1))
            y = 2.2 + 1.6 * np.exp(-np.arange(1, T + 1) / fall) + 0.01 * rng.standard_normal((n, T))
            y[np.arange(n), rng.integers(1, 3, n) * H - 1] = 2.55  # a dip, that does not last
            y[:, -70:] = np.minimum(y[:, -70:], 2.58)
            losses.append(y)
        t_comp = float(rng.uniform(0.01, 0.03))
        job = (losses[0], losses[1][:, H - 1 :: H], 2.6, H, K, 1e6, 1e-4)
        args = (*job, beta or _raced(*job, 1.0, t_comp, 2.776)["stops"], t_comp, 2.776)
        right, mistakes = _raced(*args), []
        for flaw, text in _SLIPS.items():
            other = _raced(*args, flaw=flaw)
            off = [step for step in right if not np.allclose(right[step], other[step])]
            mistakes += [(text, slip(off[0], other[off[0]]))] if off else []
        yield Case(args, steps(right), label=f"{kind}, K = {K}", mistakes=tuple(mistakes))


def _raced(
    synchronous: Array, local: Array, target: float, H: int, K: int, nbytes: float, alpha: float, beta: float,
    t_comp: float, t95: float, flaw: str = "",
) -> dict[str, Any]:  # fmt: skip
    def arrived(y: Array) -> Array:
        if flaw in ("given", "touches"):
            return 1 + np.argmax(y <= target, axis=1)
        return 1 + y.shape[1] - np.argmax((y > target)[:, ::-1], axis=1)

    S, S_H = arrived(synchronous), arrived(local) * (1 if flaw in ("given", "meetings") else H)
    exchange = 2 * (K - 1) * (alpha + nbytes / (K * beta))
    ratio = S_H * (t_comp + exchange / (1 if flaw == "exchange" else H)) / (S * (t_comp + exchange))
    half = t95 * ratio.std(ddof=1) / (1 if flaw == "scatter" else math.sqrt(len(ratio)))
    rho, known = float(np.mean(S_H / S)), 0 if flaw == "middle" else half
    tie_s = t_comp * (rho - 1) / (1 if flaw == "tie" else 1 - rho / H)
    return {
        "steps": np.array([S, S_H]),
        "ratio": ratio,
        "interval": np.array([ratio.mean() - half, ratio.mean() + half]),
        "first": 1 if ratio.mean() + known < 1 else -1 if ratio.mean() - known > 1 else 0,
        "stops": 2 * (K - 1) * nbytes / K / (tie_s - 2 * (K - 1) * alpha),
    }


_CODING = (
    "labkit.compress.ErrorFeedback",
    "labkit.compress.compressed_mean",
    "labkit.train.hooks.Compression",
)

EXERCISES = (
    Exercise("10.7-1", "What may be added on the way?", "criticise", 2, "carried", _carried, (1,)),
    Exercise("10.7-2", "Where the largest say nothing", "debug", 2, "stuck", _stuck, (2,)),
    Exercise(
        "10.7-3", "A hook for every bucket", "build", 4, "exchanged", _hook, (1, 2, 4), withheld=_CODING
    ),
    Exercise("10.7-4", "What coding costs here", "measure", 3, "", _coding, (3, 9)),
    Exercise("10.7-5", "How many local steps are free?", "derive", 3, "free_steps", _free, (6, 7)),
    Exercise("10.7-6", "The slow clients are forgotten", "debug", 3, "clients", _clients, (5, 7, 8)),
    Exercise("10.7-7", "A race judged in a hurry", "debug", 3, "judged", _race, (3, 8, 9, 10, 11)),
)
