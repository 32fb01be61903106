"""A row for every submission, whatever happens; reports that hold what students wrote without obeying it."""

from __future__ import annotations

import csv
import html.parser
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import grading_fakes as f
from pool_worker import does_not_open, does_not_open_or_say_why, worker

from labkit_book.grader import batch
from labkit_book.grader.batch import Plan, _grade_submission, flag_all
from labkit_book.grader.collect import Submission
from labkit_book.grader.feedback import _page, write_pages
from labkit_book.grader.isolation import Isolation
from labkit_book.grader.key import Key
from labkit_book.grader.outcome import Outcome, Row
from labkit_book.grader.pool import Lost, Pool
from labkit_book.grader.report import safe, table, write_reports
from labkit_book.grader.store import Results, seed_of_run, write_whole
from labkit_book.grader.submission import Released
from labkit_book.problems import find
from labkit_book.problems.asking import GraderFailure

SETS = ("2.2", "10.3")
BOOKS = [Released.load(name, f.RELEASED) for name in SETS]
KEYS = {name: Key.load(f.KEY, name) for name in SETS}


def graded(path, nb=None, student="anna", problem="", **more):
    if nb is not None:
        f.write(path, nb)
    plan = Plan(f.KEY, f.RELEASED, SETS, 5, f.fake, **more)
    submission = Submission(student, path.name, path, problem)
    return _grade_submission(submission, BOOKS, KEYS.__getitem__, f.Core(), plan)


# -- one submission --


def test_each_exercise_has_its_status_points_and_message(tmp_path):
    nb = f.answered(
        "2.2",
        {
            "2.2-2": f.SSP,
            "2.2-3": f.OVERLAP_WRONG,
            "2.2-4": "def blame(a):\n    return rank",
            "2.2-6": "Wait.",
        },
    )
    f.mine(nb, "2.2-5")["source"] = "mine = {'data': 1}"
    (row,) = graded(tmp_path / "x.ipynb", nb)
    assert {e.id[-1]: e.status for e in row.exercises} == {
        "1": "NO_RESULT", "2": "PASS", "3": "WRONG", "4": "WRONG", "5": "NEEDS_HUMAN", "6": "NEEDS_HUMAN",
    }  # fmt: skip
    assert (row.points, row.of, row.waiting, row.failed) == (4, 18, True, False)
    assert all(e.message for e in row.exercises if e.status != "PASS")
    assert "Look" not in row.exercises[5].message and "Everybody waits" in row.exercises[5].log


def test_what_an_answer_uses_from_other_cells_comes_with_it(tmp_path):
    nb = f.answered("2.2", {"2.2-3": f.OVERLAP.replace("max(", "longer(")})
    nb["cells"].insert(1, f.code("import math as m\n1 / 0  # no part of it"))
    nb["cells"].append(
        f.code("@keep\ndef longer(*s):\n    return m.fsum([most(s)])\nlonger.seen = print('x')")
    )
    nb["cells"].append(f.code("most = min"))
    nb["cells"].append(f.code("def keep(g): return g\nfor most in (min, max): pass"))
    (row,) = graded(tmp_path / "x.ipynb", nb)
    assert row.exercises[2].status == "ERROR", "keep is defined below its use: so it is in the notebook"
    nb["cells"][-1]["source"], nb["cells"][-3]["source"] = (
        nb["cells"][-3]["source"],
        nb["cells"][-1]["source"],
    )
    (row,) = graded(tmp_path / "x.ipynb", nb)
    assert row.exercises[2].status == "WRONG", "the last most is min"
    nb["cells"][-2]["source"] = "most = max"
    (row,) = graded(tmp_path / "x.ipynb", nb)
    assert row.exercises[2].status == "PASS", row.exercises[2]


def test_only_what_is_asked_for_is_graded_and_labs_are_no_problem_sets(tmp_path):
    asked = {"asked": ("10.3",)}
    nb = f.answered("2.2", {"2.2-3": f.OVERLAP})
    (row,) = graded(tmp_path / "x.ipynb", nb, **asked)
    assert row.status == "LEFT_OUT" and "2.2 was not asked for" in row.message and not row.waiting
    lab = json.loads((f.RELEASED.parent / "10_3_synchronous_sgd.ipynb").read_text())
    (row,) = graded(tmp_path / "y.ipynb", lab)
    assert row.status == "LEFT_OUT" and "10_3_synchronous_sgd" in row.message
    both = nb | {"cells": nb["cells"] + f.released("10.3")["cells"]}
    assert [r.set for r in graded(tmp_path / "z.ipynb", both, **asked)] == ["10.3"]
    assert "2 files were left out" in table([row, row])


def test_one_notebook_has_its_time_and_the_rest_of_it_a_row(tmp_path, monkeypatch):
    monkeypatch.setenv("SLOW_S", "2.5")
    nb = f.answered("2.2", {"2.2-2": "# SLOW\n" + f.SSP, "2.2-3": f.OVERLAP, "2.2-4": f.BLAME})
    (row,) = graded(tmp_path / "x.ipynb", nb, submission_s=2.0)
    assert [e.status for e in row.exercises[1:4]] == ["PASS", "TIMEOUT", "TIMEOUT"]
    assert "all the time that there is" in row.exercises[2].message and not row.failed


def test_a_machine_that_hides_nothing_grades_nobody_unless_told_to_trust(monkeypatch):
    class Open:
        isolation = Isolation(filter=True)

        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(batch, "Zygote", Open)
    plan = Plan(f.KEY, f.RELEASED, SETS, 5, f.fake)
    with pytest.raises(GraderFailure, match="give --trust"), batch.sandbox(plan):
        pass
    with batch.sandbox(replace(plan, trust=True)) as core:
        assert core.zygote.isolation.filter


def test_what_cannot_be_read_or_told_has_a_row_that_says_why(tmp_path):
    (tmp_path / "x.ipynb").write_text("{")
    assert [(r.status, r.set) for r in graded(tmp_path / "x.ipynb")] == [("UNREADABLE", "")]
    assert graded(tmp_path / "y.ipynb")[0].status == "UNREADABLE"
    assert graded(tmp_path / "z", problem="this is a link")[0].message == "this is a link"
    assert (
        graded(tmp_path / "w.ipynb", {"nbformat": 4, "cells": [f.markdown("hi")]})[0].status == "NEEDS_HUMAN"
    )


def test_a_grader_that_fails_on_one_answer_says_so_and_judges_the_others(tmp_path):
    nb = f.answered("2.2", {"2.2-3": "# THE GRADER FAILS\n" + f.OVERLAP, "2.2-2": f.SSP})
    (row,) = graded(tmp_path / "x.ipynb", nb)
    assert row.failed and row.exercises[1].status == "PASS"
    assert row.exercises[2].status == "GRADER_ERROR" and "out of cheese" in row.exercises[2].log
    assert "cheese" not in row.exercises[2].message


def test_questions_are_the_same_for_all_students_of_a_run_other_with_another_seed_and_hidden_ones_follow():
    key = Key.load(f.KEY, "2.2")

    def asked(seed, key=key):
        return [c.args[0] for c in key.questions(find("2.2-4"), seed)]

    assert all(np.array_equal(a, b) for a, b in zip(asked(1), asked(1), strict=True))
    assert not np.array_equal(asked(1)[0], asked(2)[0])
    assert len(asked(1)) > len(asked(1, replace(key, hidden={})))


def test_two_submissions_of_one_student_for_one_set_are_both_there_and_flagged():
    rows = [
        Row("anna", "a", "2.2"),
        Row("anna", "b", "2.2"),
        Row("anna", "c", "10.3"),
        Row("bob", "d", "2.2"),
    ]
    assert [r.flags for r in flag_all(rows)] == [
        ("also handed in: b",),
        ("also handed in: a",),
        (),
        (),
    ]


def test_what_a_person_should_look_at_is_flagged():
    def row(status, message):
        return Row("a", "a", "2.2", exercises=(Outcome("2.2-2", "", status, 0, 2, message),))

    withheld = row("WRONG", "labkit.collectives.ring.bytes is what you are asked to write")
    assert flag_all([withheld])[0].flags == ("called what was to be written in 2.2-2",)
    assert "by force" in flag_all([row("KILLED", "too much")])[0].flags[0]
    assert flag_all([row("WRONG", "too large")])[0].flags == ()


def test_the_key_folder_says_which_sets_there_are():
    assert "10.10" not in Key.sets(f.KEY)[:3] and set(Key.sets(f.KEY)) >= {"2.2", "10.3", "B"}
    with pytest.raises(ValueError, match="key must be a folder"):
        Key.sets(f.RELEASED)


# -- the pool --


def test_a_grader_that_dies_hangs_or_raises_loses_no_task(tmp_path):
    mark = str(tmp_path / "mark")
    tasks = [("a", ""), ("die once", mark), ("die", mark), ("raise", ""), ("hang", ""), ("b", "")]
    with Pool(worker, 2, limit_s=1.0) as pool:
        got = dict(pool.work_off(tasks))
        assert sorted(got) == [0, 1, 2, 3, 4, 5]
        assert [got[i][0] for i in (0, 1, 5)] == ["a", "die once", "b"]
        assert "exit code 3" in got[2].why and "RuntimeError: no" in got[3].why and "after 1 s" in got[4].why
        assert all(isinstance(got[i], Lost) for i in (2, 3, 4))
        again = dict(pool.work_off([("c", ""), ("d", "")]))
        assert {a for a, _ in again.values()} == {"c", "d"}
        pids = [w.process.pid for w in pool._workers]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert list(Pool(worker, 1).work_off([])) == []


def test_a_grader_that_cannot_open_stops_the_batch_in_a_sentence():
    with pytest.raises(GraderFailure, match="RuntimeError: no sandbox here"), Pool(does_not_open, 2) as pool:
        list(pool.work_off([1, 2, 3]))
    with pytest.raises(GraderFailure, match=r"^Unspeakable$"), Pool(does_not_open_or_say_why, 1) as pool:
        list(pool.work_off([1]))
    with pytest.raises(ValueError, match="jobs must be a whole number >= 1, got 0"):
        Pool(worker, 0)


# -- the store --


def test_a_result_is_found_again_only_for_the_same_file_key_and_seed_and_only_whole(tmp_path):
    path = f.write(tmp_path / "x.ipynb", f.answered("2.2", {"2.2-3": f.OVERLAP}))
    s = Submission("anna", "x.ipynb", path)
    rows = graded(s.path)
    store = Results.of(tmp_path / "out", Plan(f.KEY, f.RELEASED, ("2.2",), 5, f.fake))
    assert store.load(s) is None
    store.save(s, rows)
    assert store.load(s) == rows
    assert store.load(Submission("bob", "x.ipynb", path)) is None
    other = Results.of(tmp_path / "out", Plan(f.KEY, f.RELEASED, ("2.2",), 6, f.fake))
    assert other.load(s) is None, "another seed"
    (stored,) = (tmp_path / "out" / "results").iterdir()
    stored.write_text(stored.read_text()[:100])
    assert store.load(s) is None, "half a file"
    store.save(s, rows)
    f.write(path, f.answered("2.2", {"2.2-3": f.OVERLAP_WRONG}))
    assert store.load(s) is None, "another file"
    store.save(s, [Row("anna", "x.ipynb", "", "GRADER_ERROR", "")])
    assert store.load(s) is None, "what failed is tried again"


def test_files_are_whole_or_not_there_and_a_full_disk_leaves_what_was(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_whole(path, "old")
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["x"]


def test_the_seed_is_drawn_once_per_run_and_kept(tmp_path):
    drawn = seed_of_run(tmp_path, None)
    assert (
        seed_of_run(tmp_path, None) == drawn
        and json.loads((tmp_path / "run.json").read_text())["seed"] == drawn
    )
    assert seed_of_run(tmp_path, 7) == 7 and seed_of_run(tmp_path, None) == 7
    assert len({seed_of_run(None, None) for _ in range(5)}) == 5


# -- reports --

EVIL = '=HYPERLINK("http://x")<script>alert(1)</script>'


def rows():
    each = [
        Outcome("2.2-1", "Three systems", "PASS", 2, 2, answer="axes"),
        Outcome("2.2-2", "The dial", "WRONG", 0, 3, f"too large\n{EVIL}", "SECRET LOG"),
        Outcome(
            "2.2-6",
            "In words",
            "NEEDS_HUMAN",
            0,
            3,
            "a person reads",
            "1 for: this",
            answer=f"{EVIL}\nsecond line",
        ),
    ]
    return [
        Row("anna", "anna/x.ipynb", "2.2", exercises=tuple(each), flags=("also handed in: y",)),
        Row(EVIL, "@evil.ipynb", "", "UNREADABLE", "the file is empty"),
        Row("Zoë 王", "z.ipynb", "10.3", exercises=(Outcome("10.3-1", "One", "PASS", 4, 4),)),
    ]


def read_csv(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_the_gradebook_has_a_line_for_each_and_disarms_formulas(tmp_path):
    write_reports(rows(), tmp_path, {"seed": 3})
    anna, evil, zoe = book = read_csv(tmp_path / "gradebook.csv")
    assert [[line[c] for c in ("set", "points", "of", "open", "status")] for line in book] == [
        ["set 2.2", "2", "8", "3", "graded"], ["", "", "", "", "UNREADABLE"], ["set 10.3", "4", "4", "0", "graded"],
    ]  # fmt: skip
    assert [anna[n] for n in "123"] == ["2", "0", "?"] and anna["flags"] == "also handed in: y"
    assert evil["student"] == f"'{EVIL}" and evil["submission"] == "'@evil.ipynb" and evil["message"]
    assert zoe["student"] == "Zoë 王" and zoe["2"] == ""
    assert not any(cell.startswith(("=", "+", "-", "@")) for line in book for cell in line.values())
    everything = json.loads((tmp_path / "grades.json").read_text())
    assert everything["about"] == {"seed": 3} and [r["points"] for r in everything["rows"]] == [2, 0, 4]


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", " =1", "\t=1", "\r=1", "\n=1", "＝1"])
def test_no_cell_begins_like_a_formula(text):
    assert safe(text) == f"'{text}"


def test_ordinary_cells_stay_as_they_are():
    assert [safe(t) for t in ("", "anna", "3.5", "a=b", "O'Neil")] == ["", "anna", "3.5", "a=b", "O'Neil"]


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_a_feedback_page_escapes_everything_and_keeps_the_instructors_log_back():
    tags = Tags()
    tags.feed(_page(EVIL, rows()))
    assert not {"script", "a", "img", "link"} & {tag for tag, _ in tags.seen}
    assert "<script>alert(1)</script>" in tags.text and "SECRET" not in tags.text
    assert ("html", {"lang": "en"}) in tags.seen and "main" in {tag for tag, _ in tags.seen}
    for says in (
        "2 of 8 points, and 3 more are still open",
        "not right yet",
        "a person will look",
        "second line",
        "the file is empty",
    ):
        assert says in tags.text
    assert "1 for: this" not in tags.text


def test_the_longest_name_in_any_script_has_its_page_and_its_results(tmp_path):
    student = "学" * 85  # as many as a file name holds
    (path,) = write_pages([Row(student, "x", "", "UNREADABLE", "w")], tmp_path / "feedback").values()
    assert path.exists() and len(path.name.encode()) < 120
    write_whole(tmp_path / student, "text")
    assert (tmp_path / student).read_text() == "text"


def test_pages_of_students_whose_names_collide_or_climb_are_apart_and_inside(tmp_path):
    students = ["anna", "Anna", "../../etc/passwd", "a/b", "a_b", "...", "x" * 500, "王"]
    paths = write_pages([Row(s, "x", "", "UNREADABLE", "w") for s in students], tmp_path)
    assert len({str(p).casefold() for p in paths.values()}) == len(students)
    assert all(p.parent == tmp_path and p.exists() for p in paths.values())


def test_the_table_shows_points_signs_and_a_legend_in_columns():
    lines = table(rows()).splitlines()
    assert lines[1].split()[:7] == ["anna", "2.2", "2", "x", "?", "2+?", "8"]
    assert "UNREADABLE: the file is empty" in lines[2] and "NEEDS_HUMAN 1" in lines[-1]
    assert table([]).strip().startswith("student")
