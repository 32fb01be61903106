"""Does it fit? What training keeps on each worker and sends, plain or sharded, and what would fit where it does not.

A worker keeps for each parameter the parameter, its gradient and the optimizer's state. ZeRO (Rajbhandari et al. 2020,
sections 3.1, 5 and 7) shards over the K workers the state (stage 1), the gradients too (2), the parameters too (3).
With Adam these are 16 bytes a parameter, in mixed precision 2 + 2 + 12 (18 where gradients are summed in fp32), in fp32
4 + 4 + 8. Activations of a transformer's layer are, at 2 bytes each, s h (34 + 5 a s / h) bytes an example, 34 s h where
attention's are computed again, as in flash attention, and 2 s h where all are (Korthikanti et al. 2022, *Reducing
activation recomputation in large transformer models*, table 2). Stage 3 holds two units gathered: one that computes and one
that comes. Not counted: buffers of the communication, fragmentation, logits, what the framework and the driver keep.

Symbols: K workers, P parameters, b examples of a worker and step, m passes; s tokens, h hidden, a heads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from labkit.checks import integer
from labkit.collectives.base import Counts
from labkit.collectives.ring import all_gather, reduce_scatter, ring
from labkit.compress import ErrorFeedback
from labkit_book.planner.case import Case
from labkit_book.planner.method import Method
from labkit_book.planner.units import written

#: Units of a model whose layers are not known, for what stage 3 has gathered.
UNITS = 32
#: A worker's memory beyond which a plan that was given none says so.
LARGE = 80e9
NOT_OURS = (
    "cutting layers or operations over workers (tensor, pipeline, expert parallelism) is not planned here: Megatron-LM, "
    "DeepSpeed and torchtitan do it"
)


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


class _Need(NamedTuple):
    """Bytes of one worker. state: parameters, gradients, optimizer; a compressor's memory too."""

    state: float
    gathered: float
    activations: float


def _activation_bytes(case: Case) -> float | None:
    """Bytes of one example's activations: as given, or by the formula above; None where neither is known.

    Elements of more than 2 bytes count in proportion, masks too, which is a little much.
    """
    if case.activation_bytes is not None or case.layers is None:
        return case.activation_bytes
    s, h = case.tokens or 0, case.hidden or 0
    each = 2 * s * h if case.recompute == "full" else 34 * s * h
    if case.recompute == "none":
        each += 5 * (case.heads or 0) * s * s
    return case.layers * each * max(2, case.element_bytes) / 2


def need(case: Case, method: Method | int, K: int) -> _Need:
    """What ``method``, or a bare stage, keeps on each of K workers; unknown activations are 0."""
    P, size, stage = case.parameters, case.element_bytes, method if isinstance(method, int) else method.stage
    precision = MIXED if size <= 2 else Precision(size, size, 2 * size)
    state = zero_memory(P, K, stage, precision)
    if not isinstance(method, int) and isinstance(method.how, ErrorFeedback):
        state += P * size
    gathered = 2 * P * precision.parameter / (case.layers or UNITS) if stage == 3 and K > 1 else 0.0
    return _Need(state, gathered, -(-case.batch(K) // case.passes) * (_activation_bytes(case) or 0.0))


def misfit(case: Case, method: Method, K: int) -> str | None:
    """Why ``method`` does not fit into a worker's memory, and what would: a sentence; None if it does, or none is known."""
    memory = case.memory_bytes
    if memory is None or sum(found := need(case, method, K)) <= memory:
        return None
    said = f"does not fit: {written(sum(found), 'bytes', ' ')} a worker"
    if found.activations > memory:
        return (
            f"{said}, of which activations are {written(found.activations, 'bytes', ' ')}: a smaller b, or more passes "
            f"(--accumulate), would help"
        )
    least = {f"zero{stage}": _least(case, stage) for stage in (1, 2, 3)}
    ways = [f"{name} needs K >= {K}" for name, K in least.items() if K]
    return f"{said}, {', '.join(ways) or 'and with zero3 on no number of workers'}"


def _least(case: Case, stage: int) -> int | None:
    """The least K with which ``stage`` fits, up to 2^20; what a worker needs falls with K."""
    memory = case.memory_bytes or 0.0
    found = bisect_left(range(2**20), True, 1, key=lambda K: sum(need(case, stage, K)) <= memory)
    return found if found < 2**20 else None
