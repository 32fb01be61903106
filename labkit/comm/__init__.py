"""Who talks: ``Comm``, the worlds that workers live in, and ``launch``."""

from labkit.comm.base import Comm, Request
from labkit.comm.emulated import Emulated
from labkit.comm.errors import (
    Deadlock,
    LaunchError,
    Mismatch,
    RankDied,
    RankError,
    RankTimeout,
)
from labkit.comm.launch import launch
from labkit.comm.processes import Processes
from labkit.comm.run import Run
from labkit.comm.simulated import Simulated
