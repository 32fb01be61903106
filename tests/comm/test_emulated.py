"""A cluster on one machine: real processes on hosts of their own, and nothing left of them afterwards."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from labkit import Link, Simulated, launch
from labkit.collectives import ring
from labkit.comm import Emulated, LaunchError, emulated, netns

ROOT = Path(__file__).parents[2]
WHY = emulated.unavailable()
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(WHY is not None, reason=f"no network namespaces: {WHY}"),
]


def hubs() -> list[psutil.Process]:
    """Every process that runs this checkout's netns.py, but for those of tests in another worker of pytest's."""
    found, worker = [], "PYTEST_XDIST_WORKER"
    for p in psutil.process_iter(["cmdline", "environ"]):
        ours = (p.info["environ"] or {}).get(worker) == os.environ.get(worker)
        if ours and netns.__file__ in (p.info["cmdline"] or []):
            found.append(p)
    return found


@pytest.fixture(autouse=True)
def leaves_nothing():
    before = {p.pid for p in hubs()}
    links = set(os.listdir("/sys/class/net"))
    yield
    end = time.monotonic() + 5
    while (left := [p for p in hubs() if p.pid not in before]) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left
    assert set(os.listdir("/sys/class/net")) == links


def timed(comm, way, n: int) -> float:
    x, spent = np.ones(n, np.float32), []
    for _ in range(3):
        comm.barrier()
        begun = time.perf_counter()
        way(comm, x)
        spent.append(time.perf_counter() - begun)
    return min(spent)


def test_same_bits_and_bytes_as_the_simulation_and_times_that_follow_the_link():
    rate, n = 1.25e7, 250_000  # 100 Mbit/s, 1 MB

    def f(comm):
        total = ring.allreduce(comm, np.random.default_rng(comm.rank).standard_normal(1001))
        return total.tobytes(), timed(comm, ring.allreduce, n), comm.hosts

    run = launch(f, 3, world=Emulated(rate))
    model = launch(f, 3, world=Simulated())
    assert [r[0] for r in run.results] == [r[0] for r in model.results]
    assert run.bytes_sent.tolist() == model.bytes_sent.tolist()
    assert run.world == "emulated" and run.measured and "12.5 MB/s" in run.where
    assert run.results[0][2] == (0, 1, 2)
    assert netns.Network.address(0) == f"{netns.SUBNET}.1"  # .0 is the network
    formula = ring.time(3, 4 * n, Link(0.0, rate * emulated.PAYLOAD))
    assert 0.8 * formula < max(r[1] for r in run.results) < 2 * formula


def test_two_ranks_on_one_host_talk_at_memory_speed():
    def f(comm, a, b):
        x = np.ones(250_000, np.float32)
        comm.barrier()
        begun = time.perf_counter()
        if comm.rank == a:
            comm.send(x, b)
        elif comm.rank == b:
            comm.recv(x, a)
        return time.perf_counter() - begun if comm.rank == b else 0.0

    world = Emulated(2.5e6, hosts=(0, 0, 1, 1))
    inside, across = (max(launch(f, 4, a, b, world=world).results) for a, b in [(0, 1), (1, 2)])
    assert across > 0.3 > inside * 3


def test_somebody_elses_network_is_left_alone_even_with_the_same_names():
    code = "from labkit import launch\nfrom labkit.comm import Emulated\ndef f(comm): return comm.rank\n"
    code += "print(launch(f, 2, world=Emulated(1e8)).results)"
    # In a network of its own, for on this machine's somebody may need a br0.
    script = 'PATH=$PATH:/usr/sbin && ip link add br0 type bridge && "$0" -c "$1" && ip link show br0'
    command = ["unshare", "--map-root-user", "--net", "sh", "-c", script, sys.executable, code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0 and "[0, 1]" in done.stdout and "br0" in done.stdout, (
        done.stdout + done.stderr
    )


@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.weekly), signal.SIGKILL])
def test_an_interrupted_or_killed_launcher_leaves_no_network(started, how):
    code = (
        "import time\nfrom labkit import launch\nfrom labkit.comm import Emulated\n"
        "def f(comm):\n    print('at work', flush=True)\n    time.sleep(1000)\n"
        "launch(f, 2, world=Emulated(1e8), timeout_s=900)\n"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with started([sys.executable, "-c", code], **pipes) as p:
        while "at work" not in (line := p.stdout.readline()):
            assert line, "ended early"
        family = psutil.Process(p.pid).children(recursive=True)
        there = [one for one in family if one in hubs()]
        assert len(there) == 1  # it holds its hosts
        p.send_signal(how)
        p.communicate(timeout=20)
        assert not psutil.wait_procs(there, timeout=5)[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="this process is not root, so every other test shows it")
def test_it_works_without_privilege():
    # The interpreter starts as root, since an unprivileged user may not read this checkout; then it gives up root for good.
    text = (
        "import ctypes, json, os, select, shutil, signal, subprocess, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); ctypes.CDLL(None).prctl(4, 1)\n"
    ) + (ROOT / "labkit" / "comm" / "netns.py").read_text().replace("from __future__ import annotations", "")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", text, "[1e7, 1e7]"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, cwd="/", check=False,
    )  # fmt: skip
    assert "/ns/user" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("settings,sentence", [
    ({"rate": 10}, r"rate must be a finite number >= 10000 and <= 5e\+09"),
    ({"rate": float("nan")}, "rate must be"),
    ({"rate": 1e8, "hosts": (0, 2)}, "numbered 0, 1"),
    ({"rate": 1e8, "hosts": (0,)}, "hosts must name the host of each"),
])  # fmt: skip
def test_bad_settings_are_refused_in_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        launch(lambda comm: 0, 2, world=Emulated(**settings))


def test_more_hosts_than_a_bridge_takes_are_refused():
    with pytest.raises(ValueError, match="hosts must be at most 250, got 251"):
        Emulated(1e8)._site(251)
    assert str(Emulated(2.5e6)) == "processes, emulated ports of 2.5 MB/s"


def test_without_ip_or_tc_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(netns, "_find", lambda tool: None)
    with pytest.raises(LaunchError, match=r"needs the program 'ip': install iproute2"):
        launch(lambda comm: 0, 2, world=Emulated(1e8))
    assert "needs the program 'ip'" in (emulated.unavailable() or "")


@pytest.mark.parametrize("kernel,sentence", [
    ("'tc ... tbf' failed: Error: Specified qdisc kind is unknown.", "needs the tbf shaper"),
    ("[Errno 1] Operation not permitted", "does not let you make network namespaces"),
])  # fmt: skip
def test_a_kernel_that_refuses_is_explained(kernel, sentence):
    assert sentence in emulated._explain(kernel)
