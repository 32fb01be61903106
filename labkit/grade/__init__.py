"""Checks that a student runs, and the exercises they belong to."""

from labkit.grade.check import Summary, Verdict, check, judge, summary
from labkit.grade.exercise import (
    Case,
    Exercise,
    Wrong,
    choices,
    close,
    exercise_set,
    find,
    in_words,
    number,
    same_array,
    seal,
)

__all__ = [
    "Case", "Exercise", "Summary", "Verdict", "Wrong", "check", "choices", "close", "exercise_set", "find", "in_words",
    "judge", "number", "same_array", "seal", "summary",
]  # fmt: skip
