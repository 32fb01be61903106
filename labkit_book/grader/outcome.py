"""What became of answers: the one record that is stored and reported, for each exercise and each submission."""

from __future__ import annotations

from dataclasses import dataclass, replace

from labkit import checks

#: Every status: its sign in the table, its sign on a feedback page, and what it means, in words for the student.
STATUSES = {
    "PASS": ("", "✓", "right"),
    "WRONG": ("x", "✗", "not right yet"),
    "ERROR": ("E", "✗", "your code raised an error"),
    "TIMEOUT": ("T", "✗", "your code took too long"),
    "NO_RESULT": ("-", "○", "nothing came back"),
    "KILLED": ("K", "✗", "your code was stopped: it used too much of something"),
    "UNREADABLE": ("U", "✗", "the file could not be read as a notebook"),
    "NEEDS_HUMAN": ("?", "…", "a person will look at this"),
    "LEFT_OUT": ("o", "✗", "not graded: nobody asked for this"),
    "GRADER_ERROR": ("!", "…", "the grader failed; this is not your fault"),
}


@dataclass(frozen=True)
class Outcome:
    """One exercise of one submission.

    status: one of ``STATUSES``. points out of ``of``. message: for the student; log: for the instructor, and where a person
    is to judge, what to look for. answer: what was taken from the notebook. isolation: what was on, in words.
    """

    id: str
    title: str
    status: str
    points: float
    of: int
    message: str = ""
    log: str = ""
    answer: str = ""
    isolation: str = ""

    def __post_init__(self) -> None:
        checks.one_of("status", self.status, STATUSES)

    @property
    def open(self) -> bool:
        """Whether the points are still open: a person is awaited, or the grader failed."""
        return self.status in ("NEEDS_HUMAN", "GRADER_ERROR")


@dataclass(frozen=True)
class Row:
    """One submission and one problem set. set: "" where it could not be told; then ``status`` says why there is nothing."""

    student: str
    submission: str
    set: str = ""
    status: str = ""
    message: str = ""
    exercises: tuple[Outcome, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """Points reached so far; what waits for a human counts nothing yet."""
        return sum(e.points for e in self.exercises)

    @property
    def of(self) -> int:
        """Points there are."""
        return sum(e.of for e in self.exercises)

    @property
    def still_open(self) -> int:
        """Points of exercises that wait for a human, or on which the grader failed."""
        return sum(e.of for e in self.exercises if e.open)

    @property
    def waiting(self) -> bool:
        """Whether a human has to look at this."""
        return "NEEDS_HUMAN" in (self.status, *(e.status for e in self.exercises))

    @property
    def failed(self) -> bool:
        """Whether the grader itself failed here."""
        return "GRADER_ERROR" in (self.status, *(e.status for e in self.exercises))

    def flagged(self, *flags: str) -> Row:
        """The same with these flags more."""
        return replace(self, flags=(*self.flags, *flags))
