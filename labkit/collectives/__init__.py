"""All-reduce, one algorithm a file: every worker ends with the sum of everyone's vector. And its parts."""

from labkit.collectives.doubling import doubling_allreduce, doubling_allreduce_inplace
from labkit.collectives.halving import halving_allreduce, halving_allreduce_inplace
from labkit.collectives.hierarchical import hierarchical_allreduce, hierarchical_allreduce_inplace
from labkit.collectives.naive import naive_allreduce, naive_allreduce_inplace
from labkit.collectives.parts import (
    all_gather,
    all_gather_inplace,
    broadcast,
    broadcast_inplace,
    own_chunk,
    reduce_scatter,
    reduce_scatter_inplace,
)
from labkit.collectives.ring import ring_allreduce, ring_allreduce_inplace, textbook_ring_allreduce
from labkit.collectives.server import server_allreduce, server_allreduce_inplace
from labkit.collectives.shared import shared_allreduce, shared_allreduce_inplace
from labkit.collectives.torus import torus_allreduce, torus_allreduce_inplace
from labkit.collectives.tree import tree_allreduce, tree_allreduce_inplace

__all__ = [
    "all_gather", "all_gather_inplace", "broadcast", "broadcast_inplace", "doubling_allreduce",
    "doubling_allreduce_inplace", "halving_allreduce", "halving_allreduce_inplace", "hierarchical_allreduce",
    "hierarchical_allreduce_inplace", "naive_allreduce", "naive_allreduce_inplace", "own_chunk", "reduce_scatter",
    "reduce_scatter_inplace", "ring_allreduce", "ring_allreduce_inplace", "server_allreduce", "server_allreduce_inplace",
    "shared_allreduce", "shared_allreduce_inplace", "textbook_ring_allreduce", "torus_allreduce",
    "torus_allreduce_inplace", "tree_allreduce", "tree_allreduce_inplace",
]  # fmt: skip
