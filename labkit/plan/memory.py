"""What sharded training keeps and sends: ZeRO's three stages (Rajbhandari et al. 2020, sections 3.1, 5 and 7).

A worker keeps for each parameter the parameter, its gradient and the optimizer's state. Stage 1 shards the state over
the K workers, stage 2 the gradients too, stage 3 the parameters too. Symbols: P parameters, K workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.checks import integer
from labkit.collectives.base import Counts
from labkit.collectives.ring import all_gather, reduce_scatter, ring


@dataclass(frozen=True)
class Precision:
    """Bytes that training keeps for each parameter. state: what the optimizer keeps, a float32 master copy included."""

    parameter: int
    gradient: int
    state: int

    def __post_init__(self) -> None:
        for name in ("parameter", "gradient", "state"):
            integer(name, getattr(self, name))

    @property
    def total(self) -> int:
        return self.parameter + self.gradient + self.state


#: Adam in mixed precision: parameters and gradients of 2 bytes; master copy and two moments of 4 each. 16 in all.
MIXED = Precision(2, 2, 12)
#: Adam in single precision: 4 bytes each of parameter and gradient, two moments of 4 each. 16 as well.
SINGLE = Precision(4, 4, 8)


def zero_memory(P: int, K: int, stage: int, precision: Precision = MIXED) -> float:
    """Bytes of parameters, gradients and optimizer state on each worker (mean over the workers).

    stage: 0 (plain data parallelism) to 3. Activations, buffers of the communication and the units that stage 3 has
    gathered come on top. Raises ValueError for a stage that there is not.

    >>> [zero_memory(1_000_000, 4, stage) for stage in range(4)]
    [16000000.0, 7000000.0, 5500000.0, 4000000.0]
    """
    P, K, stage = integer("P", P), integer("K", K, least=1), _stage(stage)
    # in the order in which they are sharded
    sizes = (precision.state, precision.gradient, precision.parameter)
    return float(sum(P * size / (K if i < stage else 1) for i, size in enumerate(sizes)))


def zero_factor(stage: int, micro_batches: int = 1, free_after_forward: bool = True) -> float:
    """Bytes sent in a step, in units of one all-reduce of the gradient, 2 (K - 1)/K n bytes a worker.

    micro_batches: backward passes whose gradients gather for one step. Stage 0 and 1 sum what has gathered, once; stage
    2 reduce-scatters in each; stage 3 also gathers in each, once or twice. An all-gather and a reduce-scatter are half each.

    >>> [zero_factor(stage) for stage in range(4)]
    [1.0, 1.0, 1.0, 1.5]
    """
    return sum(_gathers_and_sums(stage, micro_batches, free_after_forward)) / 2


def zero_bytes(
    K: int,
    sizes: Sequence[int],
    itemsize: int,
    stage: int,
    micro_batches: int = 1,
    free_after_forward: bool = True,
) -> Counts:
    """Bytes each rank sends in a step, (K,), around rings; exact for every K and all sizes.

    sizes: elements of each vector that is summed or gathered at once (one for stages 0 and 1, one a bucket for stage 2,
    one a unit for stage 3). itemsize: bytes of an element. The rest as ``zero_factor``.
    """
    gathers, sums = _gathers_and_sums(stage, micro_batches, free_after_forward)
    total = ring.bytes(K, 0, itemsize)
    for n in sizes:
        if stage == 0:
            total = total + ring.bytes(K, n, itemsize)
        else:
            total = total + sums * reduce_scatter.bytes(K, n, itemsize)
            total = total + gathers * all_gather.bytes(K, n, itemsize)
    return total


def _gathers_and_sums(stage: int, micro_batches: int, free_after_forward: bool) -> tuple[int, int]:
    """How often a step all-gathers the parameters, and how often it reduce-scatters gradients."""
    m, stage = integer("micro_batches", micro_batches, least=1), _stage(stage)
    return m * (2 if free_after_forward else 1) if stage == 3 else 1, m if stage >= 2 else 1


def _stage(stage: int) -> int:
    return integer("stage", stage, most=3)
