"""Choosing a configuration: time to accuracy = steps(B) x seconds per step(K, network, stragglers, method).

>>> from labkit.cost import Link
>>> from labkit.cost.plan import Cluster, Job, plan
>>> from labkit.learn import Hyperbola
>>> job = Job(P=25_600_000, example_s=4e-3, b=32)
>>> made = plan(job, Cluster(Link(20e-6, 3.125e9)), Hyperbola(S_min=7000, B_crit=4096), K=[8, 64])
>>> made.best().K
64
"""

from labkit.cost.plan.compressed import Compressed
from labkit.cost.plan.goals import Efficient, Goal, Least, goal
from labkit.cost.plan.inputs import Cluster, Examples, Job, Target, TwoLevel
from labkit.cost.plan.method import Method, Step
from labkit.cost.plan.methods import defaults
from labkit.cost.plan.plan import LeftOut, Plan, Row, plan
from labkit.cost.plan.served import SSP, Async, Backup
from labkit.cost.plan.summed import LocalSGD, Overlapped, Sync

__all__ = [
    "SSP",
    "Async",
    "Backup",
    "Cluster",
    "Compressed",
    "Efficient",
    "Examples",
    "Goal",
    "Job",
    "Least",
    "LeftOut",
    "LocalSGD",
    "Method",
    "Overlapped",
    "Plan",
    "Row",
    "Step",
    "Sync",
    "Target",
    "TwoLevel",
    "defaults",
    "goal",
    "plan",
]
