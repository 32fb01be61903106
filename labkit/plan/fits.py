"""Does it fit? The bytes that a method needs on each worker, beside the memory that there is, and what would fit.

Parameters, gradients and optimizer state are ZeRO's shares (`labkit.plan.memory`), with Adam: 16 bytes a parameter, in mixed
precision 2 + 2 + 12 (18 where gradients are summed in fp32), in fp32 4 + 4 + 8. Activations of a transformer's layer are, at
2 bytes each, s h (34 + 5 a s / h) bytes an example, 34 s h where attention's are computed again, as in flash attention,
and 2 s h where all are (Korthikanti et al. 2022, *Reducing activation recomputation in large transformer models*, table 2).
Stage 3 holds two units gathered: one that computes and one that comes. Not counted: buffers of the communication,
fragmentation, logits, what the framework and the driver keep.

Symbols: K workers, P parameters, b examples of a worker and step, m passes; s tokens, h hidden, a heads.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from labkit.compress import ErrorFeedback
from labkit.plan.case import Case
from labkit.plan.memory import MIXED, Precision, zero_memory
from labkit.plan.method import Method
from labkit.plan.units import written

#: Units of a model whose layers are not known, for what stage 3 has gathered.
UNITS = 32
#: A worker's memory beyond which a plan that was given none says so.
LARGE = 80e9
NOT_OURS = (
    "cutting layers or operations over workers (tensor, pipeline, expert parallelism) is not planned here: Megatron-LM, "
    "DeepSpeed and torchtitan do it"
)


class _Need(NamedTuple):
    """Bytes of one worker. state: parameters, gradients, optimizer; a compressor's memory too."""

    state: float
    gathered: float
    activations: float


def activation_bytes(case: Case) -> float | None:
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
    return _Need(state, gathered, -(-case.batch(K) // case.passes) * (activation_bytes(case) or 0.0))


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
