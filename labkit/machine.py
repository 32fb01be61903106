"""What this machine is, for the label under every measured number."""

import importlib
import math
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ACCELERATOR = "cuda"  # torch's name of the device that labs and workers compute on, where there is one

#: Bits in which a GPU says what holds its clock down (NVML, nvmlClocksEventReason...), and whether that is a fault.
HELD_BY = {
    0x01: ("nothing to do", False),
    0x04: ("its power cap", False),
    0x08: ("a hardware slowdown", True),
    0x20: ("heat, by the driver", True),
    0x40: ("heat, by the hardware", True),
    0x80: ("the power supply's brake", True),
}


def cpu_name() -> str:
    """The processor's own name, or its architecture where the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    return platform.processor() or platform.machine()


def cores() -> int:
    """How many cores this process may use: those it may run on, or what its control group grants if less."""
    some = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        some = len(os.sched_getaffinity(0))
    quota, _, period = _control_group("cpu.max").partition(" ")
    return min(some, math.ceil(int(quota) / int(period))) if quota.isdigit() else some


def memory_bytes() -> int | None:
    """Bytes of memory this process may use: the machine's, or its control group's limit if that is less."""
    try:
        have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    limit = _control_group("memory.max").strip()
    return min(have, int(limit)) if limit.isdigit() else have


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
    """Where this process's tensors should live: the GPU where torch sees one, else "cpu"; a worker's: ``comm.device``."""
    return ACCELERATOR if gpus() else "cpu"


class Clock(NamedTuple):
    """The clock of a GPU's processors: MHz now, and at most; what holds it down, and whether a fault is among that."""

    mhz: int
    most: int
    held_by: tuple[str, ...]
    fault: bool

    @property
    def throttled(self) -> bool:
        """Whether anything holds it down but that there is nothing to do."""
        return any(reason != "nothing to do" for reason in self.held_by)

    def __str__(self) -> str:
        held = f", held down by {', '.join(self.held_by)}" if self.held_by else ""
        return f"{self.mhz} of {self.most} MHz{held}"


def clock_of(device: Any) -> Callable[[], Clock | None]:
    """What reads the clock of the GPU that torch calls ``device``, by nvidia-ml-py; gives None where that fails."""
    with suppress(
        Exception
    ):  # no package, no driver, or a device that it does not know
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        uuid = gpu_module().get_device_properties(device).uuid
        return partial(_clock, nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    return lambda: None


def _clock(nvml: Any, gpu: Any) -> Clock:
    bits = 0
    for named in ("Throttle", "Event"):  # as NVML said, and as it says since 2023
        with suppress(AttributeError, nvml.NVMLError):  # some GPUs tell neither
            bits = getattr(nvml, f"nvmlDeviceGetCurrentClocks{named}Reasons")(gpu)
    held = [HELD_BY[bit] for bit in HELD_BY if bits & bit]
    now = nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)
    most = nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)
    reasons = tuple(reason for reason, _ in held)
    return Clock(now, most, reasons, fault=any(fault for _, fault in held))


def describe(devices: tuple[str, ...] = ("cpu",)) -> str:
    """One line: processor, cores, GPU if ``devices`` use one, system, torch's version if loaded, today's date."""
    n = cores()
    parts = [cpu_name(), f"{n} core{'s' * (n > 1)}"]
    if devices and devices[0] != "cpu":
        parts.append(f"{len(set(devices))} x {gpus()[0]}")
    parts.append(platform.system())
    if "torch" in sys.modules:
        parts.append(f"torch {sys.modules['torch'].__version__}")
    parts.append(date.today().isoformat())
    return ", ".join(parts)
