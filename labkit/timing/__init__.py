"""When things happen: laws of compute time, barrier policies, timelines, and who is late."""

from labkit.timing.fleets import OneStraggler, PerWorker, Trace, draw
from labkit.timing.laws import (
    Constant,
    Fleet,
    Law,
    LogNormal,
    Pareto,
    Recorded,
    Scaled,
    ShiftedExponential,
    TruncatedNormal,
    Uniform,
)
from labkit.timing.order import expected_max
from labkit.timing.overlap import Overlap, overlap
from labkit.timing.policy import (
    POLICIES,
    Asynchronous,
    LocalSteps,
    Policy,
    ServerPolicy,
    StaleSynchronous,
    Synchronous,
    parse_policy,
)
from labkit.timing.report import StragglerReport, straggler_report
from labkit.timing.timeline import Kind, Timeline
from labkit.timing.updates import Updates

__all__ = [
    "POLICIES",
    "Asynchronous",
    "Constant",
    "Fleet",
    "Kind",
    "Law",
    "LocalSteps",
    "LogNormal",
    "OneStraggler",
    "Overlap",
    "Pareto",
    "PerWorker",
    "Policy",
    "Recorded",
    "Scaled",
    "ServerPolicy",
    "ShiftedExponential",
    "StaleSynchronous",
    "StragglerReport",
    "Synchronous",
    "Timeline",
    "Trace",
    "TruncatedNormal",
    "Uniform",
    "Updates",
    "draw",
    "expected_max",
    "overlap",
    "parse_policy",
    "straggler_report",
]
