"""The hosts of an emulated cluster: network namespaces joined by a bridge, every port shaped by the kernel.

Run as a script by ``Network``, it becomes the *hub* (so this file needs the standard library only): in a network namespace
of its own (and, if it must, a user namespace, so that no privilege is needed) it makes a bridge, and holds open one more
namespace per host. Nothing has a name outside: when the hub ends, or who started it, the kernel removes all of it.
A host's port is a veth pair, of which ``tbf`` (token bucket filter, tc-tbf(8)) shapes both ends: what it sends and receives.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys

NEWUSER, NEWNET = 0x10000000, 0x40000000
SUBNET = "10.77.0"
# What a port that has rested may send at once: a millisecond's worth, by which the shaper's timer may be late without loss.
BURST_S, LEAST_BURST = 0.001, 6_200
LIMIT = 8_000_000  # bytes that may queue at a port: more than TCP has under way, so that nothing is dropped
# Then Reno sends whatever the port takes. BBR would pace by its own guess of the rate; a window that shrinks at rest would
# have long messages start like short ones.
TCP = {"tcp_congestion_control": "reno", "tcp_slow_start_after_idle": "0"}
# What TCP takes from a sender ahead of the port. With the usual megabytes a send returns long before the data have arrived,
# and the next message shares the port with it. With less than a worker sends while it waits for a core, the port runs dry.
BUFFER_S, LEAST_BUFFER = 0.016, 65_536
_SETUP_S = 20.0
_SILENCE = '{"error": "it did not answer"}'
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"


class Network:
    """The namespaces of an emulated cluster, there until ``close()``.

    rates: bytes per second of each host's port. ways: per host, what ``enter`` needs to get there. Raises RuntimeError with
    the machine's own words where it refuses.
    """

    def __init__(self, rates: list[float]) -> None:
        for tool in ("ip", "tc"):
            if _find(tool) is None:
                install = "install iproute2 (apt-get install iproute2)"
                raise RuntimeError(f"it needs the program {tool!r}: {install}")
        # Its input is its lifeline; in a session of its own, no ^C of the terminal's reaches it.
        script = [sys.executable, "-I", "-S", __file__, json.dumps(rates)]
        pipe = subprocess.PIPE
        self._hub = subprocess.Popen(
            script, stdin=pipe, stdout=pipe, text=True, start_new_session=True
        )
        try:
            assert self._hub.stdout is not None
            heard, _, _ = select.select([self._hub.stdout], [], [], _SETUP_S)
            said = json.loads(self._hub.stdout.readline() if heard else _SILENCE)
            if "error" in said:
                raise RuntimeError(said["error"])
        except BaseException:
            self.close()
            raise
        self.ways = [tuple(way) for way in said["ways"]]

    @staticmethod
    def address(host: int) -> str:
        """The address of a host's port."""
        return f"{SUBNET}.{host + 1}"

    @staticmethod
    def enter(way: tuple[str, ...]) -> None:
        """Move this (single-threaded) process into the namespaces that these files stand for, one after another."""
        for file in way:
            with open(file) as namespace:
                _libc("setns", namespace.fileno(), 0)

    def close(self) -> None:
        """Remove the network. Safe to call twice."""
        self._hub.kill()
        self._hub.communicate()


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _find(tool: str) -> str | None:
    """Where ``ip`` or ``tc`` is, also for users without sbin in their path."""
    return shutil.which(tool) or shutil.which(tool, path=_SBIN)


def _libc(name: str, *args: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*args) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))


def _unshare() -> bool:
    """A network namespace for this process; True if it took a user namespace to get it."""
    with contextlib.suppress(OSError):
        _libc("unshare", NEWNET)
        return False
    uid, gid = os.geteuid(), os.getegid()
    _libc("unshare", NEWUSER | NEWNET)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        _write(f"/proc/self/{name}", text)
    return True


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _call(*command: object) -> None:
    words = [str(word) for word in command]
    found = [_find(words[0]) or words[0], *words[1:]]
    done = subprocess.run(found, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"'{' '.join(words)}' failed: {' '.join(done.stderr.split())}"
        )


def _shape(device: str, rate: float) -> None:
    """Limit what leaves ``device`` to ``rate`` bytes per second."""
    burst = int(max(rate * BURST_S, LEAST_BURST))
    # The shaper would cut up bundles of packets larger than a burst, and each packet pass the kernel by itself, which two
    # cores feel. Some versions of ip can't set it.
    with contextlib.suppress(RuntimeError):
        _call("ip", "link", "set", device, "gso_max_size", min(burst // 2, 65_536))
    bucket = ["rate", f"{int(rate * 8)}bit", "burst", burst, "limit", LIMIT]
    _call("tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "tbf", *bucket)


def _plug_in(host: int, rate: float, bridge: str) -> None:
    """Set up this network namespace as a host: its port, whose other end goes to namespace ``bridge``, and its TCP."""
    # With its usual packets of 64 kB a connection inside the host would stand still, waiting for room for another one.
    _call("ip", "link", "set", "lo", "mtu", 1500, "up")
    _call(
        "ip",
        "link",
        "add",
        "eth0",
        "type",
        "veth",
        "peer",
        "name",
        f"port{host}",
        "netns",
        bridge,
    )
    _call("ip", "addr", "add", f"{Network.address(host)}/24", "dev", "eth0")
    _call("ip", "link", "set", "eth0", "up")
    _shape("eth0", rate)
    buffer = max(int(rate * BUFFER_S), LEAST_BUFFER)
    for name, value in {**TCP, "tcp_wmem": f"4096 16384 {buffer}"}.items():
        with contextlib.suppress(OSError):
            _write(f"/proc/sys/net/ipv4/{name}", value)


def _this_network() -> str:
    """A file that stands for the network namespace this process is in, for as long as the process lives."""
    return f"/proc/{os.getpid()}/fd/{os.open('/proc/self/ns/net', os.O_RDONLY)}"


def _hub(rates: list[float]) -> list[tuple[str, ...]]:
    """Make the network; returns the way to each host."""
    user = (f"/proc/{os.getpid()}/ns/user",) if _unshare() else ()
    bridge, ways = _this_network(), []
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "link", "add", "br0", "type", "bridge")
    _call("ip", "link", "set", "br0", "up")
    for host, rate in enumerate(rates):
        _libc("unshare", NEWNET)
        ways.append((*user, _this_network()))
        _plug_in(host, rate, bridge)
        Network.enter((bridge,))
        _call("ip", "link", "set", f"port{host}", "master", "br0", "up")
        _shape(f"port{host}", rate)
    return ways


def _main() -> None:
    """The hub's life: make the network, say so, stay until standard input closes."""
    try:
        said: dict = {"ways": _hub(json.loads(sys.argv[1]))}
    except Exception as error:
        said = {"error": str(error)}
    print(json.dumps(said), flush=True)
    if "error" not in said:
        select.select([sys.stdin], [], [])


if __name__ == "__main__":
    _main()
