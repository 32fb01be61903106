"""How K workers add: each all-reduce and its price as one object, one table of them; the halves; which to choose when."""

from collections.abc import Mapping

from labkit.collectives.base import AllReduce, Collective, best
from labkit.collectives.halving import doubling, halving
from labkit.collectives.measure import Measured, measure_link
from labkit.collectives.ring import all_gather, own_chunk, reduce_scatter, ring
from labkit.collectives.server import naive, server
from labkit.collectives.shared import shared
from labkit.collectives.torus import torus
from labkit.collectives.tree import broadcast, tree

_ALL: list[AllReduce] = [naive, tree, ring, doubling, halving, torus, server]
#: All that send messages, by name. (``shared`` needs none.)
ALLREDUCES: Mapping[str, AllReduce] = {each.name: each for each in _ALL}
