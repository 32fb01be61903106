"""The folder of results: each submission's rows in a file of its own, whole or not there, found again by what made them.

A file's name is a hash of the submission's bytes and names, the key, the released notebooks, labkit and the seed. Stop the
grader at any moment, by ^C, by SIGKILL or by a full disk, and run the same command again: it takes up what is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit_book.grader.batch import Plan
from labkit_book.grader.collect import Submission
from labkit_book.grader.notebook import Unreadable, content
from labkit_book.grader.outcome import Outcome, Row

_PACKAGES = [Path(__file__).parents[2] / name for name in ("labkit", "labkit_book")]


@dataclass(frozen=True)
class Results:
    """The results below ``folder``. base: the digest of all that they depend on, the submissions apart."""

    folder: Path
    base: str

    @classmethod
    def of(cls, folder: Path, plan: Plan) -> Results:
        """Those made by this labkit, with the key, the released notebooks, and the rest of the plan."""
        about = (plan.seed, plan.asked, plan.limits, plan.submission_s)
        sha = hashlib.sha256(repr(about).encode())
        files = [path for package in _PACKAGES for path in package.rglob("*.py")]
        for path in sorted([*files, *plan.key.glob("key_*.py"), *plan.notebooks.glob("*.ipynb")]):
            sha.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return cls(folder, sha.hexdigest())

    def load(self, s: Submission) -> list[Row] | None:
        """What was stored for this very submission; None if nothing was, or nothing whole."""
        try:
            return [_row(r) for r in json.loads(self._path(s).read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def save(self, s: Submission, rows: Sequence[Row]) -> None:
        """Store the rows, unless the grader failed on one: that is tried again next time. Raises OSError on a full disk."""
        if not any(row.failed for row in rows):
            self._path(s).parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path(s), json.dumps([asdict(r) for r in rows]))

    def _path(self, s: Submission) -> Path:
        parts = (self.base, s.student, s.name, s.problem, _file_digest(s.path))
        return self.folder / "results" / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}.json"


def seed_of_run(folder: Path | None, seed: int | None) -> int:
    """The seed given; or that of the run begun in this folder; or a new one, drawn by the system and noted there."""
    note = folder / "run.json" if folder else None
    if seed is None and note is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            seed = int(json.loads(note.read_text(encoding="utf-8"))["seed"])
    if seed is None:
        seed = secrets.randbits(128)  # more than anybody can search by asking labkit for its questions
    if note is not None:
        note.parent.mkdir(parents=True, exist_ok=True)
        begun = datetime.now().astimezone().isoformat(timespec="seconds")
        write_whole(note, json.dumps({"seed": seed, "begun": begun}))
    return seed


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all, also if the machine stops in the middle. Raises OSError."""
    part = path.with_name(f".{os.getpid()}.{hashlib.sha256(path.name.encode()).hexdigest()[:16]}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _row(stored: dict[str, Any]) -> Row:
    exercises = tuple(Outcome(**e) for e in stored["exercises"])
    return Row(**stored | {"exercises": exercises, "flags": tuple(stored["flags"])})


def _file_digest(path: Path) -> str:
    try:
        return hashlib.sha256(content(path)).hexdigest()
    except Unreadable:
        return "none"
