"""What a step's communication costs on a network, flat or of two levels: sums, and pushes to servers.

On hosts of several workers that share a port, three all-reduces have a closed form: the ring in order of rank, whose every
round goes at the pace of its slowest link, the hierarchical one, and on full hosts the torus with a host in each row.

Symbols: K workers, n bytes of a vector, L workers of a host, alpha and beta of a link.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from labkit.collectives import ALLREDUCES, best, ring, server, tree
from labkit.network.link import Form, Link, evaluate
from labkit_book.planner.sweep import Sweep

#: What "best" chooses among on a flat network, by name; and on hosts of several workers (torus: where all are full).
ON_FLAT = {name: ALLREDUCES[name] for name in ("ring", "halving", "doubling", "tree", "naive")}
ON_HOSTS = ("ring", "hierarchical", "torus")


class Exchange(NamedTuple):
    """Seconds of a collective, in two parts."""

    latency_s: float
    bandwidth_s: float

    @property
    def seconds(self) -> float:
        return self.latency_s + self.bandwidth_s


class Cluster(NamedTuple):
    """``per_host`` workers on each host (the last may have fewer), joined by ``inside``, and the hosts by ``link``.

    The workers of a host share its one port to the others. With one worker a host ``link`` is all. sweep: measured
    all-reduces, the price of them. in_turn: whether bytes pass the links inside a host and those between hosts one after
    the other, as in what libraries do, and not both at once.
    """

    link: Link
    inside: Link
    per_host: int = 1
    sweep: Sweep | None = None
    in_turn: bool = False

    def allreduce(self, K: int, nbytes: float, algorithm: str = "best") -> Exchange:
        """The all-reduce of a vector of ``nbytes`` bytes. algorithm: one of those above, or the best of them."""
        if K == 1:
            return Exchange(0.0, 0.0)
        if self.sweep is not None and algorithm == "best":  # its latency is what the shortest vector took
            shortest = min(n for _, n, _ in self.sweep.points)
            seconds, least = (self.sweep.seconds(K, n) for n in (nbytes, shortest))
            return Exchange(min(least, seconds), max(0.0, seconds - least))
        if algorithm == "torus" and K % self.per_host:
            raise ValueError(f"a torus takes full hosts of {self.per_host} workers, got K = {K}")
        left_out = {"ring"} if self.in_turn and K > self.per_host > 1 else set()
        left_out |= {"torus"} if K % self.per_host else set()
        offered = {name: form for name, form in self._forms.items() if name not in left_out}
        name = best(K, nbytes, self.link, offered) if algorithm == "best" else algorithm
        return self._split(lambda each: evaluate(each._forms[name], K, nbytes, each.link))

    def push_pull(self, K: int, nbytes: float) -> Exchange:
        """A push of a gradient to servers sharded over all K workers, and a pull of the parameters: with hosts of L
        workers each port carries L (K - L) messages of n / K bytes, twice."""
        L, part = self.per_host, nbytes / K
        if 1 < L < K:
            return self._split(lambda each: 2 * L * (K - L) * each._slowest(K, part).seconds(part))
        return self._split(lambda each: server.time(K, nbytes, each._slowest(K, part)))

    @property
    def _forms(self) -> dict[str, Form]:
        if self.per_host == 1:
            return dict(ON_FLAT)
        L, inside = self.per_host, self.inside
        return {
            "ring": lambda K, n, link: ring.time(K, n, self._slowest(K, n / K)),
            "hierarchical": lambda K, n, link: (
                tree.time(min(K, L), n, inside) + ring.time(-(-K // L), n, link)
            ),
            "torus": lambda K, n, link: ring.time(L, n, inside) + ring.time(K // L, n, link),
        }

    def _slowest(self, K: int, message: float) -> Link:
        """The link at whose pace K workers in a ring, in order of rank, pass on messages of ``message`` bytes."""
        if self.per_host == 1:
            return self.link
        if self.per_host >= K:
            return self.inside
        return max(self.link, self.inside, key=lambda link: link.seconds(message))

    def _split(self, seconds: Callable[[Cluster], float]) -> Exchange:
        """What would be left of ``seconds(cluster)`` if all its links had bandwidth without limit, and the rest."""
        endless = Cluster(Link(self.link.alpha, math.inf), Link(self.inside.alpha, math.inf), self.per_host)
        latency = float(seconds(endless))
        return Exchange(latency, max(0.0, float(seconds(self)) - latency))
