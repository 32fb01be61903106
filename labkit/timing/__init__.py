"""When things happen: laws of compute time, barrier policies, timelines, and who is late."""

from labkit.timing.laws import (
    Constant,
    Fleet,
    Law,
    LogNormal,
    OneStraggler,
    Pareto,
    PerWorker,
    Scaled,
    ShiftedExponential,
    Trace,
    TruncatedNormal,
    Uniform,
    draw,
)
from labkit.timing.order import expected_max
from labkit.timing.policy import (
    POLICIES,
    Asynchronous,
    LocalSteps,
    Policy,
    StaleSynchronous,
    Synchronous,
    parse_policy,
)
from labkit.timing.report import StragglerReport, straggler_report
from labkit.timing.timeline import Kind, Timeline
from labkit.timing.updates import Updates
