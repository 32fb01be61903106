"""Which exercises there are: the sets, a file each in `labkit_book.problems.sets`, found by their names."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from labkit_book.problems.exercise import Exercise


def exercise_set(name: str) -> dict[str, Exercise]:
    """All exercises of a set, by id. name: the section, ``"10.3"``. Raises ValueError if there is no such set.

    >>> sorted(exercise_set("10.3"))[:2]
    ['10.3-1', '10.3-2']
    """
    try:
        module = importlib.import_module(f"labkit_book.problems.sets.s{name.replace('.', '_')}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("labkit_book.problems.sets."):
            raise
        named = "sets are named like their section, as in '10.3'"
        raise ValueError(f"there is no exercise set {name!r}; {named}") from None
    return {e.id: e for e in module.EXERCISES}


def book_order(name: str) -> list[tuple[bool, int, str]]:
    """By which sets ("10.3", then "A") and exercises ("10.3-2") stand in order."""
    parts = name.replace("-", ".").split(".")
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def all_exercises() -> Iterator[Exercise]:
    """Every exercise of every set that labkit has."""
    sets = importlib.import_module("labkit_book.problems.sets")
    for module in pkgutil.iter_modules(sets.__path__):
        yield from exercise_set(module.name.removeprefix("s").replace("_", ".")).values()


def find(id: str) -> Exercise:
    """The exercise with this id. Raises ValueError if there is none."""
    exercises = exercise_set(str(id).split("-")[0])
    if id not in exercises:
        raise ValueError(f"there is no exercise {id!r}; this set has {', '.join(exercises)}")
    return exercises[id]
