"""A key of your own, outside the repository: ``python -m labkit.grade.template 10.5 --out KEYS`` writes where to begin.

``key_10_5.py`` there has every exercise with the function to be written, and empty tables of mistakes, of questions that
nobody has seen, and of what to look for in words. Fill it in, and let the grader's test of itself say what is missing:

    python -m labkit.grade some_notebook.ipynb --key KEYS
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from labkit.grade.submission import Released

_HEAD = '''"""Private key of problem set {name}.

The grader takes each solution's source to an answer's process, so imports of judges (labkit.exercises) are for HIDDEN alone.
"""

from __future__ import annotations

import numpy as np

from labkit.exercises import Case, close, same_array
'''
_TABLES = """

# -- tables -----------------------------------------------------------------------------------------------------------

# The solution of each exercise: full points, or the grader grades nobody.
SOLUTIONS = {{
{solutions}}}

# Wrong answers that a student might give, one of each exercise at least: none may get full points.
MUTANTS = {{
{mutants}}}

# Your own questions, asked after those of labkit: of each exercise that should have some, a function of a generator, as
#     def more(rng):
#         x = rng.standard_normal(5)
#         yield Case((x,), lambda answer: same_array(answer, np.sort(x)), label="five numbers")
HIDDEN = {{}}

# Of each exercise in words what a good answer contains, a line for each of its criteria.
LOOK_FOR = {{
{look_for}}}
"""


def _template(book: Released) -> str:
    """A key to be filled in, as Python."""
    exercises = book.exercises.values()
    judged, words = [e for e in exercises if not e.rubric], [e for e in exercises if e.rubric]
    names = {e.id: book.stubs[e.id].name for e in judged}
    tables = _TABLES.format(
        solutions="".join(f'    "{id}": {name},\n' for id, name in names.items()),
        mutants="".join(f'    "{e.id}": [],\n' for e in judged),
        look_for="".join(f'    "{e.id}": [],  # {"; ".join(what for what, _ in e.rubric)}\n' for e in words),
    )
    return _HEAD.format(name=book.name) + "".join(_answers(book)) + tables


def _answers(book: Released) -> Iterator[str]:
    for e in book.exercises.values():
        if not e.rubric:
            yield f"\n\n# -- {e.id}: {e.title} ({e.kind}, {e.points} points)\n\n{book.stubs[e.id].source.strip()}\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    said = "Begin a key of your own, in a folder outside the repository."
    parser = argparse.ArgumentParser(prog="python -m labkit.grade.template", description=said)
    add = parser.add_argument
    add("name", metavar="SET", help="the problem set, as 10.3")
    add("--out", type=Path, required=True, metavar="DIR", help="the folder of your keys")
    add("--notebooks", default="notebooks/exercises", metavar="DIR", help="the released problem sets")
    args = parser.parse_args(argv)
    path = args.out / f"key_{args.name.replace('.', '_')}.py"
    try:
        text = _template(Released.load(args.name, args.notebooks))
        args.out.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:  # never over a key that is there
            file.write(text)
    except (ValueError, OSError) as error:
        print(f"labkit.grade.template: {error}", file=sys.stderr)
        return 2
    print(f"{path}: fill it in; the grader's test of itself says what is missing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
