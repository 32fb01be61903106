"""Problem set 10.3: synchronous SGD, exact, at the price of a barrier.

The judges compute what is right from the questions: the gradient of all rows at once (Bottou, Curtis and Nocedal 2018,
section 4), order statistics (David and Nagaraja 2003), backup workers (Chen et al. 2016), the ring's time (Patarasuk and
Yuan 2009). No solutions here.

Symbols: K workers, b_k rows on worker k, M their sum, w (d,), ``eta`` the learning rate, P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from labkit.comm.run import Run
from labkit_book.problems import drawn, measured
from labkit_book.problems.exercise import Case, Exercise, Wrong, number, same_array
from labkit_book.problems.sets import (
    KEEP,
    TO_MS,
    Array,
    Judge,
    dealt,
    dict_of,
    each_rank,
    if_it_were,
    slips,
    steps,
    talked,
    told,
    unequal,
    workers,
)

# -- 1: a loop with three faults ------------------------------------------------------------------------------------

_Step = list[tuple[Array, Array]]  # of each worker its rows and targets


def _sync_step(rng: np.random.Generator) -> Iterator[Case]:
    for K, kind in (
        (1, "long gradients"),
        (2, "equal shards"),
        (4, "unequal shards"),
        (3, "unequal shards, short gradients"),
        (5, "unequal shards, somebody without a row"),
    ):
        d, T = int(rng.integers(4, 7)), 3
        run = []
        for _ in range(T):
            sizes = np.full(K, 8) if kind[:5] == "equal" else unequal(rng, K, 5, (2, 6), "without" in kind)
            X = rng.standard_normal((sizes.sum(), d))
            run.append(dealt(X, rng.standard_normal(sizes.sum()), sizes))
        w, eta, decay = rng.standard_normal(d), float(rng.uniform(0.05, 0.2)), float(rng.uniform(0.2, 0.5))
        c = 1e3 if "short" in kind else float(rng.uniform(0.5, 1.5))
        yield _loop_case(run, w, (eta, decay, c), f"with {workers(K)}: {kind}")


def _loop_case(run: list[_Step], w: Array, recipe: tuple[float, ...], label: str) -> Case:
    right, T = _walk(run, w, recipe), len(run)
    args = tuple(([step[k] for step in run], w.copy(), *recipe) for k in range(len(run[0])))
    known = (
        ("That is what comes of the mean of the workers' means: a row counts more on a worker that has few.", "means"),
        ("That is what comes of clipping on each worker: a mean of shortened vectors is no shortened mean.", "each"),
        ("That is what comes of stretching short gradients: clipping only ever shortens.", "stretched"),
        ("That is what comes of leaving the decay out of what is clipped.", "decay last"),
        ("That is what comes of adding the decay to a sum over rows, as if it were one more row.", "decay a row"),
    )  # fmt: skip
    wrong = [(sentence, _walk(run, w, recipe, fault)) for sentence, fault in known]
    mistakes = if_it_were(partial(_walked, T), *(x for x in wrong if not np.allclose(x[1], right)))
    return Case(args, _walked(T, right), len(args), label, mistakes=mistakes)


def _walk(run: list[_Step], w: Array, recipe: tuple[float, ...], fault: str = "") -> Array:
    """Where one worker with everybody's rows walks to; fault: what is done wrongly on the way."""
    eta, decay, c = recipe
    for step in run:
        M = sum(len(y) for _, y in step)
        extra = decay * w * (len(step) / M if fault == "decay a row" else 1)
        means = [(2 * X.T @ (X @ w - y) / len(y), len(y)) for X, y in step if len(y)]
        if fault == "each":
            means = [(_clipped(g + extra, c), b) for g, b in means]
        g = np.average(
            [g for g, _ in means], axis=0, weights=[1 if fault == "means" else b for _, b in means]
        )
        if fault != "each":
            g = g + extra * (fault != "decay last")
            g = g * c / np.linalg.norm(g) if fault == "stretched" else _clipped(g, c)
        w = w - eta * (g + extra * (fault == "decay last"))
    return w


def _clipped(g: Array, c: float) -> Array:
    return g * min(1.0, c / float(np.linalg.norm(g)))


def _walked(T: int, expected: Array) -> Judge:
    def judge(run: Run) -> None:
        most = 16 * (run.K - 1) * (len(expected) + 1) * T
        talked(run, most, "2 (K - 1) (d + 1) numbers of 8 bytes each a step")
        each_rank(run, expected, "w after the last step")

    return judge


# -- 2: seven boxes -------------------------------------------------------------------------------------------------

_K, _B, _C = 4, 8, 1.0
_FAULTS = (
    "nothing", "mean of means", "fixed divisor", "padding", "lost repeats", "clipped alone", "same masks",
)  # fmt: skip


def _box(fault: str, drawn_once: int) -> Callable[..., Array]:
    """A job with this fault, to be asked. drawn_once: what its masks and the order of its additions come from."""

    def job(rows: Any, seed: Any = None, /) -> Array:
        shards = [np.array(part, dtype=float) for part in rows]
        shapes = {part.shape[1:] for part in shards}
        if len(shards) != _K or len(shapes) > 1 or any(part.ndim != 2 or len(part) == 0 for part in shards):
            raise ValueError(f"rows must be {_K} arrays (b_k, d), each with a row at least")
        if fault == "lost repeats":
            first = np.unique(np.concatenate(shards), axis=0, return_index=True)[1]
            edges = np.cumsum([len(part) for part in shards])[:-1]
            keep = np.split(np.isin(np.arange(sum(map(len, shards))), first), edges)
            shards = [part[mine] for part, mine in zip(shards, keep, strict=True)]
        if seed is not None:
            whose = [0] * _K if fault == "same masks" else range(_K)
            masks = [np.random.default_rng([drawn_once, int(seed), k]).random(10_000) < 0.5 for k in whose]
            shards = [2 * part * mask[: len(part), None] for part, mask in zip(shards, masks, strict=True)]
        counts = np.array([len(part) for part in shards])
        if fault == "padding":
            shards = [part[np.arange(counts.max()) % len(part)] for part in shards]
        means = np.array([part.sum(axis=0) / max(len(part), 1) for part in shards])
        if fault == "clipped alone":
            return counts @ np.array([_shorter(g) for g in means]) / counts.sum()
        if fault == "mean of means":
            return _shorter(means.mean(axis=0))
        every = np.concatenate(shards)
        total = every[np.random.default_rng(drawn_once).permutation(len(every))].sum(axis=0)
        return _shorter(total / (_K * _B if fault == "fixed divisor" else len(every)))

    return job


def _shorter(g: Array) -> Array:
    length = float(np.linalg.norm(g))
    return g * (_C / length) if length > _C else g


def _boxes(rng: np.random.Generator) -> Iterator[Case]:
    for i, fault in enumerate(rng.permutation(_FAULTS)):
        yield _box_case(str(fault), int(rng.integers(2**31)), f"box {i + 1}")


def _box_case(fault: str, drawn_once: int, label: str) -> Case:
    def judge(answer: Any) -> None:
        if not isinstance(answer, str) or answer not in _FAULTS:
            raise Wrong(f"return one of {', '.join(map(repr, _FAULTS))}, not {answer!r}")
        if answer == fault:
            return
        if fault == "nothing":
            doubt = {"same masks": "is what you saw more than chance?"}.get(
                answer, "is what you saw more than rounding?"
            )
            raise Wrong(f"this box is right, and you say {answer!r}: {doubt}")
        if answer == "nothing":
            raise Wrong(f"this box is wrong, and your experiments can't tell: {_UNSEEN[fault]}")
        raise Wrong(f"this box is wrong, but not by {answer!r}: {_UNLIKE[answer]}")

    return Case((_box(fault, drawn_once),), judge, label=label)


_UNSEEN = {
    "mean of means": "has each worker had as many rows as every other?",
    "fixed divisor": "have you only ever given it a full batch?",
    "padding": "were the shards all of one length, or the rows of a worker all alike?",
    "lost repeats": "did all your rows differ?",
    "clipped alone": "were the workers' gradients all short, or all alike?",
    "same masks": "did you ever switch the dropout on?",
}
_UNLIKE = {
    "mean of means": "does each worker as a whole count alike, and each of its rows, too?",
    "fixed divisor": "is the result off by one factor, the same for any rows of these sizes?",
    "padding": "which rows would count twice, and do these?",
    "lost repeats": "does it still happen when no row occurs twice?",
    "clipped alone": "does it still happen when all rows are short?",
    "same masks": "does it also happen without dropout?",
}

# -- 3: the slowest of K, and doing without it ----------------------------------------------------------------------


def _slowest(rng: np.random.Generator) -> Iterator[Case]:
    for K, b in ((1, 0), (2, 1), (8, 0), (int(rng.integers(5, 40)), 3), (5000, 50)):
        yield _slowest_case(K, b, *(float(x) for x in rng.uniform(0.01, 0.2, size=2)))


def _slowest_case(K: int, b: int, a: float, theta: float) -> Case:
    still = np.arange(K, 0, -1.0)
    H = math.fsum(1 / still)
    expected = {
        "gaps": theta / still,
        "step": a + theta * H,
        "variance": theta**2 * math.fsum(1 / still**2),
        "doubling": theta * math.fsum(1 / j for j in range(K + 1, 2 * K + 1)),
        "waiting": theta * K * (H - 1),
        "backup": a + theta * math.fsum(1 / still[: K - b]),
    }
    known = (
        ("Your 'gaps' are those of the last to finish first: is more or less time between finishes at the beginning?",
         "gaps", theta / still[::-1]),
        ("Your 'step' begins when the a seconds are over.", "step", theta * H),
        ("Your 'step' says that K workers are as slow as their logarithm: near, but not exact.",
         "step", a + theta * math.log(K)),
        ("Your 'variance' adds standard deviations. Of independent gaps something else adds up.",
         "variance", (theta * H) ** 2),
        ("Your 'waiting' is one worker's. All of them wait.", "waiting", theta * (H - 1)),
        ("Your 'waiting' counts the a seconds, too.", "waiting", K * (a + theta * (H - 1))),
        ("Your 'backup' is the step of a smaller group, from which nobody is left out.",
         "backup", a + theta * math.fsum(1 / still[b:])),
        ("Your 'doubling' is where it goes for very many workers, not what it is for these.",
         "doubling", theta * math.log(2)),
    )  # fmt: skip
    label = f"with {workers(K)}, {b} spare, at least {a:.3f} s, {theta:.3f} s more on average"
    return Case((K, b, a, theta), steps(expected, 1e-8), label=label, mistakes=slips(expected, *known))


# -- 4: the step against K ------------------------------------------------------------------------------------------


def _scaling(rng: np.random.Generator) -> Iterator[Case]:
    for most, n in ((11, 8e6), (12, 4e8)):
        tau, theta = (float(x) for x in rng.uniform((1e-4, 0.002), (3e-4, 0.005)))
        yield _scaling_case(2 ** np.arange(most), tau, theta, n)


def _scaling_case(Ks: Array, tau: float, theta: float, n: float, b: int = 64, B: int = 2048) -> Case:
    beta = 10e9
    H = np.array([math.fsum(1 / j for j in range(1, k + 1)) for k in Ks])
    share = 2 * (Ks - 1) / Ks

    def figure(H: Any = H, share: Any = share, unit: float = 1e3, marked: bool = True) -> Judge:
        weak, strong = (unit * (tau * rows + theta * H + share * n / beta) for rows in (b, B / Ks))
        best = slice(int(strong.argmin()), int(strong.argmin()) + 1)

        def judge(answer: Any) -> None:
            axes = drawn.shown(answer)
            drawn.labelled(axes, "x")
            drawn.labelled(axes, "y", "ms")
            if axes["xscale"] != "log":
                raise Wrong("the x axis is not logarithmic: the small K stand on top of each other")
            drawn.curve(axes, Ks, weak, "the step with b rows on each worker")
            drawn.curve(axes, Ks, strong, "the step where one batch is divided")
            drawn.curve(axes, Ks, unit * share * n / beta, "the all-reduce alone")
            if marked:
                drawn.curve(axes, Ks[best], strong[best], "the K with the shortest step of the divided batch")

        return judge

    mistakes = if_it_were(
        lambda wrong: figure(**wrong),
        ("The curves are right. Which K do you recommend, and where is it marked?", {"marked": False}),
        ("The heights are seconds, and the label says ms.", {"unit": 1.0}),
        ("Here nobody waits for the slowest: the curves have the mean of one worker in them.", {"H": 1.0}),
        ("Here the slowest of K is late by a logarithm: near, but not exact.", {"H": np.log(Ks)}),
        ("Here a worker sends as many bytes when it is alone as among many.", {"share": np.full(len(Ks), 2.0)}),
        ("Here the ring adds up, and hands the sum to nobody.", {"share": share / 2}),
        ("Here a worker sends the whole vector in each round of the ring.", {"share": 2 * (Ks - 1)}),
    )  # fmt: skip
    says = f"{len(Ks)} values of K, a vector of {n / 1e6:.0f} MB"
    return Case((Ks.tolist(), b, B, tau, theta, n, beta), figure(), label=says, mistakes=mistakes)


# -- 5: what one slow worker costs, measured ------------------------------------------------------------------------

_SLOWER, _BASE_MS = (1.0, 1.04, 1.5), 20.0


def _measured(rng: np.random.Generator) -> Iterator[Case]:
    yield Case((), _cost)


def _cost(answer: Any) -> None:
    keys = ("data", "predicted_ms", "cost_ms", "decided", "lies", "repeats")
    data = measured.read(dict_of(answer, keys, KEEP)["data"], 3, 8)
    if sorted(map(str, data.at)) != sorted(map(str, _SLOWER)):
        raise Wrong("the data must be of the slowdowns 1.0, 1.04 and 1.5")
    ms = {at: 1e3 * data.values[list(data.at).index(at)] for at in _SLOWER}
    if any(ms[at].min() < 0.98 * at * _BASE_MS for at in _SLOWER):
        raise Wrong("a step was shorter than its slowest worker computes: are these seconds, of one step?")
    n, alike = data.values.shape[1], ms[1.0]
    slowed = np.array([ms[at] for at in _SLOWER[1:]])
    predicted = (np.array(_SLOWER[1:]) - 1) * _BASE_MS
    told(answer, "predicted_ms", predicted, {
        "it is all that the slow one computes, not what it adds": predicted + _BASE_MS,
        "it shares the delay among four: do three of them go on meanwhile?": predicted / 4,
    }, TO_MS)  # fmt: skip
    pairs = slowed - alike
    s = pairs.std(axis=1, ddof=1)

    def interval(half: Array) -> Array:
        return np.stack([pairs.mean(axis=1) - half, pairs.mean(axis=1) + half], axis=1)

    apart = np.sqrt(slowed.var(axis=1, ddof=1) + alike.var(ddof=1))
    right = interval(2 * s / math.sqrt(n))
    told(answer, "cost_ms", right, {
        "it forgets which runs are of one round: what they share drops out": interval(2 * apart / math.sqrt(n)),
        "it says where the difference of a single round lies, not where its mean does": interval(2 * s),
        "it goes one standard error up and down": interval(s / math.sqrt(n)),
    }, TO_MS)  # fmt: skip
    given = answer["decided"]
    if np.shape(given) != (2,) or any(x not in (True, False) for x in given):
        raise Wrong("decided should be two times True or False")
    if [bool(x) for x in given] != list(right[:, 0] > 0):
        raise Wrong("'decided' does not follow from your intervals: which of them hold the cost zero?")
    where = np.where(predicted < right[:, 0], "below", np.where(predicted > right[:, 1], "above", "inside"))
    if list(given := answer["lies"]) != where.tolist():
        raise Wrong(f"'lies' is {given!r}: of your own intervals that is not true")
    ratio, repeats = 2 * s[0] / predicted[0], number(answer["repeats"], "repeats")
    off = abs(repeats - max(2, math.ceil(ratio**2)))
    if off > 1 >= abs(repeats - ratio):
        raise Wrong("'repeats' grows like the scatter: how much narrower does four times as many make it?")
    if off > 1:
        raise Wrong(f"'repeats' does not follow from your scatter: {answer['repeats']}")


# -- 6: the audit ---------------------------------------------------------------------------------------------------

_CAUSES = ("clock", "loader", "network")


def _audit(rng: np.random.Generator) -> Iterator[Case]:
    yield _audit_case(rng, 0.0, 0.0, 0.3, "a clock alone")
    yield _audit_case(rng, 0.08, 0.0, 0.3, "a slow loader of another rank, hidden behind the clock")
    yield _audit_case(rng, 0.06, 0.6, 0.3, "a bit of everything")
    yield _audit_case(rng, 0.25, 0.5, 0.1, "a loader that hides the clock")


def _audit_case(rng: np.random.Generator, loader: float, network: float, clock: float, kind: str) -> Case:
    K, n, T = int(rng.integers(4, 10)), float(rng.uniform(0.2, 1.0)) * 1e9, int(rng.integers(3000, 8000))
    hot, late = rng.permutation(K)[:2]
    load, compute, beta = rng.uniform(0.004, 0.01, K), rng.uniform(0.19, 0.21, K), 10e9
    before: dict[str, Any] = {"load": load, "compute": compute, "beta": beta}
    now: dict[str, Any] = {"load": load.copy(), "compute": compute.copy(), "beta": beta * (1 - network)}
    now["compute"][hot] /= 1 - clock
    now["load"][late] += loader

    def minutes(load: Array, compute: Array, beta: float, slowest: Any = lambda x, y: (x + y).max()) -> float:
        return T / 60 * float(slowest(load, compute) + 2 * (K - 1) / K * n / beta)

    def answer(**how: Any) -> dict[str, float]:
        part = dict(zip(_CAUSES, ("compute", "load", "beta"), strict=True))
        alone = {f"{c} alone": minutes(**before | {p: now[p]}, **how) for c, p in part.items()}
        return alone | {f"{c} mended": minutes(**now | {p: before[p]}, **how) for c, p in part.items()}

    expected, was, took = answer(), minutes(**before), minutes(**now)
    mean, apart = answer(slowest=lambda x, y: (x + y).mean()), answer(slowest=lambda x, y: x.max() + y.max())
    added = {c: took - expected[f"{c} alone"] + was for c in _CAUSES}
    mistakes = slips(
        expected,
        ("This takes the workers' mean, as if they did not wait for one another.", "clock alone", mean["clock alone"]),
        ("This adds the slowest loader to the slowest GPU, though they may be two ranks.",
         "clock alone", apart["clock alone"]),
        ("Your 'clock alone' answers the other question, that of 'clock mended'.", "clock alone", expected["clock mended"]),
        ("Your 'clock alone' stretches the whole step. Does all of it run on that clock?",
         "clock alone", was / (1 - clock)),
        ("Your 'loader mended' takes off what the loader alone puts on. Did the others wait for that rank?",
         "loader mended", added["loader"]),
        ("Your 'clock mended' takes off what the clock alone puts on. Is there nobody else to wait for then?",
         "clock mended", added["clock"]),
        ("Your 'network alone' sends the vector once. How much of it passes a link of the ring?",
         "network alone", was + T / 60 * n * (1 / now["beta"] - 2 * (K - 1) / K / beta)),
    )  # fmt: skip
    label = f"{kind}: {was:.1f} to {took:.1f} minutes, K = {K}"
    return Case((before, now, n, T), steps(expected), label=label, mistakes=mistakes)


# -- 7: who comes last, and who is to blame --------------------------------------------------------------------------

_Op = dict[str, Any]  # what, stage, after, together, seconds (D, T)
_CURES = ("worker", "data", "stage")


def _traces(rng: np.random.Generator) -> Iterator[Case]:
    for S, D, pace, long, low, high in (
        (1, 4, 1.7, 0.0, 0.7, 2.0),  # one worker; then nothing but its cure helps
        (2, 4, 1.0, 0.5, 0.0, 0.4),  # long and short examples
        (3, 3, 0.0, 0.0, 0.0, 0.4),  # a stage with too much to do
        (3, 3, 1.6, 0.3, 0.53, 0.64),  # a worker, and somewhat long examples
        (2, 3, 1.5, 0.35, 0.37, 0.47),  # long examples, and somewhat a worker
        (4, 2, 1.8, 0.1, 0.7, 2.0),
    ):
        yield _trace_case(rng, S, D, pace, long, (low, high))


def _trace(rng: np.random.Generator, S: int, D: int, slower: float, long: float, M: int, T: int) -> list[_Op]:
    """M micro-batches pass S stages of D workers forward and backward in each of T steps; then each stage sums.

    slower: the factor of one worker; 0: the last stage is slow instead. long: scatter of the micro-batches' lengths."""
    scatter, length = rng.lognormal(0, 0.02, (2, S, M, D, T)), rng.lognormal(0, long, (M, D, T))
    pace = np.ones((S, D))
    if slower:  # not in the last stage of several: others come late because of it
        pace[rng.integers(max(1, S - 1)), rng.integers(D)] = slower * rng.uniform(0.95, 1.05)
    else:
        pace[-1] = rng.uniform(1.5, 2.0)
    ops: list[_Op] = []
    at: dict[tuple[str, int, int], int] = {}
    for back, what in enumerate(("forward", "backward")):
        for i in range(M):
            for s in range(S)[:: -1 if back else 1]:
                before = [(what, i - 1, s), (what, i, s + 1 if back else s - 1)]
                if back and i == 0:
                    before[0] = ("forward", M - 1, s)
                seconds = (1 + back) * 0.01 * scatter[back, s, i] * length[i] * pace[s, :, None]
                at[what, i, s] = len(ops)
                after = [at[b] for b in before if b in at]
                ops.append({"what": what, "stage": s, "after": after, "together": False, "seconds": seconds})
    for s in range(S):
        seconds = rng.uniform(0.004, 0.006, (D, T))
        after = [at["backward", M - 1, s]]
        ops.append({"what": "sum", "stage": s, "after": after, "together": True, "seconds": seconds})
    return ops


def _replayed(ops: list[_Op], seconds: Array, group: bool = True) -> tuple[Array, Array]:
    """Of jobs with these seconds, (operations, ..., D, T): the mean steps (...), and when each worker was ready."""
    ends, ready = np.zeros_like(seconds), np.zeros_like(seconds)
    for i, op in enumerate(ops):
        ready[i] = ends[op["after"]].max(axis=0, initial=0.0)
        together = op["together"] and group
        ends[i] = seconds[i] + (ready[i].max(axis=-2, keepdims=True) if together else ready[i])
    return ends.max(axis=(0, -2)).mean(axis=-1), ready


class _Account:
    """What is right of a trace (``right``, ``cure``), and what the best worker's cure and even data win (``shares``)."""

    def __init__(self, ops: list[_Op]) -> None:
        self.ops, self.real = ops, np.array([op["seconds"] for op in ops])
        self.what, self.stage = (np.array([op[key] for op in ops]) for key in ("what", "stage"))
        self.best, self.even = (
            self.usual(self.what),
            self.usual(np.char.add(self.what, self.stage.astype(str))),
        )
        self.S, self.D = self.stage.max() + 1, self.real.shape[1]
        at = self.stage == np.arange(self.S)[:, None]
        #: (S, D, operations, D) which operations on which workers are a worker's own
        self.mine = at[:, None, :, None] & np.eye(self.D, dtype=bool)[:, None, :]
        step, ready = _replayed(ops, self.real)
        ideal = _replayed(ops, self.best)[0]
        self.passes = (self.what != "sum")[:, None]
        wins, dealt_out = step - self.steps(self.mine), self.steps(self.passes, self.even)
        self.shares = np.array([wins.max(), step - dealt_out]) / (step - ideal)
        self.cure = _CURES[int(np.argmax(np.append(self.shares, 1.0) >= 0.5))]
        self.ready = ready[self.what == "sum"]
        counts = np.array([np.bincount(came.argmax(axis=0), minlength=self.D) for came in self.ready])
        first, second = np.sort(counts, axis=1)[:, :-3:-1].T
        self.tied = bool((first == second).any())
        last = counts.argmax(axis=1)
        self.right = {"step": step, "ideal": ideal, "wins": wins, "even": dealt_out, "last": last}

    def usual(self, kinds: Array, mean: Any = np.mean) -> Array:
        """Everybody's seconds, if all operations of one kind took the same."""
        usual = np.empty_like(self.real)
        for kind in set(kinds.tolist()):
            usual[kinds == kind] = mean(self.real[kinds == kind])
        return usual

    def steps(self, cured: Array, instead: Array | None = None) -> Array:
        """The mean steps (...) where what is cured, (..., operations, D), takes its ideal seconds, or those given."""
        other = self.best if instead is None else instead
        mixed = np.where(cured[..., None], other, self.real)
        return _replayed(self.ops, np.moveaxis(mixed, -3, 0))[0]

    def wrong(self) -> dict[str, Any]:
        """Values of well-known slips, by name."""
        who = np.eye(self.D, dtype=bool)
        return {
            "ungrouped": _replayed(self.ops, self.real, group=False)[0],
            "own stage": _replayed(self.ops, self.even)[
                0
            ],  # and so is 'even', if sums are evened out as well
            "median": _replayed(self.ops, self.usual(self.what, np.median))[0],
            "everywhere": self.right["step"] - self.steps(np.broadcast_to(who[:, None], self.mine.shape)),
            "alone": self.steps(~self.mine) - self.right["ideal"],
            "without sums": self.right["step"] - self.steps(self.mine & self.passes),
            "even everywhere": self.steps(self.passes),
            "latest": self.ready.mean(axis=-1).argmax(axis=1),
            "slowest": np.array(
                [self.real[self.stage == s].sum(axis=(0, 2)).argmax() for s in range(self.S)]
            ),
        }


def _trace_case(
    rng: np.random.Generator, S: int, D: int, slower: float, long: float, share: tuple[float, float]
) -> Case:
    M, T = 4, 7
    while True:  # until no cure wins just about half of the loss, and nobody is last as often as another
        ops = _trace(rng, S, D, slower, long, M, T)
        it = _Account(ops)
        if share[0] <= it.shares[0] <= share[1] and abs(it.shares - 0.5).min() > 0.03 and not it.tied:
            break
    right, wrong = it.right, it.wrong()
    names = [
        ("Your 'step' lets each worker sum as soon as it is there. A sum waits for all of its stage.", "step", "ungrouped"),
        ("Your 'ideal' gives each stage a mean of its own: then a stage with too much to do is never at fault.",
         "ideal", "own stage"),
        ("Your 'ideal' takes medians, where the text asks for means.", "ideal", "median"),
        ("Your 'wins' cures a rank in all stages at once. Those are several workers.", "wins", "everywhere"),
        ("Your 'wins' asks how much one worker does in an ideal job. What does curing it win in this one?", "wins", "alone"),
        ("Your 'wins' leaves the worker's own part of the sum uncured.", "wins", "without sums"),
        ("Your 'even' evens out the sums as well.", "even", "own stage"),
        ("Your 'even' gives all stages one mean: then the model is cut anew, too.", "even", "even everywhere"),
    ]  # fmt: skip
    if (wrong["latest"] != wrong["slowest"]).any():  # else nobody can tell which of the two was done
        names += [
            ("Your 'last' are late on average. Who is the last in the most steps?", "last", "latest"),
            ("Your 'last' are those who compute longest. Who arrives last may only have waited for another stage.",
             "last", "slowest"),
        ]  # fmt: skip
    known = slips(
        right,
        *((text, key, wrong[name]) for text, key, name in names),
        ("Your 'wins' are shares of the loss, where seconds are asked for.",
         "wins", right["wins"] / (right["step"] - right["ideal"])),
        ("Your 'wins' are the step with the cure. How much shorter is it than without?",
         "wins", right["step"] - right["wins"]),
        ("Your 'wins' are the wins with a minus before them.", "wins", -right["wins"]),
        rtol=1e-6,
    )  # fmt: skip

    def judge(answer: Any) -> None:
        found = dict_of(answer, (*right, "cure"))
        for key, value in right.items():
            same_array(found[key], np.asarray(value), repr(key), rtol=1e-5, atol=1e-6)
        if (said := found["cure"]) != it.cure:
            wins = f"{100 * it.shares[0]:.0f} and {100 * it.shares[1]:.0f} % of the loss"
            raise Wrong(f"'cure' is {said!r}: here the best worker's cure and evenly dealt data win {wins}")

    label = f"{S} stage{'s' * (S > 1)} of {D} workers, {M} micro-batches, {T} steps"
    return Case((ops,), judge, label=label, mistakes=known)


EXERCISES = (
    Exercise(
        "10.3-1", "Three faults, no error message", "debug", 4, "sync_step", _sync_step, objectives=(1, 2),
        withheld=("labkit.learn.sync_sgd", "labkit.sgd.one_step"),
    ),
    Exercise("10.3-2", "Seven boxes", "debug", 4, "diagnose", _boxes, objectives=(1, 2)),
    Exercise(
        "10.3-3", "The slowest of K, and doing without it", "derive", 3, "slowest_of_K", _slowest, objectives=(3,)
    ),
    Exercise("10.3-4", "How far does it scale?", "plot", 3, "scaling", _scaling, objectives=(3, 4)),
    Exercise("10.3-5", "What one slow worker costs", "measure", 3, "", _measured, objectives=(3,)),
    Exercise("10.3-6", "The audit", "criticise", 3, "audit", _audit, objectives=(3, 4)),
    Exercise("10.3-7", "Last, or to blame?", "criticise", 4, "blame", _traces, objectives=(3, 4)),
)  # fmt: skip
