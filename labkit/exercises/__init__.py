"""Checks that a student runs, and the exercises they belong to."""

from labkit.exercises.catalogue import exercise_set, find
from labkit.exercises.check import Verdict, check, judge, summary
from labkit.exercises.exercise import (
    Case,
    Exercise,
    Wrong,
    choices,
    close,
    number,
    same_array,
)
from labkit.exercises.measured import take

__all__ = [
    "Case", "Exercise", "Verdict", "Wrong", "check", "choices", "close", "exercise_set", "find",
    "judge", "number", "same_array", "summary", "take",
]  # fmt: skip
