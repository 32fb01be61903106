"""The doctor looks, measures, says what is missing and what that costs, and survives any patient."""

from __future__ import annotations

import json
import shlex
import sys
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from labkit import doctor, launch, machine
from labkit.__main__ import COMMANDS, main
from labkit.collectives import Measured, ring
from labkit.collectives.measure import UP_TO_FLAT, _one_message
from labkit.comm import LaunchError, emulated
from labkit.network import Link, Sample, fit
from labkit_book.planner import read_sweep
from labkit_book.planner.__main__ import main as planner


@pytest.fixture
def known(monkeypatch):
    """A stopwatch that finds a known link; returns the list of what it was asked."""
    asked = []

    def measure(**how):
        asked.append(how)
        link = Link(1e-4, 1e9)
        fits = [
            fit([Sample(form, 2, n, form(2, n, link)) for n in (100, 1e4, 1e6)])
            for form in (_one_message, ring.time)
        ]
        return Measured(*fits, 2, "a machine of this test")

    monkeypatch.setattr(doctor, "measure_link", measure)
    return asked


@pytest.fixture(autouse=True)
def quick_network(monkeypatch):
    monkeypatch.setattr(emulated, "unavailable", lambda: None)


def named(report, what):
    return next(f for f in report.findings if f.what == what)


def without(monkeypatch, package):
    """From here on, importing ``package`` fails as if it were not installed."""
    for name in [m for m in sys.modules if m.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


def test_every_probe_has_a_finding_and_the_planner_s_line_carries_the_measured_link(known):
    report = doctor.examine()
    assert {f.what for f in report.findings} == set(doctor._PROBES) and known == [
        {"rounds": 5, "sizes": UP_TO_FLAT}
    ]
    words = shlex.split(report.plan_command)
    assert words[:4] == ["python", "-m", "labkit_book.planner", "--example"]
    assert words[words.index("--latency") + 1] == "100us" and words[words.index("--network") + 1] == "1GB/s"
    assert report.plan_command in str(report) and "a machine of this test" in str(report)


def test_the_planner_takes_the_line_as_it_is_printed_and_with_a_job_of_one_s_own(known, capsys):
    words = shlex.split(doctor.examine().plan_command)[3:]
    assert planner(words) == 0 and "Answer: " in capsys.readouterr().out
    words.remove("--example")
    job = "--parameters 25.6M --example-ms 4 --b 32 --K 8 --examples 115M --methods sync --json --no-flips"
    assert planner([*words, *job.split()]) == 0
    cluster = json.loads(capsys.readouterr().out)["inputs"]["cluster"]
    assert cluster["alpha_s"] == pytest.approx(1e-4) and cluster["beta_bytes_per_s"] == pytest.approx(1e9)


def test_without_torch_it_says_what_cannot_be_run_and_measures_nothing(monkeypatch):
    without(monkeypatch, "torch")
    report = doctor.examine(quick=True)
    torch = named(report, "torch")
    assert torch.works is False and "pip install" in torch.advice and "simulat" in torch.advice
    assert report.measured is None and "torch" in report.unmeasured and report.plan_command is None
    assert "were not measured" in str(report)


@pytest.mark.parametrize("what", list(doctor._PROBES))
def test_a_probe_that_breaks_is_a_finding_and_the_others_go_on(what, known, monkeypatch):
    def broken():
        raise RuntimeError("bang\nand more")
        yield

    monkeypatch.setitem(doctor._PROBES, what, broken)
    report = doctor.examine()
    assert named(report, what).found == "could not be examined: bang and more"
    assert {f.what for f in report.findings} == set(doctor._PROBES)


@pytest.mark.parametrize(
    "error", [LaunchError("no room"), ValueError("lost in the scatter"), OSError(12, "memory")]
)
def test_a_stopwatch_that_fails_is_said_and_not_raised(error, monkeypatch):
    def fails(**how):
        raise error

    monkeypatch.setattr(doctor, "measure_link", fails)
    report = doctor.examine()
    assert report.measured is None and str(error) in report.unmeasured
    json.dumps(report.data())


def test_what_a_lack_costs_is_said_beside_it(known, monkeypatch):
    monkeypatch.setattr(emulated, "unavailable", lambda: "this kernel has no namespaces")
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.delenv("LABKIT_CHROMIUM", raising=False)
    monkeypatch.setattr(machine, "cores", lambda: 1)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 10**9)
    report = doctor.examine()
    for what in ("emulated cluster", "extras", "cores", "memory"):
        assert named(report, what).works is False and named(report, what).advice
    assert "this kernel has no namespaces" in named(report, "emulated cluster").advice
    assert named(report, "browser").found == "none on the path"


def test_a_quota_below_the_cores_is_what_counts(known, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 64)
    monkeypatch.setattr(machine, "quota", lambda: 1.5)
    cores = named(doctor.examine(), "cores")
    assert cores.works is False and "grants 1.5" in cores.found


class NVML(ModuleType):
    """A stand-in for pynvml, with its names: GPUs of the given (MHz, most, mask of reasons); a mask of None is not told."""

    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM = 0, 1

    class NVMLError(Exception):
        pass

    def __init__(self, gpus, ways=("Event", "Throttle"), driver=None):
        super().__init__("pynvml")
        self.gpus, self.driver, self.open = gpus, driver, 0
        for way in ways:
            setattr(self, f"nvmlDeviceGetCurrentClocks{way}Reasons", self._reasons)
        if driver == "older than the package":

            def missing(gpu):
                raise self.NVMLError("Function Not Found")

            self.nvmlDeviceGetCurrentClocksEventReasons = missing

    def nvmlInit(self):
        if self.driver == "none":
            raise self.NVMLError("NVML Shared Library Not Found")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return self.gpus[["GPU-a", "GPU-b"].index(uuid)]

    def nvmlDeviceGetClockInfo(self, gpu, which):
        return gpu[0] if self.open and which == self.NVML_CLOCK_SM else -1

    def nvmlDeviceGetMaxClockInfo(self, gpu, which):
        return gpu[1] if self.open and which == self.NVML_CLOCK_SM else -1

    def _reasons(self, gpu):
        if gpu[2] is None:
            raise self.NVMLError("Not Supported")
        return gpu[2]


@pytest.mark.parametrize(
    ("gpus", "works", "found"),
    [
        ([(1980, 1980, 0)], [True], ["GPU 0: 1980 of 1980 MHz"]),
        ([(345, 1980, 0x01)], [True], ["held down by nothing to do"]),
        ([(1755, 1980, 0x04), (1140, 1980, 0x48)], [True, False],
          ["GPU 0: 1755 of 1980 MHz, held down by its power cap", "held down by a hardware slowdown, heat"]),
        ([(1140, 1980, 0x20)], [False], ["heat, by the driver"]),
        ([(1140, 1980, 0x80)], [False], ["the power supply's brake"]),
        ([(1140, 1980, None)], [True], ["GPU 0: 1140 of 1980 MHz"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "settings",
    [{}, {"ways": ["Throttle"]}, {"ways": ["Event"]}, {"driver": "older than the package"}],
    ids=str,
)
def test_a_gpu_s_clock_and_what_holds_it_down_are_read(gpus, works, found, settings, known, monkeypatch):
    nvml = NVML(gpus, **settings)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    clocks = [f for f in doctor.examine(measure=False).findings if f.what == "clocks"]
    assert [f.works for f in clocks] == works and nvml.open == 0
    assert all(text in f.found for text, f in zip(found, clocks, strict=True))
    assert all(bool(f.advice) == (f.works is not True) for f in clocks)


@pytest.mark.parametrize(
    ("nvml", "said"),
    [
        (None, "pip install nvidia-ml-py"),
        (NVML([], driver="none"), "NVML Shared Library Not Found"),
        (NVML([]), "no GPU"),
    ],
)
def test_where_no_clock_can_be_read_one_sentence_says_why(nvml, said, known, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    clocks = named(doctor.examine(measure=False), "clocks")
    assert clocks.works is None and said in clocks.found and "\n" not in clocks.found
    assert machine.clock_of(0)() is None


def test_a_device_s_clock_is_that_of_the_gpu_that_torch_calls_so(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "pynvml", NVML([(1980, 1980, 0), (1140, 1980, 0x40)]))
    known = {0: SimpleNamespace(uuid="b"), 1: SimpleNamespace(uuid="a"), 2: SimpleNamespace()}
    monkeypatch.setattr(torch.cuda, "get_device_properties", known.__getitem__)
    for device, seen in ((0, (1140, True, True)), (1, (1980, False, False))):
        clock = machine.clock_of(device)()
        assert (clock.mhz, clock.fault, clock.throttled) == seen
    assert machine.clock_of(2)() is None, "a device that has no name for the driver"


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({}, None, None),
        ({"cpu.max": "max 100000\n", "memory.max": "max\n"}, None, None),
        ({"cpu.max": "150000 100000\n", "memory.max": "1048576\n"}, 1.5, 1048576),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n",
          "memory/memory.limit_in_bytes": "9223372036854771712\n"}, 4.0, None),
    ],
)  # fmt: skip
def test_control_groups_of_both_versions_are_read(files, cores, memory, monkeypatch):
    whole = machine.memory_bytes()
    monkeypatch.setattr(machine, "_control_group", lambda name: files.get(name, ""))
    assert machine.quota() == cores
    monkeypatch.setattr(machine.os, "sysconf", lambda name: 4096 if "SIZE" in name else 10**6)
    assert machine.memory_bytes() == (memory or 4_096_000_000)
    assert whole is None or whole > 0


def test_the_command_speaks_json_and_refuses_what_it_does_not_know(known, capsys):
    assert doctor.main(["--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["measured"]["allreduce"]["beta_bytes_per_s"] == pytest.approx(1e9)
    assert said["measured"]["allreduce"]["alpha_s"] == pytest.approx(1e-4)
    assert read_sweep(json.dumps(said)).points == tuple(
        (2, n, ring.time(2, n, Link(1e-4, 1e9))) for n in (100, 1e4, 1e6)
    )
    assert {f["what"] for f in said["findings"]} == set(doctor._PROBES)
    assert doctor.main(["--quick", "--no-measure"]) == 0 and known == [{"rounds": 5, "sizes": UP_TO_FLAT}]
    assert "you asked for a look only" in capsys.readouterr().out
    assert doctor.main(["--wat"]) == 2 and doctor.main(["--help"]) == 0


@pytest.mark.processes
def test_on_this_machine_it_measures_and_leaves_no_process_behind():
    launch(lambda comm: comm.rank, 2, world="processes")  # the fork server, which stays, is there now
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    report = json.loads(json.dumps(doctor.examine(quick=True).data()))
    if report["measured"] is None:  # so disturbed a machine that no link can be told; then it says so
        assert "must determine" in report["unmeasured"]
    else:
        link = report["measured"]["allreduce"]
        low, high = link["alpha_interval_s"]
        assert 1e-7 < low <= link["alpha_s"] <= high and link["beta_bytes_per_s"] > 1e6
        assert report["plan_command"].startswith("python -m labkit_book.planner ")
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before


def test_bare_labkit_tells_what_exists_and_another_command_is_refused(capsys):
    assert main([]) == 0
    assert set(COMMANDS) <= set(capsys.readouterr().out.split())
    assert main(["dcotor"]) == 2
    out, err = capsys.readouterr()
    assert not out and "the command must be one of why, doctor, got 'dcotor'" in err
