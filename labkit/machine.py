"""What this machine is, for the label under every measured number."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from labkit.extras import need

ACCELERATOR = "cuda"  # torch's name of the device that labs and workers compute on, where there is one

#: Bits in which a GPU says what holds its clock down (NVML, nvmlClocksEventReason...), and whether that is a fault.
HELD_BY = {
    0x01: ("nothing to do", False), 0x04: ("its power cap", False), 0x08: ("a hardware slowdown", True),
    0x20: ("heat, by the driver", True), 0x40: ("heat, by the hardware", True), 0x80: ("the power supply's brake", True),
}  # fmt: skip


def cpu_name() -> str:
    """The processor's own name, or its architecture where the system does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota() -> float | None:
    """How many cores' worth of time this process's control group grants it; None where it has no limit.

    Source: cgroup v2 ``cpu.max``, or v1 ``cpu.cfs_quota_us`` over ``cpu.cfs_period_us`` (kernel documentation, cgroup-v2).
    """
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        words = [word for name in names for word in _control_group(name).split()]
        if len(words) == 2 and words[0] not in ("max", "-1"):
            return float(words[0]) / float(words[1])
    return None


def memory_bytes() -> int | None:
    """Bytes of memory this process may use: the machine's, or its control group's limit if that is less."""
    try:
        have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    limits = (_control_group(name).strip() for name in ("memory.max", "memory/memory.limit_in_bytes"))
    return min([have, *(int(limit) for limit in limits if limit.isdigit())])


def _control_group(name: str) -> str:
    """A file of this process's own control group, where the system mounts one at the usual place; else ""."""
    try:
        return (Path("/sys/fs/cgroup") / name).read_text()
    except OSError:
        return ""


def gpu_module() -> Any:
    """torch's module of the accelerator, ``torch.cuda``: ``device_count``, ``set_device``, ``synchronize``."""
    import torch

    return torch.get_device_module(ACCELERATOR)


def gpus() -> list[str]:
    """Names of the GPUs that torch sees; empty without torch or without a GPU."""
    try:
        gpu = gpu_module()
    except ImportError:
        return []
    return [gpu.get_device_name(i) for i in range(gpu.device_count())]


def device() -> str:
    """Where this process's torch tensors should live: the GPU where torch sees one, else ``"cpu"``.

    A worker of ``launch`` has a device of its own, ``comm.device``.
    """
    return ACCELERATOR if gpus() else "cpu"


@dataclass(frozen=True)
class Clock:
    """The clock of a GPU's processors: MHz now, and at most; what holds it down, and whether a fault is among that."""

    mhz: int
    most: int
    held_by: tuple[str, ...]
    fault: bool

    @property
    def throttled(self) -> bool:
        """Whether anything holds it down but that there is nothing to do."""
        return any(reason != HELD_BY[0x01][0] for reason in self.held_by)

    def __str__(self) -> str:
        held = f", held down by {', '.join(self.held_by)}" if self.held_by else ""
        return f"{self.mhz} of {self.most} MHz{held}"


def clocks() -> list[Clock]:
    """The clocks of this machine's GPUs, in the driver's order, as NVML tells them.

    Raises ImportError without pynvml, RuntimeError where the driver does not tell; both in one sentence.
    """
    nvml = need("pynvml", install="nvidia-ml-py")
    try:
        nvml.nvmlInit()
        try:
            found = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount()))
            return [_clock(nvml, gpu) for gpu in found]
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise RuntimeError(f"the GPUs' driver does not tell their clocks: {error}") from error


def clock_of(device: Any) -> Callable[[], Clock | None]:
    """What reads the clock of the GPU that torch calls ``device``, as often as it is called; gives None where NVML has none.

    NVML stays open for it, since opening takes milliseconds and reading takes microseconds.
    """
    with suppress(Exception):  # no package, no driver, or a device that NVML does not know
        nvml = need("pynvml")
        nvml.nvmlInit()
        uuid = gpu_module().get_device_properties(device).uuid
        return partial(_clock, nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    return lambda: None


def _clock(nvml: Any, gpu: Any) -> Clock:
    bits = 0
    for named in ("Event", "Throttle"):  # as NVML says since 2023, and as it said; some GPUs tell neither
        try:
            bits = getattr(nvml, f"nvmlDeviceGetCurrentClocks{named}Reasons")(gpu)
            break
        except (AttributeError, nvml.NVMLError):
            continue
    why = [(reason, fault) for bit, (reason, fault) in HELD_BY.items() if bits & bit]
    now, most = (
        f(gpu, nvml.NVML_CLOCK_SM) for f in (nvml.nvmlDeviceGetClockInfo, nvml.nvmlDeviceGetMaxClockInfo)
    )
    return Clock(now, most, tuple(reason for reason, _ in why), any(fault for _, fault in why))


def offers() -> str:
    """What there is to run on: cores, memory, GPUs. One phrase, as for a reader who has just installed labkit."""
    n, memory, found = cores(), memory_bytes(), gpus()
    parts = [f"{n} core{'s' * (n > 1)}"]
    if memory is not None:
        parts.append(f"{memory / 1e9:.0f} GB of memory")
    kinds = ", ".join(sorted(set(found)))
    last = f"{len(found)} GPU{'s' * (len(found) > 1)} ({kinds})" if found else "no GPU, which no lab needs"
    return f"{', '.join(parts)} and {last}"


def describe(devices: tuple[str, ...] = ("cpu",)) -> str:
    """One line: processor, cores, GPU if ``devices`` use one, system, torch's version if loaded, today's date."""
    n = cores()
    parts = [cpu_name(), f"{n} core{'s' * (n > 1)}", platform.system()]
    if devices and devices[0] != "cpu":
        used = len(set(devices))
        parts.insert(2, f"{used} x {gpus()[0]}")
    if "torch" in sys.modules:
        parts.append(f"torch {sys.modules['torch'].__version__}")
    parts.append(date.today().isoformat())
    return ", ".join(parts)
