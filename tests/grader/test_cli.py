"""The command, from a folder of notebooks to exit status and reports, and the instructors' guide, every line of it."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import grading_fakes as f
import pytest

from labkit_book.grader import __main__ as cli
from labkit_book.grader import batch
from labkit_book.grader.__main__ import GRADER_ERROR, INTERRUPTED, OK, STOPPED, USAGE, main
from labkit_book.grader.results import STATUSES, Record
from labkit_book.problems.asking import GraderFailure

GUIDE = f.ROOT / "book" / "instructors.md"


def command(*args):
    return main(["--key", str(f.KEY), "--jobs", "1", *map(str, args)])


def totals(out):
    with (out / "gradebook.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = {line["submission"]: line for line in csv.DictReader(file)}
    return {k: (v["set"].removeprefix("set "), v["points"], v["status"]) for k, v in lines.items()}


def recorded(out):
    """All rows of the record."""
    lines = [json.loads(line) for line in (out / "grades.jsonl").read_text().splitlines() if line]
    return [row for line in lines for row in line.get("rows", [])]


@pytest.fixture
def folder(tmp_path):
    f.write(tmp_path / "in" / "anna.ipynb", f.answered("2.2", {"2.2-2": f.SSP, "2.2-1": "All wait."}))
    f.write(tmp_path / "in" / "bob" / "2_2 (1).ipynb", f.answered("2.2", {"2.2-3": f.OVERLAP}))
    (tmp_path / "in" / "carla.ipynb").write_text("")
    return tmp_path / "in"


@pytest.fixture
def open_(monkeypatch):
    """Answers run without walls, in processes of the grader's."""
    f.without_walls(monkeypatch)


@pytest.fixture
def quick(open_, monkeypatch):
    f.in_one_process(monkeypatch)


@pytest.mark.processes
@f.needs_walls
def test_a_class_is_graded_behind_walls_and_everybody_has_a_row(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(batch, "selftest", lambda key, id, zygote: ())  # which has tests of its own
    folder, out = tmp_path / "in", tmp_path / "out"
    lie = "import numpy, builtins\nnumpy.isclose = numpy.allclose = lambda *a, **k: True\n"
    forged = f.answered("2.2", {"2.2-3": lie + f.OVERLAP_WRONG})
    forged["cells"].append(f.code("print('18 of 18 points')"))
    f.write(folder / "forged.ipynb", forged)
    f.write(folder / "leaves.ipynb", f.answered("2.2", {"2.2-3": "import os\nos._exit(0)\n" + f.OVERLAP}))
    f.write(folder / "right.ipynb", f.answered("2.2", {"2.2-2": f.SSP, "2.2-3": f.OVERLAP}))
    f.write(folder / "typo.ipynb", f.answered("2.2", {"2.2-3": "def overlapped_step(p, a, L, m, h)\n"}))
    (folder / "typo").mkdir()
    (folder / "half.ipynb").write_text('{"nbformat": 4, "cells": [')
    (folder / "conftest.py").write_text("raise SystemExit")
    assert command(folder, "--out", out, "--seed", "3") == OK
    rows = recorded(out)
    each = {r["submission"]: {e["id"][-1]: e["status"] for e in r["exercises"]} for r in rows}
    status = {r["submission"]: each[r["submission"]] or r["status"] for r in rows}
    assert status["forged.ipynb"]["3"] == "WRONG" and status["leaves.ipynb"]["3"] == "NO_RESULT"
    assert [status["right.ipynb"][i] for i in "23"] == ["PASS"] * 2 and status["typo.ipynb"]["3"] == "ERROR"
    assert {status[name] for name in ("half.ipynb", "typo", "conftest.py")} == {"UNREADABLE"}
    assert len(rows) == 7
    said = capsys.readouterr()
    assert "7 submissions, 1 at a time" in said.err and "found by searching" in said.err
    assert re.search(r"^right +2\.2 ", said.out, re.M) and "NO WALLS" not in said.out
    assert "18 of 18" not in said.out + (out / "feedback" / "forged.html").read_text()
    assert command(folder / "right.ipynb", "--trust", "--out", out) == OK
    assert capsys.readouterr().out.startswith("NO WALLS")


def test_a_run_is_taken_up_where_it_was_and_only_what_changed_is_graded(
    quick, folder, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "out"
    assert command(folder, "--out", out) == OK
    first = totals(out)
    answered = {"anna.ipynb": ("2.2", "4", "graded"), "bob/2_2 (1).ipynb": ("2.2", "3", "graded")}
    assert first == answered | {"carla.ipynb": ("", "", "UNREADABLE")}
    seed = Record(out, None, []).seed
    capsys.readouterr()
    with monkeypatch.context() as no_grader:
        none = lambda work, tasks, *_: [] if not tasks else pytest.fail("nothing is left")  # noqa: E731
        no_grader.setattr(batch, "in_processes", none)
        assert command(folder, "--out", out) == OK
    assert "3 of them are graded already" in capsys.readouterr().err and totals(out) == first
    f.write(folder / "bob" / "2_2 (1).ipynb", f.answered("2.2", {"2.2-3": f.OVERLAP_WRONG}))
    assert command(folder, "--out", out) == OK
    assert "2 of them are graded already" in capsys.readouterr().err
    # Four parts of five are right.
    assert totals(out) == first | {"bob/2_2 (1).ipynb": ("2.2", "2", "graded")}
    assert Record(out, None, []).seed == seed


def test_a_grader_that_fails_its_own_test_or_has_no_walls_grades_nobody(
    quick, folder, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "out"
    f.without_walls(monkeypatch, selftest=lambda key, id, zygote: [f"a mutant of {id} gets full marks"])
    assert command(folder, "--out", out) == GRADER_ERROR
    assert "a mutant of 2.2-1 gets full marks" in capsys.readouterr().err

    def require_walls():
        raise GraderFailure("no walls here")

    monkeypatch.setattr(cli, "require_walls", require_walls)
    assert command(folder, "--out", out) == GRADER_ERROR
    assert "nothing was graded: no walls here" in capsys.readouterr().err
    assert not recorded(out) and not (out / "gradebook.csv").exists()


def test_no_answer_sees_the_key_the_results_or_what_others_handed_in(quick, folder, tmp_path, monkeypatch):
    plans = []
    monkeypatch.setattr(cli, "Graders", lambda plan, jobs: plans.append(plan) or batch.Graders(plan, jobs))
    assert command(folder, "--out", tmp_path / "out") == OK
    assert {f.KEY, folder, tmp_path / "out"} <= set(plans[0].hide)


def test_a_grader_that_dies_on_a_submission_has_a_row_for_it_and_exits_with_an_error(
    open_, folder, tmp_path, capsys
):
    f.write(folder / "dan.ipynb", f.answered("2.2", {"2.2-3": "# THE GRADER DIES\n" + f.OVERLAP}))
    assert command(folder, "--out", tmp_path / "out") == GRADER_ERROR
    got = totals(tmp_path / "out")
    assert got["dan.ipynb"][2] == "GRADER_ERROR" and got["anna.ipynb"] == ("2.2", "4", "graded")
    assert "run the same command again" in capsys.readouterr().err


def test_a_full_disk_is_a_sentence_and_keeps_what_is_there(quick, folder, tmp_path, monkeypatch, capsys):
    append, count = Record._append, []

    def full(self, said):
        count.append(said)
        if len(count) > 2:
            raise OSError(28, "No space left on device")
        append(self, said)

    monkeypatch.setattr(Record, "_append", full)
    assert command(folder, "--out", tmp_path / "out") == STOPPED
    assert "No space left on device" in capsys.readouterr().err and len(recorded(tmp_path / "out")) == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_no_process_and_goes_on_when_run_again(quick, started, tmp_path, how):
    for i in range(6):
        slow = "# SLOW\n" if i > 1 else ""
        f.write(tmp_path / "in" / f"s{i}.ipynb", f.answered("2.2", {"2.2-3": slow + f.OVERLAP}))
    args = [str(tmp_path / "in"), "--key", str(f.KEY), "--out", str(tmp_path / "out"), "--jobs", "2"]
    script = tmp_path / "run.py"
    script.write_text(
        f"import sys; sys.path[:0] = {[str(f.ROOT), str(Path(f.__file__).parent)]!r}\n"
        "import grading_fakes as f, pytest\nfrom labkit_book.grader.__main__ import main\n"
        f"f.without_walls(pytest.MonkeyPatch())\nsys.exit(main({args!r}))"
    )
    out = tmp_path / "out"
    with started([sys.executable, script], env={**os.environ, "SLOW_S": "20"}, stderr=subprocess.PIPE) as run:
        while not ((out / "grades.jsonl").exists() and recorded(out)):
            assert run.poll() is None, run.stderr.read()
            time.sleep(0.02)
        run.send_signal(how)
        said = run.communicate(timeout=15)[1]  # until every process that has this pipe is gone
    assert run.returncode == (INTERRUPTED if how == signal.SIGINT else -how)
    assert how == signal.SIGKILL or "interrupted; run the same command again" in said
    there = [row["submission"] for row in recorded(out)]
    assert 0 < len(there) < 6
    assert main(args) == OK
    assert [row["submission"] for row in recorded(out)][: len(there)] == there and len(totals(out)) == 6


@pytest.mark.parametrize("args, why", [
    (("nowhere",), "nowhere' cannot be read"),
    (("EMPTY",), "nothing to grade"),
    (("IN", "--key", "EMPTY"), "key must be a folder"),
    (("IN", "--exercise-s", "0"), "exercise_s must be a finite number > 0"),
    (("IN", "--jobs", "0"), "jobs must be a whole number >= 1"),
    (("IN", "--seed", "-1"), "seed must be a whole number >= 0, got -1"),
])  # fmt: skip
def test_a_wrong_call_is_refused_in_a_sentence(folder, tmp_path, args, why, capsys):
    (tmp_path / "empty").mkdir()
    names = {"EMPTY": str(tmp_path / "empty"), "IN": str(folder)}
    assert command(*(names.get(a, a) for a in args), "--out", tmp_path / "out") == USAGE
    said = capsys.readouterr().err.splitlines()[-1]
    assert why in said and said.startswith("labkit_book.grader: ")


def test_a_terminal_that_cannot_show_a_name_is_no_obstacle(quick, tmp_path):
    f.write(tmp_path / "in" / "Zoë 王.ipynb", f.answered("2.2", {"2.2-1": "All wait."}))
    assert command(tmp_path / "in", "--out", tmp_path) == OK  # so nothing is left to be graded
    again = [tmp_path / "in", "--out", tmp_path, "--key", f.KEY]
    env = {**os.environ, "PYTHONPATH": str(f.ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "labkit_book.grader", *again], env=env, capture_output=True)
    assert done.returncode == OK and b"Zo? ?" in done.stdout, done.stderr


# -- the guide --


def test_every_command_of_the_guide_does_what_it_says(quick, folder, tmp_path, monkeypatch):
    commands = re.findall(r"^\$ python (.+)$", GUIDE.read_text(), re.M)
    assert len(commands) >= 5
    folder.rename(tmp_path / "submissions")
    for name in ("tests", "notebooks", "labkit", "labkit_book", "book"):
        (tmp_path / name).symlink_to(f.ROOT / name)
    monkeypatch.chdir(tmp_path)
    for line in commands:
        words = shlex.split(line)
        if words[:2] == ["-m", "labkit_book.grader"]:
            assert main([*words[2:], "--jobs", "1"]) == OK, line
        else:
            env = {**os.environ, "PYTHONPATH": str(f.ROOT)}
            assert subprocess.run([sys.executable, *words], env=env).returncode == 0, line
    assert totals(Path("results"))["anna.ipynb"] == ("2.2", "4", "graded")
    assert (tmp_path / "handout.zip").stat().st_size > 1000


def test_the_guides_example_of_an_exercise_runs_and_every_status_and_file_is_in_the_guide():
    text = GUIDE.read_text()
    space: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(block, space)
    assert len(space["mutants"]) == 4
    assert all(f"| `{s}` |" in text for s in STATUSES)
    assert all(f"`{name}`" in text for name in ("gradebook.csv", "grades.jsonl", "feedback/"))
