"""The grader's command: ``python -m labkit_book.grader SUBMISSION... --key tests/problems [--out DIR]``.

It tests itself, grades every submission, and exits with 0 only if each has a row and the grader failed on none.
Standard output is the table; progress and everything else goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from labkit import checks, machine
from labkit_book.grader.batch import Graders, Plan, flag_all, sandbox
from labkit_book.grader.collect import Submission, collect
from labkit_book.grader.isolation import Limits
from labkit_book.grader.key import Key
from labkit_book.grader.outcome import Row
from labkit_book.grader.report import table, write_reports
from labkit_book.grader.store import Results, seed_of_run
from labkit_book.grader.submission import released_path
from labkit_book.problems.asking import CASE_S, EXERCISE_S, GraderFailure
from labkit_book.problems.catalogue import exercise_set

OK, GRADER_ERROR, USAGE, STOPPED, INTERRUPTED = 0, 1, 2, 3, 130

_Opens = Callable[[Plan], AbstractContextManager[Any]]
_T = TypeVar("_T")


def main(argv: Sequence[str] | None = None, core: _Opens = sandbox) -> int:
    """Run the command; returns the exit status. core: what runs an answer (tests bring one of their own)."""
    args = _parser().parse_args(argv)
    try:
        return _grade(args, core)
    except ValueError as error:
        _note(f"labkit_book.grader: {error}")
        return USAGE
    except GraderFailure as error:
        _note(f"GRADER_ERROR: the grader cannot work here, nothing was graded: {error}")
        return GRADER_ERROR
    except BrokenPipeError:  # the table's reader has left, as `head` does; everything is stored by then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        _note(f"labkit_book.grader: {error}; what is stored stays, and the next run takes it up")
        return STOPPED
    except KeyboardInterrupt:
        kept = "run the same command again, and it goes on from here"
        again = kept if args.out else "without --out nothing was kept"
        _note(f"\nlabkit_book.grader: interrupted; {again}")
        return INTERRUPTED


def _hidden(folders: Sequence[Path]) -> tuple[str, ...]:
    """Those of the folders in which Python itself is not: covering that one would leave no answer anything to run with."""
    found = [f.resolve() for f in folders if f.exists()]
    needed = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), Path(__file__).resolve()]
    return tuple(str(f) for f in found if not any(p.is_relative_to(f) for p in needed))


def _grade(args: argparse.Namespace, core: _Opens) -> int:
    if not args.submissions or not args.key:
        raise ValueError(
            "give notebooks or folders of them, and --key, the folder with the key (tests/problems)"
        )
    with tempfile.TemporaryDirectory(prefix="labkit-unpacked-") as folder:
        unpacked = Path(folder)
        submissions = collect(args.submissions, skip=[args.out] if args.out else [], into=unpacked)
        if not submissions:
            raise ValueError(f"there is nothing to grade in {', '.join(args.submissions)}")
        plan = _plan(args, core, unpacked)
        rows = _graded(args, plan, submissions)
    if rows is None:
        return GRADER_ERROR
    _report(args, plan, rows)
    complete = {s.name for s in submissions} <= {r.submission for r in rows}
    return OK if complete and not any(r.failed for r in rows) else GRADER_ERROR


def _plan(args: argparse.Namespace, core: _Opens, unpacked: Path) -> Plan:
    """What the command's options ask for. unpacked: the folder with the contents of archives."""
    if args.seed is not None:
        checks.integer("seed", args.seed)
    notebooks = _notebooks(args)
    sets = tuple(name for name in Key.sets(args.key) if released_path(name, notebooks).exists())
    for name in args.set:
        checks.one_of("set", name, sets)
    if not sets:
        raise ValueError(
            f"notebooks must be the folder with the released notebooks of the sets, not {str(notebooks)!r}"
        )
    case_s = min(args.exercise_s, max(CASE_S, args.exercise_s / 3))
    ours = [args.out] if args.out else []
    return Plan(
        args.key,
        notebooks,
        sets,
        seed_of_run(args.out, args.seed),
        core,
        asked=tuple(name for name in sets if name in args.set),
        hide=_hidden([args.key, *ours, unpacked, *map(Path, args.submissions)]),
        limits=Limits(exercise_s=args.exercise_s, case_s=case_s),
        trust=args.trust,
        submission_s=args.submission_s,
    )


def _notebooks(args: argparse.Namespace) -> Path:
    """The folder with the released problem sets: the one that was named, or that beside the key, or here."""
    beside = Path(args.key.resolve().parents[1], "notebooks", "exercises")
    return args.notebooks or (beside if beside.is_dir() else Path("notebooks/exercises"))


def _graded(args: argparse.Namespace, plan: Plan, submissions: list[Submission]) -> list[Row] | None:
    """The rows of all submissions, those stored by an earlier run among them; None where the self-test finds something."""
    _note(f"{len(submissions)} submissions, {args.jobs} at a time")
    if plan.seed < 1 << 64:
        _note(
            "the questions of a seed as short as this can be found by searching: for a grade that counts, give none"
        )
    if unknown := set(args.again) - {s.student for s in submissions}:
        raise ValueError(f"there is no submission of {sorted(unknown)[0]!r} to grade again")
    results = Results.of(args.out, plan) if args.out else None
    done = _stored(results, [s for s in submissions if s.student not in args.again])
    left = [s for s in submissions if s.name not in done]
    plan = replace(plan, sets=plan.met_by(left))
    with Graders(plan, args.jobs) as graders:
        if left and not _passes_its_test(plan, graders):
            return None
        for s, rows in _progress("graded", len(left), graders.grade(left)):
            if results:
                results.save(s, rows)
            done[s.name] = rows
    return flag_all([row for s in submissions for row in done[s.name]])


def _stored(results: Results | None, submissions: Iterable[Submission]) -> dict[str, list[Row]]:
    """The rows that an earlier run has stored, by the submission's name."""
    loaded = {s.name: results.load(s) for s in submissions} if results else {}
    found = {name: rows for name, rows in loaded.items() if rows}
    if found:
        _note(f"{len(found)} of them are graded already")
    return found


def _passes_its_test(plan: Plan, graders: Graders) -> bool:
    """Whether the grader judges the key rightly; what it does not is said."""
    asked = [name for name in plan.sets if name in (plan.asked or plan.sets)]
    ids = [id for name in asked for id in exercise_set(name)]
    tested = _progress("self-test", len(ids), graders.selftest(ids))
    found = dict.fromkeys(f"GRADER_ERROR: {said}" for _, problems in tested for said in problems)
    if found:
        _note("\n".join(found))
        _note("The grader does not judge its own key rightly on this machine, so nothing was graded.")
    return not found


def _report(args: argparse.Namespace, plan: Plan, rows: list[Row]) -> None:
    """Write the files, print the table, and say what is left to do."""
    isolation = sorted({e.isolation for r in rows for e in r.exercises if e.isolation})
    open_door = any("hiding files" in words for words in isolation)
    if args.out:
        about = {"seed": plan.seed, "sets": sorted({r.set for r in rows if r.set}), "isolation": isolation,
                 "trust": open_door, "machine": machine.describe()}  # fmt: skip
        write_reports(rows, args.out, about)
    if open_door:
        print(
            "NOT ISOLATED: nothing kept these answers from the machine's files, the key among them (--trust)"
        )
    print(table(rows), flush=True)
    for words in isolation:
        _note(f"isolation: {words}")
    if waiting := sum(r.waiting for r in rows):
        _note(f"{waiting} of {len(rows)} rows wait for a human: ? in the table, and the answers in feedback/")
    if args.out:
        _note(f"gradebook.csv, grades.json and feedback/ are in {args.out}")
    if failed := sum(r.failed for r in rows):
        _note(f"GRADER_ERROR on {failed} rows: run the same command again to try these once more")


def _progress(what: str, of: int, coming: Iterable[_T]) -> Iterator[_T]:
    """What comes, and how far it is: on one line of a terminal; in a log, a line now and then."""
    begun = said = time.monotonic()
    terminal = sys.stderr.isatty()
    for n, one in enumerate(coming, 1):
        yield one
        now = time.monotonic()
        if terminal:
            left = (now - begun) / n * (of - n)
            print(f"\r{what} {n} of {of}, {left:.0f} s left \x1b[K", end="", file=sys.stderr, flush=True)
        elif now - said > 10:
            said = now
            _note(f"{what} {n} of {of}")
    if of:
        line = f"{what} {of} of {of} in {time.monotonic() - begun:.1f} s"
        _note(f"\r{line}\x1b[K" if terminal else line)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m labkit_book.grader",
        description="Grade notebooks. Exits with 0 only if every submission has a row and the grader failed on none.",
    )
    add = parser.add_argument
    # fmt: off
    add("submissions", nargs="*", metavar="SUBMISSION",
        help="a notebook, a folder with an entry per student, or an archive of such a folder (.zip)")
    add("--key", type=Path, help="the folder with the key: tests/problems, or a copy with questions of your own")
    add("--out", type=Path, metavar="DIR",
        help="where results, reports and feedback pages go; an interrupted run goes on there")
    add("--notebooks", type=Path, metavar="DIR",
        help="the released problem sets (default: notebooks/exercises beside the key, or else here)")
    add("--jobs", type=int, default=machine.cores(), metavar="N", help="graders at the same time (default: the cores)")
    add("--set", action="append", default=[], metavar="NAME",
        help="grade this problem set only, as 10.3; may be repeated (default: all that are found)")
    add("--exercise-s", type=float, default=EXERCISE_S, metavar="S",
        help=f"seconds for one exercise (default {EXERCISE_S:g}, which is what the notebook's check says)")
    add("--submission-s", type=float, default=300.0, metavar="S",
        help="seconds for one notebook, after which what is left is TIMEOUT (default 300)")
    add("--trust", action="store_true", help="go on where the machine can hide no files from answers")
    add("--seed", type=int, help="of the questions (default: that of the run in DIR, or a new one)")
    add("--again", action="append", default=[], metavar="STUDENT", help="grade this student again; may be repeated")
    # fmt: on
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a ^C
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal may not show every character
    sys.exit(main())
