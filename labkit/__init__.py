"""labkit: write a distributed algorithm once, as one worker sees it; predict it, simulate it, run it, compare.

>>> import numpy as np
>>> from labkit import launch
>>> from labkit.collectives import ring_allreduce
>>> launch(lambda comm: ring_allreduce(comm, np.ones(4) * comm.rank), K=3).results[0]
array([3., 3., 3., 3.])
"""

from labkit.comm import Comm, Emulated, Processes, Run, Simulated, launch
from labkit.cost import Link
from labkit.grade import check
from labkit.timing import Timeline

__version__ = "0.1.0"
__all__ = ["Comm", "Emulated", "Link", "Processes", "Run", "Simulated", "Timeline", "check", "launch"]
