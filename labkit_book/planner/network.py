"""What a step's communication costs on a network, flat or of two levels: sums, gathers, and pushes to servers.

On a flat network every algorithm is its closed form. On hosts of several workers that share a port, three all-reduces stay
priced exactly: the ring in order of rank, whose every round goes at the pace of its slowest link (only one worker of a host
sends to another host), the hierarchical one, and on full hosts the torus with a host in each row, reduce-scatter and
all-gather inside. Pairwise exchanges would crowd at the host's port, which no closed form of
`labkit.collectives` prices, so they are not offered there. Where an all-reduce was measured, its curve is the price.

Symbols: K workers, n bytes of a vector, L workers of a host, alpha and beta of a link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from labkit.collectives import ALLREDUCES, Hierarchical, Torus, all_gather, best, ring, server
from labkit.network.linear import Form, evaluate
from labkit.network.link import Link
from labkit_book.planner.curve import Curve

#: What "best" chooses among on a flat network, by name.
ON_FLAT: Mapping[str, Form] = {
    name: ALLREDUCES[name] for name in ("ring", "halving", "doubling", "tree", "naive")
}
#: And on hosts of several workers (torus: where all are full).
ON_HOSTS = ("ring", "hierarchical", "torus")
#: The curve of a sweep, made once.
measured = lru_cache(maxsize=8)(Curve)


class Exchange(NamedTuple):
    """Seconds of a collective, in two parts, and the algorithm that it is done by."""

    latency_s: float
    bandwidth_s: float
    algorithm: str

    @property
    def seconds(self) -> float:
        return self.latency_s + self.bandwidth_s

    def times(self, share: float) -> Exchange:
        """``share`` as much of both parts."""
        return Exchange(share * self.latency_s, share * self.bandwidth_s, self.algorithm)


class Network(NamedTuple):
    """``per_host`` workers on each host (the last may have fewer), joined by ``inside``, and the hosts by ``link``.

    The workers of a host share its one port to the others. With one worker a host the network is flat: ``link`` is all.
    curve: what all-reduces were measured to take: the price of all of them, other messages' is the links'.
    in_turn: whether bytes pass the links inside a host and those between hosts one after the other, as in what libraries
    do, and not both at once, as in the ring.
    """

    link: Link
    inside: Link
    per_host: int = 1
    curve: Curve | None = None
    in_turn: bool = False

    def allreduce(self, K: int, nbytes: float, algorithm: str = "best") -> Exchange:
        """The all-reduce of a vector of ``nbytes`` bytes. algorithm: one of those above, or the best of them.

        With a ``curve`` the best is "measured", and its latency what the shortest vector took.
        """
        if self.curve is not None and algorithm == "best":
            if K == 1:
                return Exchange(0.0, 0.0, "measured")
            seconds, least = (self.curve.predict(K, n).seconds for n in (nbytes, self.curve.shortest(K)))
            return Exchange(min(least, seconds), max(0.0, seconds - least), "measured")
        left_out = {"ring"} if self.in_turn and K > self.per_host > 1 else set()
        left_out |= {"torus"} if K % self.per_host else set()
        offered = {name: form for name, form in self._forms.items() if name not in left_out}
        name = best(K, nbytes, self.link, offered) if algorithm == "best" else algorithm
        return self._split(name, lambda each: evaluate(each._forms[name], K, nbytes, each.link))

    def all_gather(self, K: int, nbytes: float) -> Exchange:
        """A ring all-gather of a message of ``nbytes`` bytes from every worker."""
        n = K * nbytes
        return self._split("ring gather", lambda each: all_gather.time(K, n, each._slowest(K, nbytes)))

    def push_pull(self, K: int, nbytes: float) -> Exchange:
        """One push of a gradient to, and one pull of the parameters from, servers sharded over all K workers.

        Flat: every worker is a ``server``. With hosts of L workers each host's port carries the pushes and the answers of
        its L workers to and from the K - L others: L (K - L) messages of n / K bytes, twice.
        """
        L, part = self.per_host, nbytes / K
        if 1 < L < K:
            return self._split("servers", lambda each: 2 * L * (K - L) * each._slowest(K, part).seconds(part))
        return self._split("servers", lambda each: server.time(K, nbytes, each._slowest(K, part)))

    @property
    def _forms(self) -> Mapping[str, Form]:
        if self.per_host == 1:
            return ON_FLAT
        return {
            "ring": lambda K, n, link: ring.time(K, n, self._slowest(K, n / K)),
            "hierarchical": Hierarchical(self.per_host, self.inside),
            "torus": Torus(self.per_host, self.inside),
        }

    def _slowest(self, K: int, message: float) -> Link:
        """The link at whose pace K workers in a ring, in order of rank, pass on messages of ``message`` bytes."""
        if self.per_host == 1:
            return self.link
        if self.per_host >= K:
            return self.inside
        return max(self.link, self.inside, key=lambda link: link.seconds(message))

    def _split(self, algorithm: str, seconds: Callable[[Network], float]) -> Exchange:
        """What would be left of ``seconds(network)`` if all its links had bandwidth without limit, and the rest."""
        endless = Network(Link(self.link.alpha, math.inf), Link(self.inside.alpha, math.inf), self.per_host)
        latency = float(seconds(endless))
        return Exchange(latency, max(0.0, float(seconds(self)) - latency), algorithm)
