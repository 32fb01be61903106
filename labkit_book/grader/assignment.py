"""A problem set as an assignment of nbgrader, for courses that have it.

    python -m labkit_book.grader.assignment B --out COURSE/source/failures

writes ``b_exercises.ipynb`` there: each answer a solution cell, each check a locked test with the exercise's points and
hidden questions of other seeds, each answer in words a cell that a person grades. After that it is nbgrader's (``nbgrader
generate_assignment failures``, and so on). What this gives up: nbgrader runs answer, judge and check in one process, so it
has none of our isolation.

Source: nbgrader's documentation, *Creating and grading assignments* (cell metadata of schema version 3; regions of solutions
and hidden tests).
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit_book.grader.submission import released_path
from labkit_book.problems.catalogue import exercise_set
from labkit_book.problems.exercise import Exercise

_CHECK = re.compile(r"""^(\w+) = check\(\s*["']([\w.]+-\d+)["'](?:,\s*(\w+))?\)""", re.M)


def _assignment(notebook: dict[str, Any], name: str, seeds: Sequence[int]) -> dict[str, Any]:
    """The released notebook of set ``name`` with nbgrader's metadata. seeds: of the hidden questions.

    Raises ValueError where an exercise of the set has no cell for its answer or no check.
    """
    made, exercises = copy.deepcopy(notebook), exercise_set(name)
    answers, checks = set(), set()
    for cell in made["cells"]:
        source = "".join(cell["source"])
        marks = [t.removeprefix("exercise-") for t in cell["metadata"].get("tags", [])]
        for id in (mark for mark in marks if mark in exercises):
            answers.add(id)
            cell["source"] = _answer_inplace(cell, source, exercises[id])
        found = _CHECK.search(source) if cell["cell_type"] == "code" else None
        if found and found[2] in exercises:
            checks.add(found[2])
            if not exercises[found[2]].rubric:
                _metadata_inplace(cell, f"check-{found[2]}", exercises[found[2]].points)
                cell["source"] = source + _hidden(found[1], found[2], found[3], seeds)
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    if lacking := set(exercises) - answers | set(exercises) - checks:
        raise ValueError(f"the notebook must have an answer and a check of {sorted(lacking)[0]}, and has not")
    return made


def _answer_inplace(cell: dict[str, Any], source: str, exercise: Exercise) -> str:
    """Mark the cell of an answer; its new source. One that is filled in where it stands keeps its form, and no mark."""
    id = f"exercise-{exercise.id}"
    if exercise.rubric:
        _metadata_inplace(cell, id, exercise.points, solution=True)
        return source
    body = re.search(r"^( +)\.\.\.[ \t]*$", source, re.M)
    if not body:
        return source
    _metadata_inplace(cell, id, None, solution=True)
    region = f"{body[1]}### BEGIN SOLUTION\n{body[0]}\n{body[1]}### END SOLUTION"
    return source[: body.start()] + region + source[body.end() :]


def _metadata_inplace(cell: dict[str, Any], id: str, points: int | None, solution: bool = False) -> None:
    """points: what the cell is graded for; None: it is not."""
    said = {"schema_version": 3, "grade_id": id.replace(".", "-"), "grade": points is not None, "solution": solution,
            "locked": not solution, "task": False}  # fmt: skip
    cell["metadata"]["nbgrader"] = said if points is None else said | {"points": points}


def _hidden(verdict: str, id: str, answer: str, seeds: Sequence[int]) -> str:
    return f"""
### BEGIN HIDDEN TESTS
from labkit_book.problems import check as _check
for _seed in {list(seeds)!r}:
    _found = _check({id!r}, {answer}, seed=_seed)
    assert _found.status == "right", _found
### END HIDDEN TESTS
assert {verdict}.status == "right", {verdict}"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    said = "Write a problem set as an assignment of nbgrader."
    parser = argparse.ArgumentParser(prog="python -m labkit_book.grader.assignment", description=said)
    add = parser.add_argument
    add("name", metavar="SET", help="the problem set, as 10.3")
    add("--out", required=True, metavar="DIR", help="the assignment's folder, as COURSE/source/sync")
    add("--notebooks", default="notebooks/exercises", metavar="DIR", help="the released problem sets")
    args = parser.parse_args(argv)
    path, out = released_path(args.name, args.notebooks), Path(args.out)
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        made = _assignment(notebook, args.name, [secrets.randbits(64) for _ in range(3)])
        out.mkdir(parents=True, exist_ok=True)
        (out / path.name).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except (ValueError, OSError) as error:
        print(f"labkit_book.grader.assignment: {error}", file=sys.stderr)
        return 2
    print(f"{out / path.name}: next, `nbgrader generate_assignment {out.name}` in the course's folder")
    return 0


if __name__ == "__main__":
    sys.exit(main())
