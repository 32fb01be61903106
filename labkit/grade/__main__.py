"""The grader's command: ``python -m labkit.grade SUBMISSION... --key tests/exercises [--out DIR]``.

It tests itself, grades every submission, and exits with 0 only if each has a row and the grader failed on none.
Standard output is the table; progress and everything else goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit import machine
from labkit.grade.batch import (
    Core,
    Plan,
    Row,
    flag_duplicates,
    grade_all,
    graders,
    key_sets,
    sandbox,
    self_test,
    which_sets,
)
from labkit.grade.collect import Submission, collect
from labkit.grade.crew import Crew, CrewError
from labkit.grade.marks import load_marks, read_marks, save_marks, with_marks
from labkit.grade.report import say, table, write_reports
from labkit.grade.store import Store, digest, read_rows, seed_of_run
from labkit.grade.submission import released_path

OK, GRADER_ERROR, USAGE, STOPPED, INTERRUPTED = 0, 1, 2, 3, 130

Opens = Callable[[tuple[str, ...]], AbstractContextManager[Core]]


def main(argv: Sequence[str] | None = None, core: Opens = sandbox) -> int:
    """Run the command; returns the exit status. core: what runs an answer (tests bring one of their own)."""
    args = _parser().parse_args(argv)
    try:
        return _merge(args) if args.merge else _grade(args, core)
    except ValueError as error:
        say(f"labkit.grade: {error}", sys.stderr)
        return USAGE
    except CrewError as error:
        say(f"GRADER_ERROR: the grader cannot work here, nothing was graded: {error}", sys.stderr)
        return GRADER_ERROR
    except BrokenPipeError:  # the table's reader has left, as `head` does; everything is stored by then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        say(f"labkit.grade: {error}; what is stored stays, and the next run takes it up", sys.stderr)
        return STOPPED
    except KeyboardInterrupt:
        again = (
            "run the same command again, and it goes on from here"
            if args.out
            else "without --out nothing was kept"
        )
        say(f"\nlabkit.grade: interrupted; {again}", sys.stderr)
        return INTERRUPTED


def _hidden(folders: Sequence[Path]) -> tuple[str, ...]:
    """Those of the folders in which Python itself is not: covering that one would leave no answer anything to run with."""
    found = [f.resolve() for f in folders if f.is_dir()]
    needed = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), Path(__file__).resolve()]
    return tuple(str(f) for f in found if not any(p.is_relative_to(f) for p in needed))


def _grade(args: argparse.Namespace, core: Opens) -> int:
    if not args.submissions or not args.key:
        raise ValueError(
            "give notebooks or folders of them, and --key, the folder with the key (tests/exercises)"
        )
    if args.seed is not None and args.seed < 0:
        raise ValueError(f"seed must be a whole number >= 0, not {args.seed}")
    key, out = Path(args.key), Path(args.out) if args.out else None
    notebooks = (
        Path(args.notebooks) if args.notebooks else key.resolve().parents[1] / "notebooks" / "exercises"
    )
    sets = tuple(name for name in key_sets(key) if released_path(name, notebooks).exists())
    if not sets:
        raise ValueError(
            f"notebooks must be the folder with the released notebooks of the sets, not {str(notebooks)!r}"
        )
    submissions = collect(args.submissions, skip=[out] if out else [])
    if not submissions:
        raise ValueError(f"there is nothing to grade in {', '.join(map(str, args.submissions))}")
    private = [key, *([out] if out else []), *(Path(s) for s in args.submissions)]
    plan = Plan(key, notebooks, sets, seed_of_run(out, args.seed), core, _hidden(private))
    say(f"{len(submissions)} submissions, seed {plan.seed}, {args.jobs} at a time", sys.stderr)
    store = Store(out, digest(plan)) if out else None
    done = _done(submissions, store, args.again)
    left = [s for s in submissions if s.name not in done]
    plan = replace(plan, sets=which_sets(left, plan))
    with graders(plan, args.jobs) as crew:
        if left and not _passes(plan.sets, crew):
            return GRADER_ERROR
        _grade_left(left, done, crew, store)
    rows = flag_duplicates([row for s in submissions for row in done[s.name]])
    if out:
        rows = with_marks(rows, load_marks(out))
    about = _about(plan, rows)
    if out:
        write_reports(rows, out, about)
    return _conclude(rows, submissions, out, about)


def _passes(sets: Sequence[str], crew: Crew) -> bool:
    """Whether the self-test finds nothing; says what it found otherwise."""
    progress = _Progress("self-test", len(sets))
    problems = []
    for name, found in self_test(sets, crew):
        problems += [f"GRADER_ERROR: set {name}: {p}" for p in found]
        progress.step()
    progress.end()
    for p in problems:
        say(p, sys.stderr)
    if problems:
        say(
            "The grader does not judge its own key rightly on this machine, so nothing was graded.",
            sys.stderr,
        )
    return not problems


def _done(submissions: list[Submission], store: Store | None, again: Sequence[str]) -> dict[str, list[Row]]:
    """The rows of all submissions that an earlier run has graded, by name; without those to be graded again."""
    unknown = set(again) - {s.student for s in submissions}
    if unknown:
        raise ValueError(f"there is no submission of {sorted(unknown)[0]!r} to grade again")
    stored = {s.name: store.load(s) for s in submissions if s.student not in again} if store else {}
    done = {name: rows for name, rows in stored.items() if rows}
    if done:
        say(f"{len(done)} of them are graded already", sys.stderr)
    return done


def _grade_left(left: list[Submission], done: dict[str, list[Row]], crew: Crew, store: Store | None) -> None:
    """Grade what is left, and put it into ``done`` and into the store as it comes."""
    progress = _Progress("graded", len(left))
    for s, rows in grade_all(left, crew):
        if store:
            store.save(s, rows)
        done[s.name] = rows
        progress.step()
    progress.end()


def _about(plan: Plan, rows: Sequence[Row]) -> dict[str, Any]:
    isolation = sorted({e.isolation for r in rows for e in r.exercises if e.isolation})
    sets = sorted({r.set for r in rows if r.set})
    return {"seed": plan.seed, "sets": sets, "isolation": isolation, "machine": machine.describe()}


def _conclude(rows: list[Row], submissions: list[Submission], out: Path | None, about: dict[str, Any]) -> int:
    say(table(rows))
    for words in about["isolation"]:
        say(f"isolation: {words}", sys.stderr)
    waiting, failed = sum(r.waiting for r in rows), [r for r in rows if r.failed]
    if waiting:
        where = f": see {out / 'to_mark.csv'}" if out else ""
        say(f"{waiting} of {len(rows)} rows wait for a human{where}", sys.stderr)
    if out:
        say(f"grades.csv, exercises.csv, gradebook.csv, grades.json and feedback/ are in {out}", sys.stderr)
    if failed:
        say(
            f"GRADER_ERROR on {len(failed)} rows: run the same command again to try these once more",
            sys.stderr,
        )
    return (
        OK if not failed and {s.name for s in submissions} <= {r.submission for r in rows} else GRADER_ERROR
    )


def _merge(args: argparse.Namespace) -> int:
    if not args.out or args.submissions:
        raise ValueError(
            "--merge wants --out, the folder of results that the points belong to, and no submissions"
        )
    out = Path(args.out)
    rows, about = read_rows(out)
    new = read_marks(Path(args.merge), rows)
    marks = {**load_marks(out), **new}
    rows = with_marks(rows, marks)
    save_marks(marks, out)
    write_reports(rows, out, about)
    say(
        f"points for {len(new)} exercises merged; {sum(r.waiting for r in rows)} rows still wait for a human",
        sys.stderr,
    )
    say(table(rows))
    return OK


class _Progress:
    """How far it is, on one line of a terminal; in a log, a line now and then."""

    def __init__(self, what: str, of: int) -> None:
        self.what, self.of, self.done = what, of, 0
        self.begun = self.said = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def step(self) -> None:
        self.done += 1
        now = time.monotonic()
        if self.terminal:
            left = (now - self.begun) / self.done * (self.of - self.done)
            print(
                f"\r{self.what} {self.done} of {self.of}, {left:.0f} s left \x1b[K",
                end="",
                file=sys.stderr,
                flush=True,
            )
        elif now - self.said > 10:
            self.said = now
            say(f"{self.what} {self.done} of {self.of}", sys.stderr)

    def end(self) -> None:
        if self.of:
            line = f"{self.what} {self.done} of {self.of} in {time.monotonic() - self.begun:.1f} s"
            say(f"\r{line}\x1b[K" if self.terminal else line, sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m labkit.grade",
        description="Grade notebooks. Exits with 0 only if every submission has a row and the grader failed on none.",
    )
    add = parser.add_argument
    add(
        "submissions",
        nargs="*",
        metavar="SUBMISSION",
        help="a notebook, or a folder with an entry per student",
    )
    add("--key", help="the folder with the key, as tests/exercises")
    add(
        "--out",
        metavar="DIR",
        help="where results, reports and feedback pages go; an interrupted run goes on there",
    )
    add(
        "--notebooks",
        metavar="DIR",
        help="the released problem sets (default: notebooks/exercises beside the key)",
    )
    add(
        "--jobs",
        type=int,
        default=machine.cores(),
        metavar="N",
        help="graders at the same time (default: the cores)",
    )
    add("--seed", type=int, help="of the questions (default: that of the run in DIR, or a new one)")
    add(
        "--again",
        action="append",
        default=[],
        metavar="STUDENT",
        help="grade this student again; may be repeated",
    )
    add(
        "--merge",
        metavar="CSV",
        help="put the points that a person gave (to_mark.csv, filled in) into the results in DIR",
    )
    return parser


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)  # a polite kill is a ^C
    sys.exit(main())
