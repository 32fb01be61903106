"""All-reduce, one algorithm a file: every worker ends with the sum of everyone's vector."""

from labkit.collectives.naive import naive_allreduce, naive_allreduce_inplace
from labkit.collectives.ring import ring_allreduce, ring_allreduce_inplace, textbook_ring_allreduce
from labkit.collectives.tree import tree_allreduce, tree_allreduce_inplace

__all__ = [
    "naive_allreduce", "naive_allreduce_inplace", "ring_allreduce", "ring_allreduce_inplace", "textbook_ring_allreduce",
    "tree_allreduce", "tree_allreduce_inplace",
]  # fmt: skip
