"""When things happen: laws of compute time, barriers, timelines, and who is late."""

from labkit.timing.barriers import Overlap, bsp, overlap, ssp, ssp_slowest
from labkit.timing.groups import OneStraggler, PerWorker, Recorded, Trace
from labkit.timing.laws import (
    Constant,
    Law,
    LogNormal,
    Pareto,
    Scaled,
    ShiftedExponential,
    TruncatedNormal,
    Uniform,
    draw,
)
from labkit.timing.order import expected_max, sample_max
from labkit.timing.report import StragglerReport, straggler_report
from labkit.timing.timeline import Kind, Timeline

__all__ = [
    "Constant",
    "Kind",
    "Law",
    "LogNormal",
    "OneStraggler",
    "Overlap",
    "Pareto",
    "PerWorker",
    "Recorded",
    "Scaled",
    "ShiftedExponential",
    "StragglerReport",
    "Timeline",
    "Trace",
    "TruncatedNormal",
    "Uniform",
    "bsp",
    "draw",
    "expected_max",
    "overlap",
    "sample_max",
    "ssp",
    "ssp_slowest",
    "straggler_report",
]
