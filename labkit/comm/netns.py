"""The hosts of an emulated cluster: network namespaces joined by a bridge, every port shaped by the kernel.

Run as a script (standard library only) by ``Network``, it becomes the *hub*: it enters a network namespace of its own
(and, if it must, a user namespace, so that no privilege is needed), makes a bridge there, and one child per host that
holds that host's namespace open. Nothing has a name outside: when the hub ends, or whoever started it, the kernel
removes all of it.

A host's port is a veth pair. ``tbf`` (token bucket filter, tc-tbf(8)) shapes its two ends: the host's own end what the host
sends, the bridge's end what it receives. ``netem`` (tc-netem(8)) adds delay where the kernel has it.
"""

from __future__ import annotations

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
SUBNET, STORE_PORT = "10.77.0", 29400
# What a port that has rested may send at once: a millisecond's worth, but at least four packets. It is what the shaper's
# timer may be late without loss, which on a busy machine it is; and it is a millisecond that an all-reduce gets for nothing.
BURST_S, LEAST_BURST = 0.001, 6_200
# Bytes that may queue at a port: more than TCP has under way, so that nothing is dropped.
LIMIT = 8_000_000
# Where nothing is dropped, Reno sends whatever the port takes, and every kernel allows it. BBR, the default here and there,
# would pace by its own guess of the rate; a window that shrinks at rest would have long messages start like short ones.
TCP = {"tcp_congestion_control": "reno", "tcp_slow_start_after_idle": "0"}
# What TCP takes from a sender ahead of the port. With the usual megabytes a send returns long before the data have arrived,
# and the next message shares the port with it: a tree of four took a quarter longer than its messages one after another.
# With less than a worker sends while it waits for a core, the port would run dry.
BUFFER_S, LEAST_BUFFER = 0.016, 65_536
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"


def address(host: int) -> str:
    """The address of a host's port."""
    return f"{SUBNET}.{host + 1}"


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def enter(pid: int, user: bool) -> None:
    """Move this (single-threaded) process into the network of process ``pid``, and its user namespace if asked."""
    for kind, flag in (("user", NEWUSER), ("net", NEWNET)):
        if kind == "user" and not user:
            continue
        with open(f"/proc/{pid}/ns/{kind}") as ns:
            _libc("setns", ns.fileno(), flag)


def find(tool: str) -> str | None:
    """Where ``ip`` or ``tc`` is, also for users without sbin in their path."""
    return shutil.which(tool) or shutil.which(tool, path=_SBIN)


def _libc(name: str, *args: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*args) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))


def _unshare() -> bool:
    """A network namespace for this process; True if it took a user namespace to get it."""
    if os.geteuid() == 0:
        try:
            _libc("unshare", NEWNET)
            return False
        except OSError:
            pass
    uid, gid = os.geteuid(), os.getegid()
    _libc("unshare", NEWUSER | NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as f:
            f.write(text)
    return True


def _call(*command: object) -> None:
    words = [str(w) for w in command]
    path = find(words[0])
    done = subprocess.run([path or words[0], *words[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"'{' '.join(words)}' failed: {' '.join(done.stderr.split())}")


def _shape(device: str, rate: float, delay_s: float = 0.0) -> None:
    """Limit what leaves ``device`` to ``rate`` bytes per second."""
    burst = int(max(rate * BURST_S, LEAST_BURST))
    # Bundles of packets larger than a burst would be cut up by the shaper, and each packet pass the kernel by itself: on two
    # cores a ring of three at 300 Mbit/s took 1.7 times its time so. Some versions of ip can't set it.
    with contextlib.suppress(RuntimeError):
        _call("ip", "link", "set", device, "gso_max_size", min(burst // 2, 65_536))
    _call("tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "tbf",
          "rate", f"{int(rate * 8)}bit", "burst", burst, "limit", LIMIT)  # fmt: skip
    if delay_s:
        _call("tc", "qdisc", "add", "dev", device, "parent", "1:1", "handle", "10:", "netem",
              "delay", f"{delay_s * 1e6:.0f}us", "limit", 100_000)  # fmt: skip


def _host(host: int, rate: float, delay_s: float, ready: int, go: int, done: int) -> None:
    """The process that keeps a host's network open, and sets up its end of the port."""
    die_with_parent()
    try:
        _libc("unshare", NEWNET)
        os.write(ready, b"+")
        if os.read(go, 1) != b"+":
            os._exit(0)
        # With its usual packets of 64 kB a connection inside the host would stand still, waiting for room for another one.
        _call("ip", "link", "set", "lo", "mtu", 1500, "up")
        _call("ip", "addr", "add", f"{address(host)}/24", "dev", "eth0")
        _call("ip", "link", "set", "eth0", "up")
        _shape("eth0", rate, delay_s)
        buffer = max(int(rate * BUFFER_S), LEAST_BUFFER)
        for name, value in {**TCP, "tcp_wmem": f"4096 16384 {buffer}"}.items():
            with contextlib.suppress(OSError), open(f"/proc/sys/net/ipv4/{name}", "w") as f:
                f.write(value)
        os.write(done, b"+")
    except Exception as error:
        os.write(done, f"-{error}".encode()[:4000])
    while True:
        signal.pause()


def _hub(rates: list[float], delay_s: float) -> dict:
    """Make the network; returns the process id of each host and whether a user namespace was needed."""
    user = _unshare()
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "link", "add", "br0", "type", "bridge")
    _call("ip", "link", "set", "br0", "up")
    pids = []
    for host, rate in enumerate(rates):
        ready, go, done = os.pipe(), os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            _host(host, rate, delay_s, ready[1], go[0], done[1])
        os.close(done[1])
        if os.read(ready[0], 1) != b"+":
            raise RuntimeError("a host could not get a network of its own")
        port = f"port{host}"
        _call("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", pid)
        _call("ip", "link", "set", port, "master", "br0", "up")
        _shape(port, rate)
        os.write(go[1], b"+")
        answer = os.read(done[0], 4096)
        if not answer.startswith(b"+"):
            raise RuntimeError(answer[1:].decode() or "a host ended while it was set up")
        pids.append(pid)
        for fd in (*ready, *go, done[0]):
            os.close(fd)
    return {"pids": pids, "user": user}


def main() -> None:
    """The hub's life: make the network, say so, stay until standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setpgid(0, 0)
    spec = json.loads(sys.stdin.readline())
    try:
        said = _hub(spec["rates"], spec["delay_s"])
    except Exception as error:
        said = {"error": str(error)}
    print(json.dumps(said), flush=True)
    if "error" not in said:
        select.select([sys.stdin], [], [])
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
