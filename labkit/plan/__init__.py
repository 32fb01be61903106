"""Choosing a configuration: time to accuracy = steps(B) x seconds per step(K, network, stragglers, method).

>>> from labkit.plan import Case, plan
>>> case = Case(parameters=25_600_000, example_s=4e-3, b_examples=32, alpha_s=20e-6, beta_bytes_per_s=3.125e9,
...             S_min_steps=7000, B_crit_examples=4096, K_workers=[8, 64])
>>> plan(case).best().K
64
"""

from labkit.plan.case import Case
from labkit.plan.goals import Goal
from labkit.plan.laws import parse_law
from labkit.plan.method import Method, parse_method
from labkit.plan.plan import Plan, plan
from labkit.plan.plots import efficiency_by_K, measured_over_predicted, time_against_price
from labkit.plan.report import break_even, verdict
from labkit.plan.row import Row, Step
from labkit.plan.sensitivity import Flip, sensitivity

__all__ = [
    "Case", "Flip", "Goal", "Method", "Plan", "Row", "Step", "break_even", "efficiency_by_K", "measured_over_predicted",
    "parse_law", "parse_method", "plan", "sensitivity", "time_against_price", "verdict",
]  # fmt: skip
