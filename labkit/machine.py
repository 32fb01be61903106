"""What this machine is, for the label under every measured number."""

from __future__ import annotations

import os
import platform
import sys
from datetime import date
from pathlib import Path


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


def gpus() -> list[str]:
    """Names of the CUDA devices that torch sees; empty without torch or without a GPU."""
    try:
        import torch
    except ImportError:
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


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
    if any(d.startswith("cuda") for d in devices):
        used = len(set(devices))
        parts.insert(2, f"{used} x {gpus()[0]}")
    if "torch" in sys.modules:
        parts.append(f"torch {sys.modules['torch'].__version__}")
    parts.append(date.today().isoformat())
    return ", ".join(parts)
