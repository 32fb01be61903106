"""The problem sets, a file each; and here what several share: how rows are dealt out, what is asked of every rank, steps of
a derivation. Judges compute what is right from the questions, or from a student's own data: no solution stands here.

It stands here because every other file of this folder is a set, and the folder as a whole is out of sight of answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.comm.run import Run
from labkit_book.problems.exercise import Case, Wrong, close, same_array
from labkit_book.problems.measured import read

Array = NDArray[Any]
Judge = Callable[[Any], None]
_Slip = tuple[str, str, Any]  # what is told of a mistake, its step, the wrong value
_Mistakes = tuple[tuple[str, Judge], ...]  # of a case


def as_if(judge: Callable[..., None], *pairs: tuple[str, Any]) -> _Mistakes:
    """A case's ``mistakes``: (sentence, wrong value) pairs; to ``judge(value, answer)``, what has that value is right."""
    return tuple((sentence, partial(judge, value)) for sentence, value in pairs)


class Parts(dict[str, Any]):
    """An answer in parts that count: what is wrong with one is told when all have been looked at, the first of all.

    Wrong unless it is a dict with these keys: ``do`` ... with the keys.
    """

    def __init__(self, answer: Any, keys: Iterable[str], do: str = "return a dict") -> None:
        if not isinstance(answer, dict) or set(answer) != set(keys):
            raise Wrong(f"{do} with the keys {', '.join(map(repr, keys))}")
        super().__init__(answer)
        self.wrong: dict[str, Wrong | None] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """For the look at one part."""
        self.wrong.setdefault(name)
        try:
            yield
        except Wrong as error:
            self.wrong[name] = self.wrong[name] or error

    def end(self) -> None:
        """Wrong unless all parts that were looked at are right."""
        for error in filter(None, self.wrong.values()):
            raise Wrong(str(error), {name: wrong is None for name, wrong in self.wrong.items()})


def steps(expected: dict[str, Any], rtol: float = 1e-8, atol: float = 0.0) -> Judge:
    """A judge of a derivation: a dict with these keys, a number or an array for each, each a part that counts."""
    return lambda answer: follow(Parts(answer, expected), expected, rtol=rtol, atol=atol)


def slips(right: dict[str, Any], *wrong: _Slip, rtol: float = 1e-8) -> _Mistakes:
    """A case's ``mistakes`` in steps, without those whose value is right here."""
    return tuple(
        (said, lambda answer, step=step, x=x: same_array(answer[step], x, rtol=rtol))
        for said, step, x in wrong
        if not np.allclose(x, right[step], rtol=1e-4, atol=0)
    )


def derived(
    args: tuple, right: dict[str, Any], label: str, *wrong: _Slip, rtol: float = 1e-8, atol: float = 0.0
) -> Case:
    """The case of a derivation whose right ``steps`` are known, and its ``slips``."""
    return Case(args, steps(right, rtol, atol), label=label, mistakes=slips(right, *wrong, rtol=rtol))


def workers(K: int) -> str:
    """For labels: "K = 1 worker", "K = 3 workers"."""
    return f"K = {K} worker{'s' * (K > 1)}"


def dealt(
    rng: np.random.Generator, K: int, d: int, apart: int, least: tuple[int, int], empty: bool = False
) -> list[tuple[Array, Array]]:
    """Each worker's rows and targets: as many as a number from ``least``, and 1 to K times ``apart``, in any
    order; ``empty``: one has none.
    """
    sizes = rng.permutation(np.arange(1, K + 1)) * apart + rng.integers(*least)
    if empty:
        sizes[rng.integers(1, K)] = 0
    all_of_them = rng.standard_normal((sizes.sum(), d)), rng.standard_normal(sizes.sum())
    return list(zip(*(np.split(x, np.cumsum(sizes)[:-1]) for x in all_of_them), strict=True))


def spoke(run: Run, rank: int, has: str = "what it has found") -> None:
    """Wrong if this rank of several has sent nothing."""
    if run.K > 1 and run.bytes_sent[rank] == 0:
        raise Wrong(f"no bytes were sent by rank {rank}: how can the others know {has}?")


def talked(run: Run, most: int, formula: str, has: str = "what it has found") -> None:
    """Wrong unless every rank of several has sent something, and none more than ``most`` bytes, in words ``formula``."""
    for rank, nbytes in enumerate(run.bytes_sent):
        spoke(run, rank, has)
        if nbytes > most:
            raise Wrong(f"rank {rank} sent {int(nbytes)} bytes, more than {formula}: send less")


def each_rank(expected: Array, run: Run, what: str = "w", **sent: Any) -> None:
    """Wrong unless every rank has ``expected``, all the same bits, and ``talked`` as ``sent``, if given."""
    if sent:
        talked(run, **sent)
    for rank, w in enumerate(run.results):
        same_array(w, expected, f"{what} of rank {rank}", rtol=1e-9, atol=1e-12)
    if any(np.asarray(w).tobytes() != np.asarray(run.results[0]).tobytes() for w in run.results):
        raise Wrong("the ranks hold different bits: they will drift apart, so let all add in the same order")


def follow(
    answer: Parts, right: dict[str, Any], *wrong: _Slip, rtol: float = 1e-2, atol: float = 0.0
) -> None:
    """The last look: Wrong unless these are what follows, numbers to ``rtol`` or ``atol``, words, yes and no.

    wrong: what is recognised in numbers; for a word, yes and no, (why, key, "").
    """
    for key, value in right.items():
        known = [(said, x) for said, at, x in wrong if at == key]
        with answer.of(key):
            kind = np.asarray(value).dtype.kind
            if kind == "b" and np.asarray(answer[key]).dtype.kind != "b":
                raise Wrong(f"{key!r} is {answer[key]!r}, which is neither True nor False")
            if kind in "bU":
                if not np.array_equal(answer[key], value):
                    raise Wrong(f"{key!r} says {answer[key]!r}: {known[0][0]}")
                continue
            given = answer[key] if isinstance(answer[key], (int, float, list, tuple, np.ndarray)) else []
            same: Callable[..., None] = same_array if np.ndim(value) else close
            try:
                same(answer[key], value, repr(key), rtol, atol)
            except Wrong:
                for said, x in known:
                    if np.shape(given) == np.shape(x) and np.allclose(given, x, rtol, atol):
                        raise Wrong(f"{key!r}: {said}") from None
                raise
    answer.end()


def pasted(
    answer: Any, concluded: Iterable[str], at: Iterable[Any], repeats: int
) -> tuple[Parts, dict[Any, Array]]:
    """The answer, and what was measured at each setting (repeats,). Wrong unless it is a dict of the pasted "data" and what
    is concluded from them, and the data are of these settings.
    """
    at, answer = list(at), Parts(answer, ("data", *concluded), "keep the dict as it was,")
    answer.wrong = dict.fromkeys(concluded)  # each is looked at, and what is wrong told in this order
    data = read(answer["data"], len(at), repeats)
    if set(data.at) != set(at) or data.values.shape[1] != repeats or (data.values < 0).any():
        raise Wrong(f"the data are to be of {', '.join(map(str, at))}, {repeats} times each, from zero up")
    return answer, dict(zip(data.at, data.values, strict=True))
