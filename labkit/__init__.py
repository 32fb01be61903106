"""labkit: write a distributed algorithm once, as one worker sees it; predict it, simulate it, run it, compare.

>>> import numpy as np
>>> from labkit import launch
>>> from labkit.collectives import ring_allreduce
>>> launch(lambda comm: ring_allreduce(comm, np.ones(4) * comm.rank), K=3).results[0]
array([3., 3., 3., 3.])

The names below are loaded when they are first used, so that ``import labkit`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.comm import Comm, Emulated, Processes, Run, Simulated
    from labkit.comm.launch import launch
    from labkit.cost import Link
    from labkit.grade.check import check
    from labkit.timing import Timeline

__version__ = "0.1.0"
__all__ = ["Comm", "Emulated", "Link", "Processes", "Run", "Simulated", "Timeline", "check", "launch"]

_HOME = dict.fromkeys(__all__, "labkit.comm") | {
    "Link": "labkit.cost",
    "Timeline": "labkit.timing",
    "check": "labkit.grade",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
