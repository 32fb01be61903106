"""The grader's command, ``python -m labkit_book.grader``. Standard output is the table, standard error all the rest."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from labkit import checks, machine
from labkit_book.grader.batch import Graders, Plan, flag_all
from labkit_book.grader.collect import Submission, collect
from labkit_book.grader.key import Key
from labkit_book.grader.results import Record, Row, table, write_reports
from labkit_book.grader.submission import released_path
from labkit_book.grader.zygote import Limits, require_walls
from labkit_book.problems.asking import CASE_S, EXERCISE_S, GraderFailure

_NO_WALLS = "NO WALLS: nothing kept these answers from the machine's files, the key among them (--trust)"
OK, GRADER_ERROR, USAGE, STOPPED, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        submissions = collect(args.submissions, skip=args.out)
        if not submissions:
            raise ValueError(f"there is nothing to grade in {', '.join(args.submissions)}")
        plan, record = _plan(args)
        rows = _graded(plan, record, submissions, checks.integer("jobs", args.jobs, 1))
        write_reports(rows, args.out)
        if plan.trust:
            print(_NO_WALLS)
        print(table(rows), flush=True)
        waiting, failed = (sum(r.has(status) for r in rows) for status in ("NEEDS_HUMAN", "GRADER_ERROR"))
        _note(f"{waiting} of {len(rows)} rows wait for a human: ? in the table, and the answers in feedback/")
        _note(f"gradebook.csv, feedback/ and grades.jsonl are in {args.out}")
        if failed:
            _note(f"GRADER_ERROR on {failed} rows: run the same command again to try these once more")
        return GRADER_ERROR if failed else OK
    except ValueError as error:
        return _note(f"labkit_book.grader: {error}", USAGE)
    except GraderFailure as error:
        return _note(f"GRADER_ERROR: the grader cannot work here, nothing was graded: {error}", GRADER_ERROR)
    except OSError as error:
        _note(f"labkit_book.grader: {error}; what is stored stays, and the next run takes it up")
        return STOPPED
    except KeyboardInterrupt:
        _note("\nlabkit_book.grader: interrupted; run the same command again, and it goes on from here")
        return INTERRUPTED


def _plan(args: argparse.Namespace) -> tuple[Plan, Record]:
    """What the command's options ask for, and what is recorded of it."""
    if args.seed is not None:
        checks.integer("seed", args.seed)
    beside = Path(args.key.resolve().parents[1], "notebooks", "exercises")
    notebooks = beside if beside.is_dir() else Path("notebooks/exercises")
    sets = tuple(name for name in Key.sets(args.key) if released_path(name, notebooks).exists())
    if not sets:
        wanted = "a folder with key_*.py, as tests/problems, whose released notebooks lie beside it, or here"
        raise ValueError(f"key must be {wanted}, not {str(args.key)!r}")
    s = checks.number("exercise_s", args.exercise_s, above=0, most=1e9)
    limits = Limits(exercise_s=s, case_s=min(s, max(CASE_S, s / 3)))
    files = [*args.key.glob("key_*.py"), *notebooks.glob("*.ipynb")]
    record = Record(args.out, args.seed, files, limits=vars(limits), trust=args.trust)
    hide = (args.key, args.out, *map(Path, args.submissions))
    return Plan(args.key, notebooks, sets, record.seed, hide, limits, args.trust), record


def _graded(plan: Plan, record: Record, submissions: list[Submission], jobs: int) -> list[Row]:
    """The rows of all submissions, those stored by an earlier run among them. Raises GraderFailure."""
    if plan.seed < 1 << 64:
        _note("questions of a seed so short can be found by searching: for a grade that counts, give none")
    done = {s.name: rows for s in submissions if (rows := record.load(s))}
    _note(f"{len(submissions)} submissions, {jobs} at a time; {len(done)} of them are graded already")
    left = [s for s in submissions if s.name not in done]
    graders = Graders(plan, jobs)
    if left and not plan.trust:
        require_walls()
    graders.only(left)
    if found := list(graders.selftest()):
        raise GraderFailure("it does not judge its own key rightly on this machine:\n" + "\n".join(found))
    for n, (s, rows) in enumerate(graders.grade(left), 1):
        record.save(s, rows)
        done[s.name] = rows
        if n % 10 == 0:
            _note(f"graded {n} of {len(left)}")
    return flag_all([row for s in submissions for row in done[s.name]])


def _note(text: str, status: int = OK) -> int:
    print(text, file=sys.stderr, flush=True)
    return status


def _parser() -> argparse.ArgumentParser:
    about = "Grade notebooks. Exits with 0 only if every submission has a row and the grader failed on none."
    parser = argparse.ArgumentParser("python -m labkit_book.grader", description=about)
    add = parser.add_argument
    # fmt: off
    add("submissions", nargs="+", metavar="SUBMISSION", help="a notebook, or a folder with an entry per student")
    add("--key", type=Path, required=True, help="tests/problems, or a copy with questions of your own")
    add("--out", type=Path, default=Path("results"), metavar="DIR",
        help="where the record, the gradebook and feedback pages go (default: results); an interrupted run goes on there")
    add("--jobs", type=int, default=machine.cores(), metavar="N", help="submissions at the same time (default: the cores)")
    add("--exercise-s", type=float, default=EXERCISE_S, metavar="S",
        help=f"seconds for one exercise (default {EXERCISE_S:g}, which is what the notebook's check says)")
    add("--trust", action="store_true", help="without walls: answers run as you, and can read and change what you can")
    add("--seed", type=int, help="of the questions (default: that of the run in DIR, or a new one)")
    # fmt: on
    return parser


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal may not show every character
    sys.exit(main())
