"""The emulated cluster: real processes on hosts of their own, joined by links whose speed you set.

Every host is a network namespace, every port shaped by the kernel (``netns``). What is measured is real: real TCP,
real queues, real scheduling; only the cable is slower. A port of ``rate`` bytes per second carries frames: of each 1514
bytes on an Ethernet wire TCP delivers 1448, so an algorithm sees about 96 % of the rate.
"""

import sys
from dataclasses import dataclass
from typing import ClassVar

from labkit import checks
from labkit.comm.base import hosts_of
from labkit.comm.errors import LaunchError
from labkit.comm.netns import Network
from labkit.comm.processes import Workers
from labkit.comm.run import Site

#: Bytes per second: below it a shaper's timer and TCP's own time-outs meet.
GRAIN = 10_000.0
MOST = 5e9
PAYLOAD = 1448 / 1514  #: of the bytes on the wire, those that TCP delivers
HOSTS = 250


@dataclass(frozen=True)
class Emulated(Workers):
    """A cluster on this machine. law, seed, threads, pool: as in ``Processes``.

    rate: bytes per second of every host's port, each way; from 10 kB/s up (1 Gbit/s is 1.25e8). hosts: the host of each
    rank, as (0, 0, 1, 1); None: one rank a host. Ranks on one host talk at memory speed.
    """

    rate: float
    hosts: tuple[int, ...] | None = None
    name: ClassVar[str] = "emulated"

    def __post_init__(self) -> None:
        checks.number("rate", self.rate, least=GRAIN, most=MOST)

    def __str__(self) -> str:
        return f"processes, emulated ports of {self.rate / 1e6:g} MB/s"

    def _site(self, K: int) -> Site:
        hosts = hosts_of(self.hosts, K)
        many = len(set(hosts))
        if set(hosts) != set(range(many)):
            raise ValueError(
                f"hosts must be numbered 0, 1, ... without gaps, got {hosts}"
            )
        if many > HOSTS:
            raise ValueError(f"hosts must be at most {HOSTS}, got {many}")
        return Site("gloo", ["cpu"] * K, hosts, _network([float(self.rate)] * many))


def unavailable() -> str | None:
    """Why this machine can't emulate a cluster, in one sentence; None if it can. Takes a fraction of a second."""
    try:
        _network([1e8, 1e8]).close()
    except LaunchError as error:
        return str(error)
    return None


def _network(rates: list[float]) -> Network:
    if sys.platform != "linux":
        raise LaunchError("world='emulated' needs Linux's network namespaces")
    try:
        return Network(rates)
    except RuntimeError as error:
        raise LaunchError(_explain(str(error))) from None


def _explain(error: str) -> str:
    if "tbf" in error and "kind is unknown" in error:
        return f"world='emulated' needs the tbf shaper, which this kernel does not have ({error}); try modprobe sch_tbf"
    if "Operation not permitted" in error or "Permission denied" in error:
        cure = "sysctl kernel.unprivileged_userns_clone=1, and on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0"
        why = f"this machine does not let you make network namespaces ({error})"
        return f"{why}; run as root, or allow unprivileged user namespaces: {cure}"
    return f"the emulated network could not be made: {error}"
