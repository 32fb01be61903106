"""What an exercise asks for and labkit has: taken away in an answer's process, so that it is written and not called.

This stops the shortcut, not a thief: labkit's source is free to read, and so is that of anybody else's solution.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class Withheld(Exception):
    """The answer uses what it should write."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is what you are asked to write")


def withhold_inplace(names: tuple[str, ...]) -> None:
    """Make these functions and classes of labkit raise Withheld, wherever labkit shows them, unless labkit calls them.

    names: with their module, as in ``"labkit.cost.ring_bytes"``. What is not imported yet is left to ``reading``.
    """
    for full in names:
        home, _, name = full.rpartition(".")
        if home not in sys.modules:
            continue
        real = getattr(sys.modules[home], name)
        if isinstance(real, type):
            type.__setattr__(real, "__init__", _refusing(full, real.__init__))  # type: ignore[misc]
            continue
        refusing = _refusing(full, real)
        for module in [
            m for key, m in sys.modules.items() if key.split(".")[0] == "labkit" and m is not None
        ]:
            for attribute, value in list(vars(module).items()):
                if value is real:
                    setattr(module, attribute, refusing)


def _refusing(full: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if str(sys._getframe(1).f_globals.get("__name__", "")).startswith("labkit."):
            return real(*args, **kwargs)
        raise Withheld(full)

    return refuse
