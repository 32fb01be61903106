"""The command, from a folder of notebooks to exit status and reports, and the instructors' guide, every line of it."""

from __future__ import annotations

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

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import grading_fakes as f

from labkit_book.grader import __main__ as cli
from labkit_book.grader import batch
from labkit_book.grader.__main__ import GRADER_ERROR, INTERRUPTED, OK, STOPPED, USAGE, main
from labkit_book.grader.outcome import STATUSES

GUIDE = f.ROOT / "book" / "instructors.md"


def command(*args, core=f.fake):
    return main([str(a) for a in args] + ["--key", str(f.KEY), "--jobs", "1"], core)


def totals(out):
    with (out / "gradebook.csv").open(encoding="utf-8-sig", newline="") as file:
        return {
            line["submission"]: (line["set"].removeprefix("set "), line["points"], line["status"])
            for line in csv.DictReader(file)
        }


@pytest.fixture
def folder(tmp_path):
    f.write(tmp_path / "in" / "anna.ipynb", f.answered("2.2", {"2.2-2": f.SSP, "2.2-6": "All wait."}))
    f.write(tmp_path / "in" / "bob" / "2_2 (1).ipynb", f.answered("2.2", {"2.2-3": f.OVERLAP}))
    (tmp_path / "in" / "carla.ipynb").write_text("")
    return tmp_path / "in"


@pytest.fixture
def quick(monkeypatch):
    f.in_one_process(monkeypatch)


@pytest.mark.processes
def test_a_class_is_graded_behind_walls_and_everybody_has_a_row(tmp_path, capsys):
    folder, out = tmp_path / "in", tmp_path / "out"
    forged = f.answered(
        "2.2",
        {
            "2.2-3": "import numpy, builtins\nnumpy.isclose = numpy.allclose = lambda *a, **k: True\n"
            + f.OVERLAP_WRONG
        },
    )
    forged["cells"].append(f.code("print('18 of 18 points')"))
    f.write(folder / "forged.ipynb", forged)
    f.write(folder / "leaves.ipynb", f.answered("2.2", {"2.2-3": "import os\nos._exit(0)\n" + f.OVERLAP}))
    f.write(folder / "right.ipynb", f.answered("2.2", {"2.2-2": f.SSP, "2.2-3": f.OVERLAP, "2.2-4": f.BLAME}))
    f.write(folder / "typo.ipynb", f.answered("2.2", {"2.2-3": "def overlapped_step(p, a, L, m, h)\n"}))
    (folder / "typo").mkdir()
    (folder / "half.ipynb").write_text('{"nbformat": 4, "cells": [')
    (folder / "conftest.py").write_text("raise SystemExit")
    assert command(folder, "--out", out, "--seed", "3", core=f.walled) == OK
    rows = json.loads((out / "grades.json").read_text())["rows"]
    status = {
        r["submission"]: {e["id"][-1]: e["status"] for e in r["exercises"]} or r["status"] for r in rows
    }
    assert status["forged.ipynb"]["3"] == "WRONG" and status["leaves.ipynb"]["3"] == "NO_RESULT"
    assert [status["right.ipynb"][i] for i in "234"] == ["PASS"] * 3 and status["typo.ipynb"]["3"] == "ERROR"
    assert {status[name] for name in ("half.ipynb", "typo", "conftest.py")} == {"UNREADABLE"} and len(
        rows
    ) == 7
    said = capsys.readouterr()
    assert (
        "isolation: " in said.err
        and "7 submissions, 1 at a time" in said.err
        and "found by searching" in said.err
        and re.search(r"^right +2\.2 ", said.out, re.M)
    )
    assert "18 of 18" not in said.out + (out / "feedback" / "forged.html").read_text()


def test_a_run_is_taken_up_where_it_was_and_only_what_changed_is_graded(quick, folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert command(folder, "--out", out) == OK
    first = totals(out)
    assert first == {
        "anna.ipynb": ("2.2", "4", "graded"),
        "bob/2_2 (1).ipynb": ("2.2", "3", "graded"),
        "carla.ipynb": ("", "", "UNREADABLE"),
    }
    seed = json.loads((out / "run.json").read_text())["seed"]
    capsys.readouterr()
    assert command(folder, "--out", out, core=f.does_not_open) == OK, "nothing left: no grader is needed"
    assert "3 of them are graded already" in capsys.readouterr().err and totals(out) == first
    f.write(folder / "bob" / "2_2 (1).ipynb", f.answered("2.2", {"2.2-3": f.OVERLAP_WRONG}))
    assert command(folder, "--out", out, "--again", "anna") == OK
    assert "1 of them are graded already" in capsys.readouterr().err
    assert totals(out) == first | {"bob/2_2 (1).ipynb": ("2.2", "0", "graded")}
    assert json.loads((out / "grades.json").read_text())["about"]["seed"] == seed


def test_a_grader_that_fails_its_own_test_or_cannot_open_grades_nobody(quick, folder, tmp_path, capsys):
    assert command(folder, "--out", tmp_path / "out", core=f.fails_its_test) == GRADER_ERROR
    assert "GRADER_ERROR: a mutant of 2.2-1 gets full marks" in capsys.readouterr().err
    assert command(folder, "--out", tmp_path / "out", core=f.does_not_open) == GRADER_ERROR
    assert "nothing was graded: RuntimeError: no sandbox here" in capsys.readouterr().err
    assert not (tmp_path / "out" / "results").exists() and not (tmp_path / "out" / "grades.csv").exists()


def test_no_answer_sees_the_key_the_results_or_what_others_handed_in(tmp_path):
    folders = [tmp_path / "key", tmp_path / "results"]
    for each in folders:
        each.mkdir()
    hidden = cli._hidden([*folders, tmp_path / "not there", Path(sys.prefix), Path("/")])
    assert hidden == tuple(str(each) for each in folders), "Python's own folders must stay"
    with batch.sandbox(batch.Plan(f.KEY, f.RELEASED, (), 5, f.fake, hide=hidden)) as core:
        assert set(hidden) <= set(core.zygote._hide)


def test_a_grader_that_dies_on_a_submission_has_a_row_for_it_and_exits_with_an_error(
    folder, tmp_path, capsys
):
    f.write(folder / "dan.ipynb", f.answered("2.2", {"2.2-3": "# THE GRADER DIES\n" + f.OVERLAP}))
    assert command(folder, "--out", tmp_path / "out") == GRADER_ERROR
    got = totals(tmp_path / "out")
    assert got["dan.ipynb"][2] == "GRADER_ERROR" and got["anna.ipynb"] == ("2.2", "4", "graded")
    assert "run the same command again" in capsys.readouterr().err


def test_a_full_disk_is_a_sentence_and_keeps_what_is_there(quick, folder, tmp_path, monkeypatch, capsys):
    from labkit_book.grader import store

    whole, count = store.write_whole, []

    def full(path, text):
        if path.parent.name == "results":
            count.append(path)
            if len(count) > 1:
                raise OSError(28, "No space left on device")
        whole(path, text)

    monkeypatch.setattr(store, "write_whole", full)
    assert command(folder, "--out", tmp_path / "out") == STOPPED
    assert "No space left on device" in capsys.readouterr().err
    assert len(list((tmp_path / "out" / "results").iterdir())) == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_no_process_and_goes_on_when_run_again(quick, started, tmp_path, how):
    for i in range(6):
        slow = "# SLOW\n" if i > 1 else ""
        f.write(tmp_path / "in" / f"s{i}.ipynb", f.answered("2.2", {"2.2-3": slow + f.OVERLAP}))
    args = [str(tmp_path / "in"), "--key", str(f.KEY), "--out", str(tmp_path / "out"), "--jobs", "2"]
    code = f"import sys; sys.path[:0] = {[str(f.ROOT), str(Path(f.__file__).parent)]!r}; import grading_fakes as f; "
    code += f"from labkit_book.grader.__main__ import main\nif __name__ == '__main__': sys.exit(main({args!r}, f.fake))"
    script = tmp_path / "run.py"
    script.write_text(code)
    env = {**os.environ, "SLOW_S": "20"}
    results = tmp_path / "out" / "results"
    with started([sys.executable, script], env=env, stderr=subprocess.PIPE) as run:
        while not (results.exists() and any(not p.name.startswith(".") for p in results.iterdir())):
            assert run.poll() is None, run.stderr.read()
            time.sleep(0.02)
        run.send_signal(how)
        said = run.communicate(timeout=60)[1]  # until every process that has this pipe is gone
    assert run.returncode == (INTERRUPTED if how == signal.SIGINT else -how)
    assert how == signal.SIGKILL or "interrupted; run the same command again" in said
    there = {p.name for p in results.glob("*.json")}
    assert 0 < len(there) < 6
    for path in results.glob("*.json"):
        json.loads(path.read_text())
    assert main(args, f.fake) == OK
    assert there < {p.name for p in results.glob("*.json")} and len(totals(tmp_path / "out")) == 6


@pytest.mark.parametrize(
    "args, why",
    [
        ((), "give notebooks or folders"),
        (("nowhere",), "there is no 'nowhere'"),
        (("EMPTY",), "nothing to grade"),
        (("IN", "--notebooks", "EMPTY"), "folder with the released notebooks"),
        (("IN", "--again", "zoe"), "no submission of 'zoe'"),
        (("IN", "--jobs", "0"), "jobs must be a whole number >= 1"),
        (("IN", "--seed", "-1"), "seed must be a whole number >= 0, got -1"),
    ],
)
def test_a_wrong_call_is_refused_in_a_sentence(folder, tmp_path, args, why, capsys):
    (tmp_path / "empty").mkdir()
    names = {"EMPTY": str(tmp_path / "empty"), "IN": str(folder)}
    assert main([*(["--key", str(f.KEY)] if args else []), *(names.get(a, a) for a in args)], f.fake) == USAGE
    said = capsys.readouterr().err
    assert why in said.splitlines()[-1] and said.splitlines()[-1].startswith("labkit_book.grader: ")


def test_nothing_is_kept_without_out(quick, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert command(folder) == OK
    assert sorted(tmp_path.rglob("*")) == before


def test_a_terminal_that_cannot_show_a_name_is_no_obstacle(quick, tmp_path):
    f.write(tmp_path / "in" / "Zoë 王.ipynb", f.answered("2.2", {"2.2-6": "All wait."}))
    assert command(tmp_path / "in", "--out", tmp_path) == OK  # so nothing is left to be graded
    again = [tmp_path / "in", "--out", tmp_path, "--key", f.KEY]
    done = subprocess.run(
        [sys.executable, "-m", "labkit_book.grader", *again],
        env={**os.environ, "PYTHONPATH": str(f.ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
    )
    assert done.returncode == OK and b"Zo? ?" in done.stdout, done.stderr


# -- the guide --


def test_every_command_of_the_guide_does_what_it_says(quick, tmp_path, monkeypatch, capsys):
    commands = re.findall(r"^\$ python (.+)$", GUIDE.read_text(), re.M)
    assert len(commands) >= 6
    f.write(
        tmp_path / "submissions" / "anna.ipynb", f.answered("2.2", {"2.2-2": f.SSP, "2.2-6": "All wait."})
    )
    f.write(tmp_path / "submissions" / "bob" / "2_2 (1).ipynb", f.answered("2.2", {"2.2-3": f.OVERLAP}))
    for name in ("tests", "notebooks", "labkit", "labkit_book", "book"):
        (tmp_path / name).symlink_to(f.ROOT / name)
    monkeypatch.chdir(tmp_path)
    for line in commands:
        words = shlex.split(line)
        if words[:2] == ["-m", "labkit_book.grader"]:
            assert main([*words[2:], "--jobs", "1"], f.fake) == OK, line
        elif (
            words[0] != "book/tools/objectives.py"
        ):  # which tests/book/test_coverage.py has: it writes into the tree
            env = {**os.environ, "PYTHONPATH": str(f.ROOT)}
            assert subprocess.run([sys.executable, *words], env=env).returncode == 0, line
    assert totals(Path("results"))["anna.ipynb"] == ("2.2", "4", "graded"), "also after --again"
    assert (tmp_path / "handout.zip").stat().st_size > 1000


def test_the_guides_example_of_an_exercise_runs_and_every_status_and_file_is_in_the_guide(tmp_path):
    text = GUIDE.read_text()
    space: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(block, space)
    assert len(space["mutants"]) == 4
    assert all(f"| `{s}` |" in text for s in STATUSES)
    for name in ("gradebook.csv", "grades.json", "feedback/"):
        assert f"`{name}`" in text
