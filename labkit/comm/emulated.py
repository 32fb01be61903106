"""The emulated cluster: real processes on hosts of their own, joined by links whose speed you set.

Every host is a network namespace, every port shaped by the kernel (``netns``). What is measured is real: real TCP,
real queues, real scheduling; only the cable is slower. A port of ``rate`` bytes per second carries frames: of each 1514
bytes on an Ethernet wire TCP delivers 1448, so an algorithm sees about 96 % of the rate.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from labkit.comm import netns
from labkit.comm.errors import LaunchError
from labkit.comm.run import Run
from labkit.timing.laws import Law

if TYPE_CHECKING:
    from labkit.comm.pool import Pool

GRAIN = 10_000.0  # bytes per second: below it a shaper's timer and TCP's own time-outs meet
MOST = 5e9
PAYLOAD = 1448 / 1514  # of the bytes on the wire, those that TCP delivers
HOSTS = 250
_SETUP_S = 20.0


@dataclass(frozen=True)
class Emulated:
    """A cluster on this machine.

    rate: bytes per second of every host's port, each way; from 10 kB/s up.
    hosts: the host of each rank, as (0, 0, 1, 1) for two hosts of two ranks; None: one rank a host. Ranks on one host
        talk at memory speed.
    slow: other rates for some hosts, as {2: 1e7}.
    delay_s: seconds added to every message by each port it leaves (needs ``netem`` in the kernel).
    law, seed, threads, pool, watch: as in ``Processes``.
    """

    rate: float
    hosts: tuple[int, ...] | None = None
    slow: Mapping[int, float] = field(default_factory=dict)
    delay_s: float = 0.0
    law: Law | None = None
    seed: int = 0
    threads: int | None = None
    pool: Pool | None = None
    watch: bool = True

    def __post_init__(self) -> None:
        for name, rate in (("rate", self.rate), *((f"slow[{h}]", r) for h, r in self.slow.items())):
            if not (isinstance(rate, (int, float)) and GRAIN <= rate <= MOST):
                raise ValueError(
                    f"{name} must be {GRAIN:g} to {MOST:g} bytes per second (1 Gbit/s is 1.25e8), got {rate!r}"
                )
        if not (isinstance(self.delay_s, (int, float)) and 0 <= self.delay_s <= 10):
            raise ValueError(f"delay_s must be 0 to 10 seconds, got {self.delay_s!r}")

    def __str__(self) -> str:
        slow = "".join(f", host {h} at {r / 1e6:g} MB/s" for h, r in sorted(self.slow.items()))
        delay = f", {self.delay_s * 1e3:g} ms delay" if self.delay_s else ""
        return f"emulated ports of {self.rate / 1e6:g} MB/s{slow}{delay}"

    def ready(self, K: int) -> Pool:
        """K workers that stand ready on their hosts; see ``Processes.ready``."""
        from labkit.comm.processes import room_for, worker_threads

        room_for(K)
        from labkit.comm.pool import Pool

        hosts = self._hosts(K)
        rates = [float(self.slow.get(h, self.rate)) for h in range(max(hosts) + 1)]
        return Pool(
            K, "gloo", ["cpu"] * K, worker_threads(self.threads, K), hosts, Network(rates, self.delay_s)
        )

    def _hosts(self, K: int) -> tuple[int, ...]:
        hosts = tuple(range(K)) if self.hosts is None else tuple(self.hosts)
        if len(hosts) != K:
            raise ValueError(f"hosts must name the host of each of the {K} ranks, got {len(hosts)}: {hosts}")
        if sorted(set(hosts)) != list(range(max(hosts) + 1)):
            raise ValueError(f"hosts must be numbered 0, 1, ... without gaps, got {hosts}")
        if max(hosts) >= HOSTS:
            raise ValueError(f"hosts must be at most {HOSTS}, got {max(hosts) + 1}")
        strangers = [h for h in self.slow if h not in hosts]
        if strangers:
            raise ValueError(f"slow must name hosts from 0 to {max(hosts)}, got {strangers[0]}")
        return hosts

    def run(self, f: Callable[..., Any], K: int, args: tuple, kwargs: dict, timeout_s: float) -> Run:
        """Run ``f`` on K worker processes on emulated hosts; see ``launch``."""
        from labkit.comm.processes import run_on

        if self.pool is not None:
            return run_on(self.pool, f, K, args, kwargs, self, timeout_s)
        with self.ready(K) as pool:
            return run_on(pool, f, K, args, kwargs, self, timeout_s)


class Network:
    """The namespaces of an emulated cluster, there until ``close()``.

    rates: bytes per second of each host's port. Raises LaunchError, with what to do, where the machine refuses.
    """

    def __init__(self, rates: list[float], delay_s: float = 0.0) -> None:
        _tools()
        self._hub = subprocess.Popen(
            [sys.executable, "-I", "-S", netns.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert self._hub.stdin is not None and self._hub.stdout is not None
            self._hub.stdin.write(json.dumps({"rates": rates, "delay_s": delay_s}) + "\n")
            self._hub.stdin.flush()
            heard, _, _ = select.select([self._hub.stdout], [], [], _SETUP_S)
            said = json.loads(
                (self._hub.stdout.readline() if heard else "") or '{"error": "it did not answer"}'
            )
            if "error" in said:
                raise LaunchError(_explain(said["error"]))
        except BaseException:
            self.close()
            raise
        self.pids: list[int] = said["pids"]
        self.user: bool = said["user"]

    def close(self) -> None:
        """Remove the network. Safe to call twice."""
        if self._hub.poll() is None:
            try:
                os.killpg(self._hub.pid, 9)
            except (ProcessLookupError, PermissionError):
                self._hub.kill()
        self._hub.wait()
        for pipe in (self._hub.stdin, self._hub.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


def unavailable() -> str | None:
    """Why this machine can't emulate a cluster, in one sentence; None if it can. Takes a fraction of a second."""
    try:
        Network([1e8, 1e8]).close()
    except LaunchError as error:
        return str(error)
    return None


def _tools() -> None:
    if sys.platform != "linux":
        raise LaunchError(
            "world='emulated' needs Linux's network namespaces; use world='simulated' on this system"
        )
    for tool in ("ip", "tc"):
        if netns.find(tool) is None:
            raise LaunchError(
                f"world='emulated' needs the program {tool!r}: install iproute2 (apt-get install iproute2)"
            )


def _explain(error: str) -> str:
    if "netem" in error:
        return f"delay_s needs netem, which this kernel does not have ({error}); leave delay_s at 0, rates work without"
    if "tbf" in error and "kind is unknown" in error:
        return f"world='emulated' needs the tbf shaper, which this kernel does not have ({error}); try modprobe sch_tbf"
    if "Operation not permitted" in error or "Permission denied" in error:
        return (
            f"this machine does not let you make network namespaces ({error}); run as root, or allow unprivileged "
            f"user namespaces: sysctl kernel.unprivileged_userns_clone=1, "
            f"and on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0"
        )
    return f"the emulated network could not be made: {error}"
