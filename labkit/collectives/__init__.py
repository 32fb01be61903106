"""How K workers add: each all-reduce and its price as one object, one table of them; the halves; which to choose when."""

from collections.abc import Mapping

from labkit.collectives.base import AllReduce, Collective
from labkit.collectives.choose import Interval, best, crossovers, tied
from labkit.collectives.doubling import doubling
from labkit.collectives.halving import halving
from labkit.collectives.hierarchical import Hierarchical, hierarchical
from labkit.collectives.measure import Measured, measure_link
from labkit.collectives.naive import naive
from labkit.collectives.ring import all_gather, own_chunk, reduce_scatter, ring
from labkit.collectives.server import Server, server
from labkit.collectives.shared import shared
from labkit.collectives.torus import Torus, torus
from labkit.collectives.tree import broadcast, tree

#: All that send messages, by name. (``shared`` needs none.)
ALLREDUCES: Mapping[str, AllReduce] = {
    each.name: each for each in (naive, tree, ring, doubling, halving, torus, server, hierarchical)
}

__all__ = [
    "ALLREDUCES", "AllReduce", "Collective", "Hierarchical", "Interval", "Measured", "Server", "Torus",
    "all_gather", "best", "broadcast", "crossovers", "doubling", "halving", "hierarchical", "measure_link", "naive",
    "own_chunk", "reduce_scatter", "ring", "server", "shared", "tied", "torus",
    "tree",
]  # fmt: skip
