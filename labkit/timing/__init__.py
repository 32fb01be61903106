"""When things happen: laws of compute time, barriers, timelines, and who is late."""

from labkit.timing.backup import backup, backup_ends
from labkit.timing.barriers import bsp, bsp_ends, ssp, ssp_ends
from labkit.timing.buckets import Overlap, buckets, buckets_ends, overlap
from labkit.timing.draws import draw
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
)
from labkit.timing.local import local, local_ends
from labkit.timing.order import expected_max, sample_max
from labkit.timing.report import StragglerReport, straggler_report
from labkit.timing.server import asynchronous, asynchronous_ends
from labkit.timing.timeline import Kind, Timeline
from labkit.timing.updates import Updates
from labkit.timing.versions import lead, one_by_one, staleness_bound, together

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
    "Updates",
    "asynchronous",
    "asynchronous_ends",
    "backup",
    "backup_ends",
    "bsp",
    "bsp_ends",
    "buckets",
    "buckets_ends",
    "draw",
    "expected_max",
    "lead",
    "local",
    "local_ends",
    "one_by_one",
    "overlap",
    "sample_max",
    "ssp",
    "ssp_ends",
    "staleness_bound",
    "straggler_report",
    "together",
]
