"""What sharded training keeps and sends: ZeRO's three stages (Rajbhandari et al. 2020, sections 3.1, 5 and 7).

A worker keeps for each parameter the parameter, its gradient and the optimizer's state. Stage 1 shards the state over
the K workers, stage 2 the gradients too, stage 3 the parameters too. Symbols: P parameters, K workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.cost.closed_forms import Counts, _whole, ring_bytes
from labkit.cost.parts import all_gather_bytes, reduce_scatter_bytes


@dataclass(frozen=True)
class Precision:
    """Bytes that training keeps for each parameter. state: what the optimizer keeps, a float32 master copy included."""

    parameter: int
    gradient: int
    state: int

    def __post_init__(self) -> None:
        for name in ("parameter", "gradient", "state"):
            _whole(getattr(self, name), name)

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
    P, K, stage = _whole(P, "P"), _whole(K, "K", at_least=1), _stage(stage)
    sizes = (
        precision.state,
        precision.gradient,
        precision.parameter,
    )  # in the order in which they are sharded
    return float(sum(P * size / (K if i < stage else 1) for i, size in enumerate(sizes)))


def zero_factor(stage: int, micro_batches: int = 1, free_after_forward: bool = True) -> float:
    """Bytes sent in a step, in units of one all-reduce of the gradient, 2 (K - 1)/K n bytes a worker.

    micro_batches: backward passes whose gradients gather for one step. Stage 0 and 1 sum what has gathered, once; stage
    2 reduce-scatters in each; stage 3 also gathers in each, once or twice. An all-gather and a reduce-scatter are half each.

    >>> [zero_factor(stage) for stage in range(4)]
    [1.0, 1.0, 1.0, 1.5]
    """
    m, stage = _whole(micro_batches, "micro_batches", at_least=1), _stage(stage)
    gathers = {0: 1, 1: 1, 2: 1, 3: m * (2 if free_after_forward else 1)}[stage]
    return (gathers + (m if stage >= 2 else 1)) / 2


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
    m, stage = _whole(micro_batches, "micro_batches", at_least=1), _stage(stage)
    if stage == 0:
        return sum((ring_bytes(K, n, itemsize) for n in sizes), 0 * ring_bytes(K, 0, itemsize))
    gathers = 1 if stage < 3 else m * (2 if free_after_forward else 1)
    sums = m if stage >= 2 else 1
    total = 0 * ring_bytes(K, 0, itemsize)
    for n in sizes:
        total = (
            total + sums * reduce_scatter_bytes(K, n, itemsize) + gathers * all_gather_bytes(K, n, itemsize)
        )
    return total


def _stage(stage: int) -> int:
    stage = _whole(stage, "stage")
    if stage > 3:
        raise ValueError(f"stage must be 0, 1, 2 or 3, got {stage}")
    return stage
