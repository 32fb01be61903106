"""``launch``: run one algorithm as K workers, in the world of your choice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from labkit.comm.run import Run


class World(Protocol):
    """Where workers live: ``Simulated``, ``Processes``, ``Emulated``."""

    def run(self, f: Callable[..., Any], K: int, args: tuple, kwargs: dict, timeout_s: float) -> Run:
        """Run ``f`` as K workers."""


def launch(
    f: Callable[..., Any],
    K: int,
    *args: Any,
    world: str | World = "simulated",
    timeout_s: float = 60.0,
    **kwargs: Any,
) -> Run:
    """Run ``f(comm, *args, **kwargs)`` as K workers and wait for all of them.

    f: any function, also one defined in a notebook cell; it gets this worker's ``Comm`` first.
    args, kwargs: copied to worker processes, except torch tensors in shared memory (``w.share_memory_()``), which are the
        same memory in all of them. In the simulation everything is shared.
    K: number of workers, >= 1.
    world: ``"simulated"``, ``"processes"``, or one with settings, as in ``Simulated(link=Link(1e-4, 1e8))``.
    timeout_s: deadline in wall-clock seconds for the whole launch.
    Returns a ``Run``. Raises ValueError or TypeError for arguments that make no sense, ``LaunchError`` where this
    machine can't do it, ``RankError`` (with ``ranks``) when a worker fails. Nothing is left running in any case.

    >>> run = launch(lambda comm, x: comm.rank * x, 3, 10)
    >>> run.results
    [0, 10, 20]
    """
    if isinstance(K, bool) or not hasattr(K, "__index__"):
        raise TypeError(f"K must be a whole number of workers, got {K!r}")
    K = K.__index__()
    if K < 1:
        raise ValueError(f"K must be at least 1 worker, got {K}")
    if not callable(f):
        raise TypeError(f"f must be a function f(comm, ...), got {f!r}")
    if not (isinstance(timeout_s, (int, float)) and timeout_s > 0 and math.isfinite(timeout_s)):
        raise ValueError(f"timeout_s must be a finite number of seconds > 0, got {timeout_s!r}")
    return _world(world).run(f, K, args, kwargs, float(timeout_s))


def _world(world: str | World) -> World:
    if isinstance(world, str):
        if world == "simulated":
            from labkit.comm.simulated import Simulated

            return Simulated()
        if world == "processes":
            from labkit.comm.processes import Processes

            return Processes()
        if world == "emulated":
            raise ValueError(
                "world 'emulated' needs a link speed: world=Emulated(rate=1.25e8) is 1 Gbit/s per port"
            )
    elif hasattr(world, "run"):
        return world
    raise ValueError(f"world must be 'simulated', 'processes' or a world object, got {world!r}")
