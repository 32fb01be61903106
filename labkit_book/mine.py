"""A student's own answers, taken up again: what a problem set's notebook holds, if it is right."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from labkit_book.grader.collect import read_cells
from labkit_book.grader.submission import Released, released_path
from labkit_book.problems.check import check


def mine(id: str, *names: str, folder: Path | str = ".") -> Any:
    """Your answer to exercise ``id``, from your notebook of its problem set in ``folder``; None where ``check`` does not
    find it right. It runs here, after those cells of your notebook that it needs.

    names: what else the answer's cell defines and is wanted in place of the answer; then a tuple of these.
    """
    of, space = id.partition("-")[0], dict[str, Any](__name__=f"labkit_book.mine.{id}")
    try:
        answer = Released.load(of, folder).answer(read_cells(released_path(of, folder)), id)
        with redirect_stdout(StringIO()):
            for source in (answer.setup, *(source for _, source in answer.cells), answer.source):
                exec(source, space)
    except Exception:  # there is no such notebook, or it does not run
        return None
    right = check(id, space.get(answer.name)).status == "right"
    return (tuple(space[name] for name in names) if names else space[answer.name]) if right else None
