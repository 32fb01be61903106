"""Checks that a student runs, and the exercises they belong to."""

from labkit.exercises.check import Verdict, check, judge, summary
from labkit.exercises.exercise import (
    Case,
    Exercise,
    Wrong,
    choices,
    close,
    exercise_set,
    find,
    number,
    same_array,
)

__all__ = [
    "Case", "Exercise", "Verdict", "Wrong", "check", "choices", "close", "exercise_set", "find",
    "judge", "number", "same_array", "summary",
]  # fmt: skip
