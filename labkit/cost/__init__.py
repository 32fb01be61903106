"""What communication costs: links and closed forms."""

from labkit.cost.closed_forms import (
    communication_share,
    naive_bytes,
    naive_messages,
    naive_time,
    ring_bytes,
    ring_crossover,
    ring_messages,
    ring_time,
    step_time,
    tree_bytes,
    tree_messages,
    tree_time,
)
from labkit.cost.link import Link

__all__ = [
    "Link",
    "communication_share",
    "naive_bytes",
    "naive_messages",
    "naive_time",
    "ring_bytes",
    "ring_crossover",
    "ring_messages",
    "ring_time",
    "step_time",
    "tree_bytes",
    "tree_messages",
    "tree_time",
]
