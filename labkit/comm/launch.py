"""``launch``: run one algorithm as K workers, in the world of your choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from labkit import checks
from labkit.comm.processes import Processes
from labkit.comm.run import Run
from labkit.comm.simulated import Simulated


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
    K = checks.integer("K", K, 1)
    if not callable(f):
        raise TypeError(f"f must be a function f(comm, ...), got {f!r}")
    timeout_s = checks.number("timeout_s", timeout_s, above=0)
    if world == "emulated":
        raise ValueError(
            "world 'emulated' needs a link speed: world=Emulated(rate=1.25e8) is 1 Gbit/s per port"
        )
    if world in ("simulated", "processes"):
        world = Simulated() if world == "simulated" else Processes()
    if isinstance(world, str) or not hasattr(world, "run"):
        raise ValueError(f"world must be 'simulated', 'processes' or a world object, got {world!r}")
    return world.run(f, K, args, kwargs, timeout_s)
