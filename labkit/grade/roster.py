"""Who is in the class: the file that a learning management system exports, as it is, and the file that it takes back.

| system | export | names of what was handed in |
|---|---|---|
| Moodle | grading worksheet (``Identifier``, ``Full name``, ...) | ``Anna Berg_4711_assignsubmission_file_`` |
| Canvas | gradebook (``Student``, ``ID``, ``SIS User ID``, ...) | ``berganna_LATE_4711_98765_x.ipynb`` |
| Gradescope | roster (``First Name``, ``Last Name``, ``SID``, ``Email``) | ``submission_98765``, and a note whose |

Sources: the systems' own manuals (Moodle, *Assignment: offline grading worksheet*; Canvas, *import grades*: its first five
columns, in their order; Gradescope, *roster* and *export submissions*).
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d+)_assignsubmission_[a-z]+_?(?P<rest>.*)")
_CANVAS = re.compile(r"(?P<name>[^_]+)_(LATE_)?(?P<number>\d+)_(?P<submission>\d+)_(?P<rest>.+)")
METADATA = "submission_metadata.yml"  # Gradescope's note
_PLACEHOLDERS = ("points possible", "student, test")  # rows of Canvas that are no student


def handed_in_by(name: str) -> str:
    """The student's part of a file or folder named by Moodle or Canvas, with the number that tells namesakes apart; else "".

    >>> handed_in_by("Anna Berg_4711_assignsubmission_file_"), handed_in_by("berganna_LATE_4711_98765_sheet.ipynb")
    ('Anna Berg_4711', 'berganna_4711')
    """
    found = _MOODLE.fullmatch(name) or _CANVAS.fullmatch(name)
    return f"{found['name']}_{found['number']}" if found else ""


@dataclass(frozen=True)
class Roster:
    """The export: its columns, and its lines as they are, students and others."""

    columns: tuple[str, ...]
    lines: tuple[Mapping[str, str], ...]

    @classmethod
    def read(cls, path: Path) -> Roster:
        """Raises ValueError, with one sentence, for what is no such export."""
        columns, lines = read_csv("roster", path)
        stripped = [{c: cell.strip() for c, cell in line.items()} for line in lines]
        roster = cls(columns, tuple(line for line in stripped if any(line.values())))
        known = [c for c in columns if _key(c) in _NAMES | _NUMBERS]
        if not known or not roster.students:
            raise ValueError(
                "roster must be the export of Moodle, Canvas or Gradescope, with a column of names, numbers or addresses, "
                f"but {str(path)!r} has {', '.join(columns[:6]) or 'none'}"
            )
        return roster

    @property
    def students(self) -> tuple[int, ...]:
        """The numbers of the lines that are a student's."""
        return tuple(i for i, line in enumerate(self.lines) if not _is_placeholder(line))

    def find(self, student: str) -> int | None:
        """The number of the student's line; None if there is none, or more than one.

        student: as submissions are named: a number, an address or part of it, a name in either order, or what Moodle and
        Canvas make of them.
        """
        name, _, number = student.rpartition("_")
        by_number = [i for i in self.students if number and number in _numbers(self.lines[i])]
        if name and number.isdigit() and len(by_number) == 1:
            return by_number[0]
        wanted = {_plain(student), _plain(name)} - {""}
        found = [i for i in self.students if wanted & _names(self.lines[i])]
        return found[0] if len(found) == 1 else None

    def who(self, line: int) -> str:
        """What a student is called whatever else the export says: the least of the numbers, or of the names."""
        return min(_numbers(self.lines[line]) or _names(self.lines[line]))

    def missing(self, students: Iterable[str]) -> list[str]:
        """Who of the roster has handed in nothing, as the first columns call them."""
        there = {self.find(s) for s in students}
        return [" ".join(list(self.lines[i].values())[:2]) for i in self.students if i not in there]

    def filled_in(
        self, sets: Mapping[str, int], points: Mapping[str, Mapping[str, str]]
    ) -> tuple[list[str], list[dict[str, str]]]:
        """The export's columns and lines, for the system to take back: with a number for each set, where there is one.

        sets: name and points of each. points: by student, then set. A set has a column of its own, and in Canvas' line of
        possible points what it is worth; a Moodle grading worksheet has its own ``Grade``, if there is one set.
        """
        sheet = "Grade" in self.columns and len(sets) == 1
        column = {name: "Grade" if sheet else f"problem set {name}" for name in sets}
        of = {self.find(student): given for student, given in points.items()}
        lines = []
        for i, line in enumerate(self.lines):
            possible = _key(next(iter(line.values()))) == "points possible"
            mine = {name: str(n) for name, n in sets.items()} if possible else of.get(i, {})
            numbers = {column[s]: p for s, p in mine.items() if s in column and re.fullmatch(r"[\d.]+", p)}
            lines.append({**line, **numbers})
        return list(dict.fromkeys([*self.columns, *column.values()])), lines


def read_csv(what: str, path: Path) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """The columns and lines of a CSV file, whatever stands between its cells. Raises ValueError: ``what`` must be one."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        separator = max(",;\t", key=text.partition("\n")[0].count)
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
        columns = tuple(reader.fieldnames or ())
        return columns, [{c: line.get(c) or "" for c in columns} for line in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{what} must be a CSV file in UTF-8, but {str(path)!r} is not: {error}") from None


def submitters(folder: Path) -> dict[str, str]:
    """Whose each folder of Gradescope's export is, where it has noted that: the address, or else the id or name."""
    try:
        text = (folder / METADATA).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    found = {}
    for block in re.split(r"^(?=submission_\d+:)", text, flags=re.M):
        said = dict(
            reversed(re.findall(r"^\s*-?\s*:(name|sid|email):\s*['\"]?(.+?)['\"]?\s*$", block, flags=re.M))
        )
        if block.startswith("submission_") and said:
            found[block.partition(":")[0]] = said.get("email") or said.get("sid") or said["name"]
    return found


def feedback_name(submission: str) -> str:
    """How the feedback on a file must be called for Moodle and Canvas to take it in bulk; "" for a name of neither.

    >>> feedback_name("Anna Berg_4711_assignsubmission_file_/x.ipynb"), feedback_name("berganna_4711_98765_sheet.ipynb")
    ('Anna Berg_4711_assignsubmission_file_/feedback.html', 'berganna_4711_98765_sheet.html')
    """
    first, _, rest = submission.partition("/")
    if _MOODLE.fullmatch(first):
        return f"{first}/feedback.html" if rest else f"{Path(first).stem}.html"
    return f"{Path(first).stem}.html" if _CANVAS.fullmatch(first) else ""


_NAMES = {
    "full name", "name", "student", "first name", "last name", "surname", "email address", "email", "username",
    "sis login id", "login id",
}  # fmt: skip
_NUMBERS = {"identifier", "id", "id number", "sis user id", "sid", "student id"}


def _key(column: str) -> str:
    return " ".join(column.casefold().split())


def _is_placeholder(line: Mapping[str, str]) -> bool:
    return _key(next(iter(line.values()))).startswith(_PLACEHOLDERS)


def _numbers(line: Mapping[str, str]) -> set[str]:
    return {line[c].removeprefix("Participant ") for c in line if _key(c) in _NUMBERS and line[c]}


def _names(line: Mapping[str, str]) -> set[str]:
    """All that a student of this line may be called, without spaces, signs or accents."""
    by = {_key(c): line[c] for c in line}
    first, last = by.get("first name", ""), by.get("last name", "") or by.get("surname", "")
    said = [by[k] for k in by if k in _NAMES - {"first name", "last name", "surname"}]
    said += [f"{first} {last}", f"{last} {first}"] if first and last else []
    for name in [s for s in said if "@" not in s]:
        head, comma, tail = name.partition(",")  # Canvas: Berg, Anna
        said.append(f"{tail} {head}" if comma else " ".join(reversed(name.split(maxsplit=1))))
    said += [s.partition("@")[0] for s in said if "@" in s]
    return {_plain(s) for s in [*said, *_numbers(line)]} - {""}


def _plain(name: str) -> str:
    letters = unicodedata.normalize("NFKD", name).casefold()
    return "".join(c for c in letters if c.isalnum())
