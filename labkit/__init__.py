"""labkit: write a distributed algorithm once, as one worker sees it; predict it, simulate it, run it, compare.

K workers take the SGD step of one, for an all-reduce adds their gradients (``labkit.sgd``, also in torch.distributed):

>>> import numpy as np
>>> from labkit import Link, launch
>>> from labkit.learn import LeastSquares
>>> from labkit.sgd import one_step
>>> problem = LeastSquares([[1.0], [2.0]], [1.0, 2.0])
>>> launch(lambda comm: one_step(comm, problem, np.zeros(1), 0.1, [comm.rank]), K=2).results
[array([0.5]), array([0.5])]

Who is late, from when each worker comes to each barrier (``labkit.timing``; the same of a run's ``timeline``):

>>> from labkit.timing import Synchronous, straggler_report
>>> straggler_report(Synchronous().timeline(np.array([[0.1] * 9, [0.2] * 9, [0.1] * 9]))).stragglers
(1,)

What the ring costs, here for 4 MB among 4 workers at 1 Gbit/s:

>>> from labkit.collectives import ring
>>> round(ring.time(4, 4e6, Link(alpha=1e-4, beta=1.25e8)), 6)
0.0486

The names below are loaded when they are first used, so that ``import labkit`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.comm import Comm, Emulated, Processes, Run, Simulated
    from labkit.comm.launch import launch
    from labkit.network import Link
    from labkit.timing import Timeline

__version__ = "0.1.0"
__all__ = [
    "Comm",
    "Emulated",
    "Link",
    "Processes",
    "Run",
    "Simulated",
    "Timeline",
    "launch",
]

_HOME = dict.fromkeys(__all__, "labkit.comm") | {
    "Link": "labkit.network",
    "Timeline": "labkit.timing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
