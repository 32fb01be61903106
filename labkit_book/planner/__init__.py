"""Choosing a configuration: time to accuracy = steps(B) x seconds per step(K, network, stragglers, method).

>>> from labkit_book.planner import Case, plan
>>> case = Case(parameters=25_600_000, example_s=4e-3, b_examples=32, alpha_s=20e-6, beta_bytes_per_s=3.125e9,
...             S_min_steps=7000, B_crit_examples=4096, K_workers=[8, 64])
>>> plan(case).best().K
64
"""

from labkit_book.planner.case import Case
from labkit_book.planner.method import Method, parse_method
from labkit_book.planner.plan import Flip, Plan, break_even, plan, sensitivity
from labkit_book.planner.row import Row, Step
from labkit_book.planner.sweep import Sweep, read_sweep

__all__ = [
    "Case", "Flip", "Method", "Plan", "Row", "Step", "Sweep", "break_even",
    "parse_method", "plan", "read_sweep", "sensitivity",
]  # fmt: skip
