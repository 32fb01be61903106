"""``worked``: the solution of an exercise, once ``check`` has said right, or for whoever asks for it all the same.

They lie in ``worked.txt``, made from the instructor's keys by ``book/tools/worked.py``, compressed, so that nobody reads one
by accident or meets it in a search. That keeps them from the eye and not from a thief. An answer that is checked or graded
can use neither the function (``withheld``) nor, in the grader, the file; a package without it has no worked solutions.
"""

from __future__ import annotations

import base64
import json
import lzma
from dataclasses import dataclass
from pathlib import Path

from labkit.exercises.catalogue import find

SEALED = Path(__file__).with_suffix(".txt")
_solved: set[str] = set()  # in this session


@dataclass(frozen=True)
class Worked:
    """What ``worked`` shows. text: Markdown. code: Python that runs as it stands; "" where there is none."""

    text: str
    code: str = ""

    def __str__(self) -> str:
        return f"# {self.text}\n{self.code}" if self.code else self.text

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return f"{self.text}\n\n```python\n{self.code}```\n" if self.code else self.text


def worked(id: str, *, anyway: bool = False) -> Worked:
    """One way to solve an exercise; of one in words, what a good answer says.

    id: as in ``"10.3-2"``. anyway: show it although ``check`` has not said *right* since this Python started, as it never
        does of words.
    Raises ValueError for an id that does not exist.

    >>> worked("10.3-1")
    check("10.3-1", ...) has not said right yet. To see a solution all the same: worked("10.3-1", anyway=True)
    """
    exercise, there = find(id), unsealed().get(id)
    if there is None:
        return Worked(f"This labkit has no worked solution of {id}.")
    if not (anyway or id in _solved):
        yet = "A person reads your words" if exercise.rubric else f'check("{id}", ...) has not said right yet'
        return Worked(f'{yet}. To see a solution all the same: worked("{id}", anyway=True)')
    if exercise.rubric:
        says = (f"* *{what}*: {text}" for (what, _), text in zip(exercise.rubric, there, strict=True))
        return Worked("\n".join([f"{id} {exercise.title}: what a good answer says", "", *says]))
    whose = ", on somebody else's machine" * (exercise.kind == "measure")
    whose += ", for the notebook that everybody has" * (exercise.variant is not None)
    return Worked(f"{id} {exercise.title}: one way to do it{whose}", there[0])


def solved(id: str) -> str:
    """Take note that ``check`` has said right; a line on where its solution is, "" where there is none."""
    _solved.add(id)
    return f'to compare: from labkit.exercises import worked; worked("{id}")' if id in unsealed() else ""


def unsealed() -> dict[str, list[str]]:
    """All worked solutions that this package has, by exercise: Python, or a text for each criterion."""
    if not SEALED.exists():
        return {}
    packed = SEALED.read_text(encoding="ascii").replace("\n", "")
    return dict(json.loads(lzma.decompress(base64.b85decode(packed))))
