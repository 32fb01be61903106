"""Problem set B: failures.

What is right is computed from the questions: exponential failures (Daly 2006, equation 13 and its derivation), Young's
first-order cost (Young 1974), what a POSIX rename and fsync promise (POSIX.1-2017), binomial tails. No solutions here.

Symbols: K workers, M = ``mtbf_s`` of the whole job, delta = ``write_s``, tau = ``interval_s``, R = ``restart_s``. Seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from labkit.exercises.exercise import Case, Exercise, Wrong, close, number
from labkit.extras import scipy
from labkit.timing import ShiftedExponential, draw

Judge = Callable[[Any], None]


def _parts(answer: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(answer, (tuple, list)) or len(answer) != len(names):
        raise Wrong(f"return {len(names)} things, {', '.join(names)}, not {type(answer).__name__}")
    return tuple(answer)


def _each(expected: dict[str, float]) -> Judge:
    def judge(answer: Any) -> None:
        for (what, right), given in zip(expected.items(), _parts(answer, tuple(expected)), strict=True):
            close(given, right, what, rtol=1e-8)

    return judge


# -- 1: how often ---------------------------------------------------------------------------------------------------


def _failures(rng: np.random.Generator) -> Iterator[Case]:
    year = 365.25 * 86400
    for K, worker_s, T_s, label in (
        (1, 2 * year, year, "one worker for a year"),
        (8, 5.8 * year, 30 * 86400.0, "one machine of eight, for a month"),
        (16384, 5.8 * year, 3600.0, "16,384 workers for an hour"),
        (16384, 5.8 * year, 54 * 86400.0 / 100, "16,384 workers for half a day"),
        (int(rng.integers(10, 1000)), float(rng.uniform(0.5, 3)) * year, 4e5, "a few hundred workers"),
    ):
        M = worker_s / K
        right = {"mtbf_s": M, "expected": T_s / M, "p_none": math.exp(-T_s / M)}
        yield Case((worker_s, K, T_s), _each(right), label=f"{label}: {worker_s:.3g} s each, {T_s:.3g} s")


# -- 2: the interval in whole steps ---------------------------------------------------------------------------------


def _interval_steps(rng: np.random.Generator) -> Iterator[Case]:
    yield _steps_case(30.0, 11135.0, 5.0, "a big job, steps of 5 s")
    yield _steps_case(0.01, 50.0, 60.0, "a step longer than the best interval")
    # x = sqrt(2 delta M) / step with n (n + 1) < x^2 < (n + 1/2)^2: the nearest whole number is not the best
    for n in (1, 2):
        x = math.sqrt(n * (n + 1) + 0.1)
        M = float(rng.uniform(3000, 9000))
        yield _steps_case(x * x * 400.0**2 / (2 * M), M, 400.0, f"a close race of {n} and {n + 1} steps")
    for _ in range(3):
        delta, M, step = (float(v) for v in rng.uniform((1, 2000, 0.5), (60, 20000, 20)))
        yield _steps_case(delta, M, step, "numbers drawn at random")


def _steps_case(delta: float, M: float, step: float, label: str) -> Case:
    def cost(n: int) -> float:
        return delta / (n * step) + n * step / (2 * M)

    below = max(1, math.floor(math.sqrt(2 * delta * M) / step))
    best = min((below, below + 1), key=cost)

    def judge(answer: Any) -> None:
        n = number(answer, "the number of steps")
        if n != int(n):
            raise Wrong(f"the number of steps should be whole, but is {n:.6g}")
        if n < 1:
            raise Wrong(f"the number of steps should be at least 1, but is {n:.0f}: when would it write?")
        if int(n) != best:
            raise Wrong(
                f"another number of steps than {int(n)} loses less: write / interval + interval / (2 M)"
            )

    says = f"{label}: write {delta:.4g} s, M = {M:.4g} s, a step of {step:.4g} s"
    return Case((delta, M, step), judge, label=says)


# -- 3: goodput where a restart is safe -----------------------------------------------------------------------------


def _safe_goodput(rng: np.random.Generator) -> Iterator[Case]:
    a, b, c, d = (float(v) for v in rng.uniform((50, 1, 10, 400), (900, 60, 600, 4000)))
    for tau, delta, R, M, label in (
        (600.0, 30.0, 0.0, 11135.0, "restarts at once"),
        (600.0, 0.0, 300.0, 11135.0, "writes in no time"),
        (800.0, 30.0, 300.0, 11135.0, "the lab's big job"),
        (2000.0, 200.0, 900.0, 1500.0, "an interval longer than M"),
        (a, b, c, d, "numbers drawn at random"),
    ):
        # E[time] = M (e^(c / M) - 1) at work, and e^(c / M) - 1 failures of R each; c = tau + delta
        right = tau / ((M + R) * math.expm1((tau + delta) / M))
        says = f"{label}: tau = {tau:.4g}, delta = {delta:.4g}, R = {R:.4g}, M = {M:.4g} s"
        yield Case((tau, delta, R, M), _goodput_judge(right), label=says)


def _goodput_judge(right: float) -> Judge:
    def judge(answer: Any) -> None:
        close(answer, right, "the goodput", rtol=1e-8)

    return judge


# -- 4: which steps are computed ------------------------------------------------------------------------------------


def _computed(rng: np.random.Generator) -> Iterator[Case]:
    a, b = (int(v) for v in rng.integers(11, 20, size=2))
    for T, every, kills, label in (
        (12, 5, (), "nobody is killed"),
        (20, 5, (17,), "the lab's job"),
        (20, 5, (3,), "killed before there is a checkpoint"),
        (20, 5, (10,), "killed right after a checkpoint"),
        (18, 5, (17, 16, 17), "killed three times in one interval"),
        (10, 20, (9,), "an interval longer than the job"),
        (25, int(rng.integers(2, 6)), (min(a, b), max(a, b)), "numbers drawn at random"),
    ):
        yield Case(
            (T, every, kills),
            _computed_judge(T, every, kills),
            label=f"{label}: T = {T}, every {every}, kills {kills}",
        )


def _computed_judge(T: int, every: int, kills: tuple[int, ...]) -> Judge:
    right: list[int] = []
    begin = 0
    for end in (*kills, T):
        right += range(begin, end)
        begin = max(begin, end // every * every)

    def judge(answer: Any) -> None:
        try:
            got = [int(t) for t in answer]
        except (TypeError, ValueError):
            raise Wrong(
                "return a list of the numbers of the steps, in the order in which they are computed"
            ) from None
        for i, t in enumerate(got):
            if i >= len(right):
                raise Wrong(f"you list {len(got)} steps, and that is too many")
            if t != right[i]:
                raise Wrong(f"entry {i} of your list is step {t}, and at that point another one is computed")
        if len(got) < len(right):
            raise Wrong(f"you list {len(got)} steps, and the job computes more")

    return judge


# -- 5: a save that survives ----------------------------------------------------------------------------------------


def _atomic(rng: np.random.Generator) -> Iterator[Case]:
    for name in ("step-10.ckpt", f"step-{int(rng.integers(100, 999))}.ckpt"):
        for there in (True, False):
            label = f"{name} {'is there already' if there else 'is not there yet'}"
            yield Case((name,), _power_cuts(name, there), label=label)


# A disk whose power is cut at every moment promises what POSIX does (rename and fsync): a rename is one step, contents are
# on the disk once they are synced, and names once their folder is.
_MOST_STEPS = 50
_VERBS = {"write": 1, "sync": 1, "rename": 2, "remove": 1, "sync_folder": 0}  # how many names each takes


def _power_cuts(name: str, there: bool) -> Judge:
    """A judge of a list of operations that save ``name``. there: whether a checkpoint of that name is there before.

    Power is cut after every operation and within every write; of what was not synced, any part may be lost.
    """

    def judge(answer: Any) -> None:
        steps = [_operation(step) for step in _listed(answer)]
        if len(steps) > _MOST_STEPS:
            raise Wrong(f"{len(steps)} steps are far more than it takes")
        if not any(verb == "write" for verb, *_ in steps):
            raise Wrong("nothing is written")
        for cut in range(len(steps) + 1):
            for half in (False, True) if cut < len(steps) and steps[cut][0] == "write" else (False,):
                ran, disk = steps[:cut], _Disk(name, there)
                for step in ran:
                    disk.do(step)
                if half:
                    disk.tear(steps[cut][1])
                when = (
                    "after the last step"
                    if cut == len(steps)
                    else f"{'in' if half else 'before'} step {cut + 1}"
                )
                _survives(disk.after_a_cut(name), there, cut == len(steps), when)

    return judge


def _survives(found: set[str], there: bool, finished: bool, when: str) -> None:
    if "torn" in found:
        raise Wrong(f"power cut {when}: part of a checkpoint can be found under its good name")
    if there and "missing" in found:
        raise Wrong(f"power cut {when}: the old checkpoint can be gone and the new one not there")
    if finished and found != {"new"}:
        raise Wrong(f"power cut {when}: the function has returned, and the new checkpoint can still be lost")


class _Disk:
    """Files as programs see them, and which contents and names the disk itself may have."""

    def __init__(self, name: str, there: bool) -> None:
        self.files = {name: "old"} if there else {}  # what a program sees
        self.synced: dict[str, bool] = {}  # whether a file's content is on the disk
        self.names: list[dict[str, tuple[str, bool]]] = [
            self._view()
        ]  # folders the disk may show after a cut

    def _view(self) -> dict[str, tuple[str, bool]]:
        return {f: (content, self.synced.get(f, True)) for f, content in self.files.items()}

    def do(self, operation: tuple[str, ...]) -> None:
        verb, *files = operation
        if verb != "write" and files and files[0] not in self.files:
            raise Wrong(f"{verb} of {files[0]!r}: there is no such file at that point")
        if verb == "write":
            self._put(files[0], "new", False)
        elif verb == "sync":
            self._put(files[0], self.files[files[0]], True)
        elif verb == "rename":
            self.files[files[1]] = self.files.pop(files[0])
            self.synced[files[1]] = self.synced.pop(files[0], True)
            self.names.append(self._view())
        elif verb == "remove":
            del self.files[files[0]]
            self.synced.pop(files[0], None)
            self.names.append(self._view())
        else:
            self.names = [self._view()]

    def _put(self, file: str, content: str, synced: bool) -> None:
        """Contents are changed in place: wherever the disk knows this file, it may show the change."""
        made = file not in self.files
        before = self.files.get(file)
        self.files[file], self.synced[file] = content, synced
        if made:
            self.names.append(self._view())
        for view in self.names:
            if file in view and (made or view[file][0] in (before, content)):
                view[file] = (content, synced)

    def tear(self, file: str) -> None:
        self._put(file, "torn", False)

    def after_a_cut(self, name: str) -> set[str]:
        """What may be found under ``name``: "old", "new", "torn" or "missing"."""
        found = set()
        for view in self.names:
            content, synced = view.get(name, ("missing", True))
            found |= {content} if synced else {content, "torn"}
        return found


def _listed(answer: Any) -> list[Any]:
    if not isinstance(answer, (list, tuple)):
        raise Wrong(f"return a list of operations, not {type(answer).__name__}")
    return list(answer)


def _operation(step: Any) -> tuple[str, ...]:
    words = (step,) if isinstance(step, str) else tuple(step) if isinstance(step, (list, tuple)) else ()
    if not words or words[0] not in _VERBS or len(words) != 1 + _VERBS[words[0]]:
        raise Wrong(
            f"{step!r} is not an operation of the list: see what may be done, and with how many names"
        )
    if not all(isinstance(word, str) and word for word in words):
        raise Wrong(f"{step!r} must be made of names")
    return words


# -- 6: read a recording --------------------------------------------------------------------------------------------


def _diagnose(rng: np.random.Generator) -> Iterator[Case]:
    for K, T, kind in (
        (8, 60, "slow"), (4, 40, "slow"), (16, 64, "noise"), (8, 60, "noise"), (8, 60, "hiccup"), (4, 40, "link"),
        (16, 64, "slow"), (8, 60, "slow on a slow link"),
    ):  # fmt: skip
        work = _work(rng, K, T, conspicuous=2.0 if K == 16 and kind == "noise" else 1.0)
        rank = int(rng.integers(1, K))
        right: Any = "noise"
        communicate = 0.010
        if kind.startswith("slow"):
            work[rank] += 0.050
            right = rank
        elif kind == "hiccup":
            work[rank, T // 2] += 5.0  # once, and never again
        elif kind == "link":
            right = "link"
        if "link" in kind:
            communicate = 0.400
        stay = work.max(axis=0) - work + communicate
        yield Case((work, stay), _diagnose_judge(right), label=f"{K} ranks, {T} steps")


def _work(rng: np.random.Generator, K: int, T: int, conspicuous: float) -> np.ndarray:
    """(K, T) seconds of ranks alike; by chance one is last more than ``conspicuous`` times its share, which 1 of 10
    such jobs would show."""
    binom = scipy("stats").binom
    while True:
        work = draw(ShiftedExponential(0.090, 0.020), K, T, int(rng.integers(2**31)))
        most = np.bincount(work.argmax(axis=0), minlength=K).max()
        if most > conspicuous * T / K and K * binom.sf(most - 1, T, 1 / K) > 0.1:
            return np.array(work)


def _diagnose_judge(right: Any) -> Judge:
    def judge(answer: Any) -> None:
        words = ("noise", "link")
        if isinstance(answer, str) and answer not in words:
            raise Wrong(f'{answer!r} is not a diagnosis: return a rank, "noise" or "link"')
        given = answer if isinstance(answer, str) else int(number(answer, "the rank"))
        if given == right:
            return
        if given == "noise":
            raise Wrong('you say "noise", but this recording has a cause')
        if given == "link":
            raise Wrong('you say "link", but what the ranks share is not what makes this recording special')
        if right in words:
            raise Wrong(f"you blame rank {given}, and this job would be no better without it")
        raise Wrong(f"you blame rank {given}, but another rank keeps everybody waiting")

    return judge


EXERCISES = (
    Exercise("B-1", "How often does it fail?", "build", 2, "failures", _failures, objectives=(1,)),
    Exercise(
        "B-2", "A checkpoint every n steps", "build", 3, "interval_steps", _interval_steps, objectives=(1,)
    ),
    Exercise(
        "B-3", "Goodput with a safe restart", "build", 3, "safe_goodput", _safe_goodput, objectives=(1,)
    ),
    Exercise("B-4", "Which steps are computed?", "build", 3, "computed", _computed, objectives=(2,)),
    Exercise("B-5", "A save that survives", "build", 4, "save", _atomic, objectives=(2, 3)),
    Exercise("B-6", "Read a recording", "build", 4, "diagnose", _diagnose, objectives=(4,)),
)
