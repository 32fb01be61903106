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


def gpus() -> list[str]:
    """Names of the CUDA devices that torch sees; empty without torch or without a GPU."""
    try:
        import torch
    except ImportError:
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


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
