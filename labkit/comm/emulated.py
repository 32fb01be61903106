"""The emulated cluster: real processes on hosts of their own, joined by links whose speed you set.

Every host is a network namespace, every port shaped by the kernel (``netns``). What is measured is real: real TCP,
real queues, real scheduling; only the cable is slower. A port of ``rate`` bytes per second carries frames: of each 1514
bytes on an Ethernet wire TCP delivers 1448, so an algorithm sees about 96 % of the rate.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from labkit import checks
from labkit.comm.errors import LaunchError
from labkit.comm.netns import Network
from labkit.comm.processes import Workers

GRAIN = 10_000.0  # bytes per second: below it a shaper's timer and TCP's own time-outs meet
MOST = 5e9
PAYLOAD = 1448 / 1514  # of the bytes on the wire, those that TCP delivers
HOSTS = 250


@dataclass(frozen=True)
class Emulated(Workers):
    """A cluster on this machine.

    rate: bytes per second of every host's port, each way; from 10 kB/s up (1 Gbit/s is 1.25e8).
    hosts: the host of each rank, as (0, 0, 1, 1) for two hosts of two ranks; None: one rank a host. Ranks on one host
        talk at memory speed.
    slow: other rates for some hosts, as {2: 1e7}.
    law, seed, threads, pool: as in ``Processes``.
    """

    rate: float
    hosts: tuple[int, ...] | None = None
    slow: Mapping[int, float] = field(default_factory=dict)
    name: ClassVar[str] = "emulated"

    def __post_init__(self) -> None:
        checks.number("rate", self.rate, least=GRAIN, most=MOST)
        for host, rate in self.slow.items():
            checks.number(f"slow[{host}]", rate, least=GRAIN, most=MOST)

    def __str__(self) -> str:
        slow = "".join(f", host {h} at {r / 1e6:g} MB/s" for h, r in sorted(self.slow.items()))
        return f"emulated ports of {self.rate / 1e6:g} MB/s{slow}"

    def _site(self, K: int, gpus: int) -> tuple[str, list[str], tuple[int, ...], Network]:
        hosts = tuple(range(K)) if self.hosts is None else tuple(self.hosts)
        if len(hosts) != K:
            raise ValueError(f"hosts must name the host of each of the {K} ranks, got {len(hosts)}: {hosts}")
        last = max(hosts)
        if sorted(set(hosts)) != list(range(last + 1)):
            raise ValueError(f"hosts must be numbered 0, 1, ... without gaps, got {hosts}")
        if last >= HOSTS:
            raise ValueError(f"hosts must be at most {HOSTS}, got {last + 1}")
        if strangers := set(self.slow) - set(hosts):
            raise ValueError(f"slow must name hosts from 0 to {last}, got {min(strangers)}")
        network = _network([float(self.slow.get(h, self.rate)) for h in range(last + 1)])
        return "gloo", ["cpu"] * K, hosts, network

    def _joined_by(self) -> str:
        return f", {self}"


def unavailable() -> str | None:
    """Why this machine can't emulate a cluster, in one sentence; None if it can. Takes a fraction of a second."""
    try:
        _network([1e8, 1e8]).close()
    except LaunchError as error:
        return str(error)
    return None


def _network(rates: list[float]) -> Network:
    if sys.platform != "linux":
        raise LaunchError("an emulated cluster needs Linux's network namespaces; world='simulated' does not")
    try:
        return Network(rates)
    except RuntimeError as error:
        raise LaunchError(_explain(str(error))) from None


def _explain(error: str) -> str:
    if "tbf" in error and "kind is unknown" in error:
        return f"world='emulated' needs the tbf shaper, which this kernel does not have ({error}); try modprobe sch_tbf"
    if "Operation not permitted" in error or "Permission denied" in error:
        return (
            f"this machine does not let you make network namespaces ({error}); run as root, or allow unprivileged "
            f"user namespaces: sysctl kernel.unprivileged_userns_clone=1, "
            f"and on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0"
        )
    return f"the emulated network could not be made: {error}"
