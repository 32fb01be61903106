"""A problem set as an assignment of nbgrader: ``python -m labkit_book.grader.assignment B --out COURSE/source/failures``.

Each answer becomes a solution cell, each check a locked test with the exercise's points and hidden questions of other
seeds, whose least points nbgrader takes as the cell's; each answer in words a cell that a person grades (nbgrader's
documentation, *Creating and grading assignments*). It runs answer and judge in one process, so it has no walls.
"""

import argparse
import json
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit_book.grader.submission import released_path
from labkit_book.problems.catalogue import exercise_set

_CHECK = re.compile(r"""^\w+ = check\(\s*["']([\w.]+-\d+)["'](?:,\s*(\w+))?\)""", re.M)
_HIDDEN = """
### BEGIN HIDDEN TESTS
from labkit_book.problems import check as _check
min(_check({id!r}, {answer}, seed=_seed).points for _seed in {seeds!r})
### END HIDDEN TESTS"""


def assign_inplace(nb: dict[str, Any], name: str, seeds: Sequence[int]) -> None:
    """Give the released notebook of set ``name`` nbgrader's metadata. Raises ValueError where it lacks a cell."""
    exercises = exercise_set(name)
    lacking = {f"{what} of {id}" for id in exercises for what in ("the answer", "the check")}
    for cell in nb["cells"]:
        source = cell["source"] = "".join(cell["source"])
        tags = cell["metadata"].get("tags", [])
        for id in [id for id in exercises if f"exercise-{id}" in tags]:
            body = re.search(r"^( +)\.\.\.[ \t]*$", source, re.M)
            lacking.discard(f"the answer of {id}")
            if exercises[id].rubric:
                _mark_inplace(cell, f"exercise-{id}", exercises[id].points, solution=True)
            elif body:  # one that is filled in where it stands keeps its form, and no mark
                _mark_inplace(cell, f"exercise-{id}", None, solution=True)
                region = f"{body[1]}### BEGIN SOLUTION\n{body[0]}\n{body[1]}### END SOLUTION"
                cell["source"] = source[: body.start()] + region + source[body.end() :]
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
            for id, answer in _CHECK.findall(source):
                lacking.discard(f"the check of {id}")
                if not exercises[id].rubric:
                    _mark_inplace(cell, f"check-{id}", exercises[id].points)
                    cell["source"] += _HIDDEN.format(seeds=list(seeds), id=id, answer=answer)
    if lacking:
        raise ValueError(f"the notebook lacks {min(lacking)}")


def _mark_inplace(cell: dict[str, Any], id: str, points: int | None, solution: bool = False) -> None:
    """points: what the cell is graded for; None: it is not."""
    said = {"schema_version": 3, "grade_id": id.replace(".", "-"), "grade": points is not None}
    said |= {"solution": solution, "locked": not solution, "task": False}
    cell["metadata"]["nbgrader"] = said if points is None else said | {"points": points}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(description="Write a problem set as an assignment of nbgrader.")
    parser.add_argument("name", metavar="SET", help="the problem set, as 10.3")
    parser.add_argument("--out", type=Path, required=True, help="the assignment's, as COURSE/source/sync")
    parser.add_argument("--notebooks", default="notebooks/exercises", help="the released problem sets")
    args = parser.parse_args(argv)
    path = released_path(args.name, args.notebooks)
    try:
        nb = json.loads(path.read_text(encoding="utf-8"))
        assign_inplace(nb, args.name, [secrets.randbits(64) for _ in range(3)])
        args.out.mkdir(parents=True, exist_ok=True)
        (made := args.out / path.name).write_text(json.dumps(nb, indent=1) + "\n")
    except (ValueError, OSError) as error:
        print(f"labkit_book.grader.assignment: {error}", file=sys.stderr)
        return 2
    print(f"{made}: next, `nbgrader generate_assignment {args.out.name}` in the course's folder")
    return 0


if __name__ == "__main__":
    sys.exit(main())
