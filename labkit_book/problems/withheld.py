"""What an exercise asks for and labkit has: taken away while an answer runs, so that it is written and not called.

The same in the notebook's check (``taken_away``) and in an answer's process: wherever a module shows the function or
class, a stand-in stands that refuses to be called, whoever calls it. In an answer's process its source file is out of sight
as well (``server``). This stops the shortcut, not a thief: labkit's source is free to read elsewhere.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from labkit_book.problems.exercise import Wrong

# What shows a name, which, and what it meant (None: what a class above says).
Taken = list[tuple[Any, str, Any]]


def replace_inplace(real: Any, stand_in: Any) -> Taken:
    """Put ``stand_in`` wherever our packages or the main module show this function or class; returns what was there."""
    taken: Taken = []
    for key, module in list(sys.modules.items()):
        if module is not None and key.partition(".")[0] in ("labkit", "labkit_book", "__main__"):
            for attribute in [a for a, value in vars(module).items() if value is real]:
                setattr(module, attribute, stand_in)
                taken.append((module, attribute, real))
    return taken


def withhold_inplace(names: Iterable[str]) -> Taken:
    """Have these raise Wrong wherever they are shown.

    names: functions and classes with their module, as ``"labkit.learn.sync_sgd"``; methods with the object whose they are,
    as ``"labkit.collectives.ring.bytes"``.
    """
    taken: Taken = []
    for full in names:
        holder, name = holder_of(full)
        if isinstance(holder, type):
            taken.append((holder, name, vars(holder).get(name)))
            setattr(holder, name, _refusing(full))
        else:
            taken += replace_inplace(getattr(holder, name), _refusing(full))
    return taken


def holder_of(full: str) -> tuple[Any, str]:
    """The module that shows a name, or the class of the object whose method it is; and the last part of the name."""
    home, _, name = full.rpartition(".")
    holder = pkgutil.resolve_name(home)
    if not hasattr(holder, name):  # a module hides an object of the same name
        holder = pkgutil.resolve_name(":".join(home.rsplit(".", 1)))
    return holder if isinstance(holder, ModuleType) else type(holder), name


@contextmanager
def taken_away(names: Iterable[str]) -> Iterator[None]:
    """These names of labkit refuse to be called inside the ``with``."""
    taken = withhold_inplace(names)
    try:
        yield
    finally:
        for holder, name, real in taken:
            if real is None:
                delattr(holder, name)
            else:
                setattr(holder, name, real)


def _refusing(full: str) -> type:
    """A stand-in for a function or a class; a type, so that ``isinstance`` still works."""

    class Refusing:
        def __new__(cls, *_: Any, **__: Any) -> Any:
            raise Wrong(f"{full.removesuffix('.__call__')} is what you are asked to write")

    Refusing.__name__ = Refusing.__qualname__ = full.rpartition(".")[2]
    return Refusing
