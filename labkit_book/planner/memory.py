"""Does it fit? What training keeps on each worker, plain or sharded, and what would fit where it does not.

A worker keeps for each parameter the parameter, its gradient and the optimizer's state. ZeRO (Rajbhandari et al. 2020,
sections 3.1 and 5) shards over the K workers the state (stage 1), the gradients too (2), the parameters too (3).
Activations of a transformer's layer are, at 2 bytes each, 34 s h bytes an example where attention's are computed again, as
in flash attention, and 2 s h where all are (Korthikanti et al. 2022, table 2). Stage 3 holds two units gathered: one that
computes and one that comes. Not counted: buffers of the communication, fragmentation, logits, what the driver keeps.

Symbols: K workers, P parameters; s tokens, h hidden.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from labkit.checks import integer
from labkit_book.planner.case import Case
from labkit_book.planner.method import Method, parse_method
from labkit_book.planner.units import written

#: Units of a model whose layers are not known, for what stage 3 has gathered.
UNITS = 32


class Precision(NamedTuple):
    """Bytes that training keeps for each parameter. state: what the optimizer keeps, a float32 master copy included."""

    parameter: int
    gradient: int
    state: int


#: Of Adam: mixed has a master copy and two moments of 4 bytes each; single two moments. Both are 16 in all.
MIXED, SINGLE = Precision(2, 2, 12), Precision(4, 4, 8)


def zero_memory(P: int, K: int, stage: int, precision: Precision = MIXED) -> float:
    """Bytes of parameters, gradients and optimizer state on each worker (mean over the workers).

    stage: 0 (plain data parallelism) to 3. Raises ValueError for a stage that there is not.

    >>> [zero_memory(1_000_000, 4, stage) for stage in range(4)]
    [16000000.0, 7000000.0, 5500000.0, 4000000.0]
    """
    P, K, stage = integer("P", P), integer("K", K, least=1), integer("stage", stage, most=3)
    in_turn = enumerate(reversed(precision))  # as they are sharded
    return float(sum(P * size / (K if i < stage else 1) for i, size in in_turn))


def need(case: Case, method: Method, K: int) -> float:
    """Bytes that ``method`` keeps on each of K workers; activations only where the case says the transformer's shape."""
    P, size = case.parameters, case.element_bytes
    precision = MIXED if size <= 2 else Precision(size, size, 2 * size)
    kept = zero_memory(P, K, method.stage, precision)
    if method.stage == 3 and K > 1:
        kept += 2 * P * precision.parameter / (case.layers or UNITS)
    examples = -(-case.b_examples // case.passes)
    layer = (2 if case.recompute == "full" else 34) * (case.tokens or 0) * (case.hidden or 0)
    return kept + examples * (case.layers or 0) * layer * max(2, size) / 2


def misfit(case: Case, method: Method, K: int) -> str | None:
    """Why ``method`` does not fit into a worker's memory, and what would: a sentence; None if it does, or none is known."""
    memory = case.memory_bytes
    if memory is None or need(case, method, K) <= memory:
        return None
    ways = []
    for stage in ("zero1", "zero2", "zero3"):
        sharded = parse_method(stage)  # what a worker needs falls with K
        least = bisect_left(range(2**20), True, 1, key=lambda K: need(case, sharded, K) <= memory)
        ways += [f"{stage} needs K >= {least}"] if least < 2**20 else []
    helps = ", ".join(ways) or "and with zero3 on no number of workers; a smaller b or more passes may help"
    return f"does not fit: {written(need(case, method, K), 'B')} a worker, {helps}"
