"""What a step's communication costs on a network, flat or of two levels: sums, gathers, and pushes to servers.

On a flat network every algorithm is its closed form. On hosts of several workers that share a port, two all-reduces stay
priced exactly: the ring in order of rank, whose every round goes at the pace of its slowest link (only one worker of a host
sends to another host), and the hierarchical one. Pairwise exchanges would crowd at the host's port, which no closed form of
`labkit.cost` prices, so they are not offered there.

Symbols: K workers, n bytes of a vector, L workers of a host, alpha and beta of a link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from labkit.cost.choose import best
from labkit.cost.closed_forms import naive_time, ring_time, tree_time
from labkit.cost.hierarchical import hierarchical_time
from labkit.cost.linear import Form
from labkit.cost.link import Link
from labkit.cost.parts import all_gather_time
from labkit.cost.plan.inputs import Network, TwoLevel
from labkit.cost.recursive import doubling_time, halving_time
from labkit.cost.server import server_time

#: What "best" chooses among on a flat network, by name.
FLAT: Mapping[str, Form] = {
    "ring": ring_time, "halving": halving_time, "doubling": doubling_time, "tree": tree_time, "naive": naive_time,
}  # fmt: skip
#: And on hosts of several workers.
HOSTS = ("ring", "hierarchical")


class Wire(NamedTuple):
    """Seconds of a collective, in two parts, and the algorithm that it is done by."""

    latency_s: float
    bandwidth_s: float
    algorithm: str

    @property
    def seconds(self) -> float:
        return self.latency_s + self.bandwidth_s


def names(network: Network) -> tuple[str, ...]:
    """The all-reduces that can be priced on ``network``."""
    return HOSTS if isinstance(network, TwoLevel) else tuple(FLAT)


def allreduce(network: Network, K: int, nbytes: float, algorithm: str = "best") -> Wire:
    """The all-reduce of a vector of ``nbytes`` bytes. algorithm: one of ``names(network)``, or the best of them."""
    forms, link = _forms(network)
    name = best(K, nbytes, link, forms) if algorithm == "best" else algorithm
    if name not in forms:
        raise ValueError(f"algorithm must be best or one of {', '.join(forms)}, got {algorithm!r}")
    return _split(network, name, lambda each: _forms(each)[0][name](K, nbytes, _forms(each)[1]))


def all_gather(network: Network, K: int, nbytes: float) -> Wire:
    """A ring all-gather of a message of ``nbytes`` bytes from every worker."""
    return _split(network, "ring gather", lambda each: all_gather_time(K, K * nbytes, pace(each, K, nbytes)))


def push_pull(network: Network, K: int, nbytes: float) -> Wire:
    """One push of a gradient to, and one pull of the parameters from, servers sharded over all K workers.

    Flat: ``server_time`` with K servers. With hosts of L workers each host's port carries the pushes and the answers of its
    L workers to and from the K - L others: L (K - L) messages of n / K bytes, twice.
    """
    if isinstance(network, TwoLevel) and network.per_host < K:
        L = network.per_host
        return _split(
            network, "servers", lambda each: 2 * L * (K - L) * pace(each, K, nbytes / K).seconds(nbytes / K)
        )
    return _split(
        network, "servers", lambda each: server_time(K, nbytes, pace(each, K, nbytes / K), servers=K)
    )


def pace(network: Network, K: int, message: float) -> Link:
    """The link at whose pace K workers in a ring, in order of rank, pass on messages of ``message`` bytes: the slowest."""
    if isinstance(network, Link):
        return network
    if network.per_host >= K:
        return network.inside
    if network.per_host == 1:
        return network.across
    return max(network.across, network.inside, key=lambda link: link.seconds(message))


def scaled(network: Network, alpha: float = 1.0, beta: float = 1.0) -> Network:
    """The network whose one link, or whose link between hosts, has ``alpha`` and ``beta`` times as much of each."""
    if isinstance(network, TwoLevel):
        across = Link(network.across.alpha * alpha, network.across.beta * beta)
        return TwoLevel(network.inside, across, network.per_host)
    return Link(network.alpha * alpha, network.beta * beta)


def outer(network: Network) -> Link:
    """The link that the dials alpha and beta turn: the only one, or the one between hosts."""
    return network if isinstance(network, Link) else network.across


def _forms(network: Network) -> tuple[Mapping[str, Form], Link]:
    if isinstance(network, Link):
        return FLAT, network
    return {
        "ring": lambda K, n, link: ring_time(K, n, pace(network, K, n / K)),
        "hierarchical": lambda K, n, link: hierarchical_time(K, n, link, network.inside, network.per_host),
    }, network.across


def _split(network: Network, algorithm: str, seconds: Callable[[Network], float]) -> Wire:
    """What would be left of ``seconds(network)`` if all its links had bandwidth without limit, and the rest."""
    if isinstance(network, Link):
        endless: Network = Link(network.alpha, math.inf)
    else:
        endless = TwoLevel(
            Link(network.inside.alpha, math.inf), Link(network.across.alpha, math.inf), network.per_host
        )
    latency = float(seconds(endless))
    return Wire(latency, max(0.0, float(seconds(network)) - latency), algorithm)
