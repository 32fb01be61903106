"""What became of one answer: the record that the grader's batch, reports and grade books are made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from labkit.grade.asking import ERROR, KILLED, NO_RESULT, PASS, TIMEOUT, WRONG
from labkit.grade.exercise import Exercise

STATUSES = (PASS, WRONG, ERROR, TIMEOUT, NO_RESULT, KILLED, "UNREADABLE", "NEEDS_HUMAN", "GRADER_ERROR")


@dataclass(frozen=True)
class Outcome:
    """What became of one answer.

    status: one of ``STATUSES``. points out of ``of``. message: for the student; log: for the instructor. seconds: of the
    wall clock. isolation: which walls stood, in words. seed: what the questions were drawn from.
    """

    id: str
    title: str
    status: str
    points: int
    of: int
    message: str = ""
    log: str = ""
    seconds: float = 0.0
    isolation: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {self.status!r}")

    @classmethod
    def of_exercise(
        cls, exercise: Exercise, status: str, message: str = "", log: str = "", points: int = 0, seed: int = 0
    ) -> Outcome:
        """An outcome of this exercise that needed no process."""
        return cls(exercise.id, exercise.title, status, points, exercise.points, message, log, seed=seed)

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)
