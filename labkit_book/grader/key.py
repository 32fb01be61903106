"""The key of a problem set, and the grader's test of itself on it: every reference gets full points, every mistake fewer.

References and mistakes go the way that answers go: as source, into processes behind the same walls. A key's file is the
setup there, without its imports of judges and hidden cases, which no answer's process ever sees.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labkit_book.grader.grading import grade_one
from labkit_book.grader.zygote import Zygote
from labkit_book.problems.asking import PASS
from labkit_book.problems.catalogue import book_order, find
from labkit_book.problems.exercise import Case, Exercise

_OURS = ("labkit_book.problems", "labkit_book.grader")  # what a key imports from here is for judges


class Key(NamedTuple):
    """What only the instructor has of a set, by exercise."""

    setup: str  # its source for an answer's process, with blank lines where it imports judges
    solutions: Mapping[str, Any]
    mutants: Mapping[str, Sequence[Any]]
    hidden: Mapping[str, Callable[[np.random.Generator], Iterable[Case]]]
    look_for: Mapping[str, Sequence[str]]  # in an answer in words, for each line of its rubric

    @classmethod
    def load(cls, folder: Path | str, name: str) -> "Key":
        """From key_*.py in ``folder``. Raises whatever that file does."""
        path = Path(folder) / f"key_{name.replace('.', '_')}.py"
        text = path.read_text(encoding="utf-8")
        tree, made = ast.parse(text), dict[str, Any](__name__=path.stem, __file__=str(path))
        exec(compile(tree, str(path), "exec"), made)
        lines = text.splitlines()
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_OURS):
                end = node.end_lineno or node.lineno
                lines[node.lineno - 1 : end] = [""] * (end - node.lineno + 1)
        tables = (made.get(name, {}) for name in ("SOLUTIONS", "MUTANTS", "HIDDEN", "LOOK_FOR"))
        return cls("\n".join(lines), *tables)

    @staticmethod
    def sets(folder: Path) -> tuple[str, ...]:
        """The names of all sets that have a key in this folder."""
        names = [p.stem.removeprefix("key_").replace("_", ".") for p in folder.glob("key_*.py")]
        return tuple(sorted(names, key=book_order))

    def questions(self, exercise: Exercise, seed: Any) -> Iterator[Case]:
        """The cases of an exercise that ``seed`` draws, hidden ones last."""
        rng = np.random.default_rng(seed)
        yield from exercise.cases(rng)
        if exercise.id in self.hidden:
            yield from self.hidden[exercise.id](rng)


def selftest(key: Key, id: str, zygote: Zygote) -> Iterator[str]:
    """Grade the reference and every mistake of an exercise; yields what came out otherwise than it must."""
    exercise = find(id)
    if exercise.rubric:
        if (told := len(key.look_for.get(id, ()))) != len(exercise.rubric):
            yield f"LOOK_FOR of {id} has {told} lines, where its rubric has {len(exercise.rubric)}"
        return
    if id not in key.solutions or not key.mutants.get(id):
        yield f"the key has no {'mistakes' if id in key.solutions else 'solution'} of {id}"
        return
    cases = [case for seed in (0, 1, 20) for case in key.questions(exercise, seed)]
    graded = partial(grade_one, exercise, cases=cases, setup=key.setup, name="answer_", zygote=zygote)
    if (got := graded(f"answer_ = SOLUTIONS[{id!r}]")).status != PASS:
        yield f"the solution of {id} gets {got.status}: {got.message}"
    for i in range(len(key.mutants[id])):
        if graded(f"answer_ = MUTANTS[{id!r}][{i}]").status == PASS:
            yield f"mistake {i} of {id} gets full points"
