"""Figure "step_time": computation and communication of a step against the number of workers.

A step computes ``t_comp`` seconds, of which the backward pass is a part, and sums the gradient in L buckets: each as soon as
its gradients are there and the bucket before it is through (lab 2.2, overlap). One bucket: no overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from labkit.checks import integer, number, one_of
from labkit.show.figures.base import Figure, parameter


@dataclass(frozen=True, repr=False)
class StepTime(Figure):
    """P parameters of ``itemsize`` bytes, ``t_comp`` s of computation, a link of ``alpha`` s and ``beta`` bytes/s.

    K: workers. algorithm: ring, tree, halving, doubling or naive. buckets: L. backward: the backward pass's share of the
    computation, 0 to 1.
    """

    name: ClassVar[str] = "step_time"
    P: float = parameter(2e8, number, least=0)
    itemsize: int = parameter(4, integer, least=1)
    t_comp: float = parameter(0.08, number, least=0)
    alpha: float = parameter(0.0, number, least=0)
    beta: float = parameter(1e10, number, above=0)
    K: int = parameter(8, integer, least=1, most=2**53)
    algorithm: str = parameter("ring", one_of, allowed=("ring", "tree", "halving", "doubling", "naive"))
    buckets: int = parameter(1, integer, least=1, most=1024)
    backward: float = parameter(2 / 3, number, least=0, most=1)
