"""Checks that a student runs, and the exercises they belong to."""

from labkit_book.problems.catalogue import exercise_set, find
from labkit_book.problems.check import Verdict, check, judge, summary
from labkit_book.problems.exercise import Case, Exercise, Wrong, close, number, same_array
from labkit_book.problems.measured import take
from labkit_book.problems.puzzles import draw

__all__ = [
    "Case", "Exercise", "Verdict", "Wrong", "check", "close", "draw", "exercise_set", "find",
    "judge", "number", "same_array", "summary", "take",
]  # fmt: skip
