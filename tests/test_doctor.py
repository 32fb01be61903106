"""The doctor looks, measures, says what is missing and what that costs, and survives any patient."""

import json
import re
import shlex
import sys
from types import SimpleNamespace

import psutil
import pytest

from labkit import doctor, launch, machine
from labkit.collectives import Measured, ring
from labkit.collectives.measure import _one_message
from labkit.comm import emulated
from labkit.network import Link, Sample, fit
from labkit_book.planner import read_sweep
from labkit_book.planner.__main__ import main as planner

LINK = Link(1e-4, 1e9)


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """A stopwatch that finds a known link, and a network that is quickly tried."""
    forms = (_one_message, ring.time)
    fits = [fit([Sample(form, 2, n, form(2, n, LINK)) for n in (100, 1e4, 1e6)]) for form in forms]
    monkeypatch.setattr(doctor, "measure_link", lambda **how: Measured(*fits, 2, "a machine of this test"))
    monkeypatch.setattr(emulated, "unavailable", lambda: None)


def named(what):
    return [f for f in doctor.examine(measure=False)["findings"] if f["what"] == what]


def test_the_planner_takes_the_line_as_it_is_printed_and_with_a_job_of_one_s_own(capsys):
    assert doctor.main(["doctor"]) == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])[3:]
    assert words[words.index("--network") + 1] == "1GB/s,100us"
    assert planner(words) == 0 and "Answer: " in capsys.readouterr().out
    words.remove("--example")
    job = "--parameters 25.6M --example-ms 4 --b 32 --K 8 --examples 115M --methods sync"
    assert planner([*words, *job.split()]) == 0
    # after 128 ms 7/4 of 102.4 MB, a byte in a nanosecond, in 6 messages of 0.1 ms
    assert re.search(r"sync +8 +307.8 +128 ", capsys.readouterr().out)


def test_the_planner_reads_the_json(capsys):
    assert doctor.main(["doctor", "--json"]) == 0
    said = capsys.readouterr().out
    assert read_sweep(said).points == tuple((2, n, ring.time(2, n, LINK)) for n in (100, 1e4, 1e6))
    assert json.loads(said)["measured"]["allreduce"]["alpha_s"] == pytest.approx(1e-4)
    assert doctor.main(["--wat"]) == 2 and doctor.main(["--help"]) == 0


# One of them daily.
EACH = [pytest.param(what, marks=pytest.mark.weekly if what != "torch" else ()) for what in doctor._PROBES]


@pytest.mark.parametrize("what", EACH)
def test_a_probe_that_breaks_is_a_finding_and_the_others_go_on(what, monkeypatch):
    def broken():
        raise RuntimeError("bang\nand more")

    monkeypatch.setitem(doctor._PROBES, what, broken)
    assert named(what)[0]["found"] == "could not be examined: bang and more"
    assert all(named(other) for other in doctor._PROBES)


def test_a_stopwatch_that_fails_is_said_and_not_raised(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "measure_link", lambda **how: ring.time(-1, 1.0, LINK))
    assert doctor.main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "were not measured: K must be" in said and all(f" {what:<16}  " in said for what in doctor._PROBES)


def test_what_a_lack_costs_is_said_beside_it(monkeypatch):
    for name in [m for m in sys.modules if m.split(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(emulated, "unavailable", lambda: "this kernel has no namespaces")
    monkeypatch.setattr(machine, "cores", lambda: 1)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 10**9)
    advice = {"torch": "pip install", "emulated cluster": "no namespaces", "cores": "turns", "memory": "3 GB"}
    for what, words in advice.items():
        finding = named(what)[0]
        assert finding["works"] is False and words in finding["advice"]


def nvml(gpu, ways):
    """A stand-in for pynvml: a GPU of this (MHz, most, mask of reasons); a mask of None is not told, a GPU of None has no
    driver. ways: the names that the driver has for the reasons, of "Event" and "Throttle"."""

    class NVMLError(Exception):
        pass

    def told(handle, way):
        if way not in ways or gpu[2] is None:
            raise NVMLError("Function Not Found")
        return gpu[2]

    return SimpleNamespace(
        NVMLError=NVMLError, NVML_CLOCK_SM=1, nvmlInit=lambda: gpu[0],
        nvmlDeviceGetHandleByUUID={"GPU-a": gpu}.__getitem__,
        nvmlDeviceGetClockInfo=lambda handle, which: gpu[0] if which == 1 else -1,
        nvmlDeviceGetMaxClockInfo=lambda handle, which: gpu[1] if which == 1 else -1,
        nvmlDeviceGetCurrentClocksEventReasons=lambda handle: told(handle, "Event"),
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: told(handle, "Throttle"),
    )  # fmt: skip


def test_where_the_system_does_not_tell_its_memory_nothing_is_judged(monkeypatch):
    monkeypatch.delattr("os.sysconf")
    monkeypatch.setattr("os.path.isdir", lambda path: False)
    assert machine.memory_bytes() is None and not named("memory") and named("packages")[0]["works"] is True


@pytest.mark.parametrize(("free", "works"), [(255e6, False), (256e6, True), (1e9, True)])
def test_too_little_shared_memory_is_told(free, works, monkeypatch):
    monkeypatch.setattr("os.path.isdir", lambda path: True)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    finding = named("memory")[-1]
    assert finding["found"] == f"{free / 1e6:,.0f} MB of shared memory free" and finding["works"] is works


@pytest.fixture
def one_gpu(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(machine, "gpus", lambda: ["H200"])
    named_by_torch = {0: SimpleNamespace(uuid="a"), 1: SimpleNamespace(), 2: SimpleNamespace(uuid="b")}
    monkeypatch.setattr(torch.cuda, "get_device_properties", named_by_torch.__getitem__)


@pytest.mark.parametrize(("gpu", "works", "found"), [
    ((1980, 1980, 0), True, "H200: 1980 of 1980 MHz"),
    ((345, 1980, 0x01), True, "held down by nothing to do"),
    ((1755, 1980, 0x04), True, "H200: 1755 of 1980 MHz, held down by its power cap"),
    ((1140, 1980, 0x48), False, "held down by a hardware slowdown, heat"),
    ((1140, 1980, 0x20), False, "held down by heat, by the driver"),
    ((1140, 1980, 0x80), False, "held down by the power supply's brake"),
    ((1140, 1980, None), True, "H200: 1140 of 1980 MHz"),
])  # fmt: skip
@pytest.mark.parametrize("ways", ["Event Throttle", "Throttle", "Event"])
def test_a_gpu_s_clock_and_what_holds_it_down_are_read(gpu, works, found, ways, one_gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(gpu, ways))
    (finding,) = named("GPUs")
    assert finding["works"] is works and found in finding["found"] and bool(finding["advice"]) != works
    clock = machine.clock_of(0)()
    assert clock.fault != works and clock.throttled == ((gpu[2] or 0) > 1)
    assert machine.clock_of(1)() is machine.clock_of(2)() is None, "a device that the driver does not know"


@pytest.mark.parametrize("package", [None, nvml(None, "Event")], ids=["no package", "no driver"])
def test_where_no_clock_can_be_read_one_sentence_says_so(package, one_gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", package)
    (finding,) = named("GPUs")
    assert finding["found"] == "H200" and "pip install nvidia-ml-py" in finding["advice"]


@pytest.mark.parametrize(("files", "cores", "memory"), [
    ({"cpu.max": "max 100000\n", "memory.max": "max\n"}, 64, 4_096_000_000),
    ({"cpu.max": "150000 100000\n", "memory.max": "1048576\n"}, 2, 1048576),
])  # fmt: skip
def test_what_a_control_group_grants_is_read(files, cores, memory, monkeypatch):
    monkeypatch.setattr(machine, "_control_group", lambda name: files.get(name, ""))
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: range(64))
    monkeypatch.setattr(machine.os, "sysconf", lambda name: 4096 if "SIZE" in name else 10**6)
    assert (machine.cores(), machine.memory_bytes()) == (cores, memory)


@pytest.mark.processes
def test_on_this_machine_it_measures_and_leaves_no_process_behind(monkeypatch):
    monkeypatch.undo()  # the stopwatch of labkit itself
    launch(lambda comm: comm.rank, 2, world="processes")  # the fork server, which stays, is there now
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    report = doctor.examine(quick=True)
    if report["measured"] is None:  # so disturbed a machine that no link can be told; then it says so
        assert "must determine" in report["unmeasured"]
    else:
        assert report["measured"]["allreduce"]["beta_bytes_per_s"] > 1e6
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before
