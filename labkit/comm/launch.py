"""``launch``: run one algorithm as K workers, in the world of your choice."""

from collections.abc import Callable
from typing import Any

from labkit import checks
from labkit.comm.processes import Processes
from labkit.comm.run import Run, Task
from labkit.comm.simulated import Simulated


def launch(
    f: Callable[..., Any],
    K: int,
    *args: Any,
    world: Any = "simulated",
    timeout_s: float = 60.0,
    **kwargs: Any,
) -> Run:
    """Run ``f(comm, *args, **kwargs)`` as K workers and wait for all of them.

    f: any function, also one defined in a notebook cell. args, kwargs: copied to worker processes, except torch tensors in
    shared memory (``w.share_memory_()``), which are the same memory in all of them; in the simulation everything is shared.
    world: ``"simulated"``, ``"processes"``, or one with settings: ``Simulated``, ``Processes`` or ``Emulated``, as in
    ``Simulated(link=Link(1e-4, 1e8))``. timeout_s: deadline in wall-clock seconds.
    Returns a ``Run``. Raises ValueError or TypeError for arguments that make no sense, ``LaunchError`` where this
    machine can't do it, ``RankError`` (with ``ranks``) when a worker fails. Nothing is left running in any case.

    >>> launch(lambda comm, x: comm.rank * x, 3, 10).results
    [0, 10, 20]
    """
    K = checks.integer("K", K, 1)
    if not callable(f):
        raise TypeError(f"f must be a function f(comm, ...), got {f!r}")
    timeout_s = checks.number("timeout_s", timeout_s, above=0)
    if isinstance(world, str):
        world = {"simulated": Simulated(), "processes": Processes()}.get(world, world)
    if not hasattr(world, "run"):
        known = "'simulated', 'processes' or a world with settings, as Emulated(rate=1.25e8)"
        raise ValueError(f"world must be {known}, got {world!r}")
    return world.run(Task(f, args, kwargs), K, timeout_s)
