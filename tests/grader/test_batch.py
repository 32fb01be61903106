"""A row for every submission, whatever happens; reports that hold what students wrote without obeying it."""

import csv
import html.parser
import json
import os
import time

import grading_fakes as f
import numpy as np
import pytest

from labkit_book.grader import batch
from labkit_book.grader.batch import Graders, Lost, Plan, flag_all, in_processes
from labkit_book.grader.collect import Submission
from labkit_book.grader.key import Key
from labkit_book.grader.results import Outcome, Record, Row, table, write_reports
from labkit_book.problems import find
from labkit_book.problems.asking import GraderFailure

PLAN = Plan(f.KEY, f.RELEASED, ("2.2", "10.3"), 5)


@pytest.fixture
def graded(tmp_path, monkeypatch):
    """Returns the rows of a notebook, graded here and now."""
    f.without_walls(monkeypatch)

    def graded(nb=None, problem="", name="x.ipynb", **more):
        path = tmp_path / name
        if nb is not None:
            f.write(path, nb)
        return Graders(Plan(**{**vars(PLAN), **more}), 1).rows(Submission("anna", name, path, problem))

    return graded


# -- one submission --


def test_each_exercise_has_its_status_points_and_message(graded):
    blame = "def blame(a):\n    return rank"
    answers = {"2.2-2": f.SSP, "2.2-3": f.OVERLAP_WRONG, "2.2-4": blame, "2.2-1": "Wait."}
    (row,) = graded(f.answered("2.2", answers | {"2.2-5": "mine = {'data': 1}"}))
    status = [e.status for e in row.exercises]
    assert status == ["NEEDS_HUMAN", "PASS", "WRONG", "WRONG", "NEEDS_HUMAN", "NO_RESULT"]
    assert (*row.points[:2], row.has("NEEDS_HUMAN"), row.has("GRADER_ERROR")) == (6, 19, True, False)
    assert all(e.message for e in row.exercises if e.status != "PASS")


def test_labs_are_no_problem_sets_and_of_two_sets_in_one_notebook_each_has_a_row(graded):
    nb = f.answered("2.2", {"2.2-3": f.OVERLAP})
    lab = json.loads((f.RELEASED.parent / "10_3_synchronous_sgd.ipynb").read_text())
    assert graded(lab, name="10_3_synchronous_sgd.ipynb")[0].status == "LEFT_OUT"
    both = nb | {"cells": nb["cells"] + f.released("10.3")["cells"]}
    said = ["several problem sets in one notebook"]
    assert [(r.set, r.flags) for r in graded(both)] == [(s, said) for s in PLAN.sets]


def test_one_notebook_has_its_time_and_the_rest_of_it_a_row(graded, monkeypatch):
    monkeypatch.setenv("SLOW_S", "2.5")
    monkeypatch.setattr(batch, "SUBMISSION_S", 2.0)
    (row,) = graded(f.answered("2.2", {"2.2-2": "# SLOW\n" + f.SSP, "2.2-3": f.OVERLAP}))
    assert [e.status for e in row.exercises[1:3]] == ["PASS", "TIMEOUT"] and not row.has("GRADER_ERROR")
    assert "all of the notebook" in row.exercises[2].message


def test_what_cannot_be_read_or_told_has_a_row_that_says_why(graded):
    assert [(r.status, r.set) for r in graded()] == [("UNREADABLE", "")]
    assert graded(problem="this is a link")[0].message == "this is a link"
    assert graded({"nbformat": 4, "cells": [f.markdown("hi")]})[0].status == "NEEDS_HUMAN"


@pytest.mark.parametrize("cell", ["@a" + ".b" * 600 + "\ndef f(): pass", "x = y" + ".b" * 600,
                                  "; ".join(f"a{i} = a{i + 1}" for i in range(4000))])  # fmt: skip
def test_a_cell_with_nests_or_chains_is_searched_in_seconds_and_spoils_no_other_answer(graded, cell):
    nb = f.answered("2.2", {"2.2-2": f.SSP, "2.2-3": f.OVERLAP.replace("0.0)", "a0)", 1)})
    nb["cells"][2:2] = [f.code(cell), *(f.code(f"c{i} = c{i + 1}") for i in range(500))]
    began = time.process_time()
    (row,) = graded(nb)
    assert row.exercises[1].status == "PASS" and not row.has("GRADER_ERROR")
    assert time.process_time() - began < 5


def test_a_grader_that_fails_on_one_answer_says_so_and_judges_the_others(graded):
    (row,) = graded(f.answered("2.2", {"2.2-3": "# THE GRADER FAILS\n" + f.OVERLAP, "2.2-2": f.SSP}))
    assert row.has("GRADER_ERROR") and row.exercises[1].status == "PASS"
    assert row.exercises[2].status == "GRADER_ERROR" and "out of cheese" in row.exercises[2].log
    assert not row.exercises[2].message and row.exercises[2].open


def test_questions_are_the_same_for_all_students_of_a_run_other_with_another_seed_and_hidden_ones_follow():
    key = Key.load(f.KEY, "2.2")
    asked = [[c.args[0] for c in key.questions(find("2.2-4"), seed)] for seed in (1, 1, 2)]
    assert all(np.array_equal(a, b) for a, b in zip(asked[0], asked[1], strict=True))
    assert not np.array_equal(asked[0][0], asked[2][0])
    assert len(asked[0]) > len(list(find("2.2-4").cases(np.random.default_rng(1))))


def test_files_for_one_set_are_flagged_in_no_time_however_many():
    many = flag_all([Row("a", f"file {i}", "2.2") for i in range(1000)])
    assert {r.flags for r in many} == {("one of 1000 files for this set",)}
    assert flag_all([Row("a", "x", "2.2"), Row("a", "y", "10.3")])[0].flags == ()


def test_a_key_that_cannot_be_read_or_is_not_there_is_a_sentence(tmp_path, monkeypatch):
    assert "10.10" not in Key.sets(f.KEY)[:3] and set(Key.sets(f.KEY)) >= {"2.2", "10.3", "B"}
    (tmp_path / "key_2_2.py").write_text("def broken(")
    with pytest.raises(GraderFailure, match=r"the key of 2\.2 .* can't be read: SyntaxError"):
        _ = Graders(Plan(tmp_path, f.RELEASED, ("2.2",), 5), 1).keys


# -- processes --


def work(what):
    if what == "die":
        os._exit(3)
    if what == "hang":
        time.sleep(60)
    if what == "raise":
        raise RuntimeError("no")
    if what == "fill":
        return len(bytearray(2 * batch.MEMORY_BYTES))
    return what, os.getpid()


def test_a_grader_that_dies_hangs_raises_or_fills_the_memory_loses_no_other_task():
    tasks = ("a", "die", "raise", "hang", "fill", "b")
    got = dict(in_processes(work, tasks, 2, limit_s=1.0))
    assert [isinstance(got[task], Lost) for task in tasks] == [False, True, True, True, True, False]
    for task, said in zip(
        tasks[1:5], ("exit code 3", "RuntimeError: no", "in time", "MemoryError"), strict=True
    ):
        assert said in got[task]
    for what, pid in (got["a"], got["b"]):
        assert what in "ab"
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# -- the record --


def test_a_result_is_found_again_only_for_the_same_file_key_and_seed_and_only_whole(graded, tmp_path):
    rows = graded(f.answered("2.2", {"2.2-3": f.OVERLAP}))
    path, out = tmp_path / "x.ipynb", tmp_path / "out"
    s, file = Submission("anna", "x.ipynb", path), tmp_path / "key.py"
    file.write_text("a key")

    def record(seed=5, **settings):
        return Record(out, seed, [file], **settings)

    assert not record().load(s)
    record().save(s, rows)
    assert record().load(s) == rows == Record(out, None, [file]).load(s)
    assert not record().load(Submission("bob", "x.ipynb", path))
    assert not record(seed=6).load(s) and not record(trust=True).load(s)
    whole = (out / "grades.jsonl").read_text()
    (out / "grades.jsonl").write_text(whole[: whole.index('"rows"') + 99])
    assert not record().load(s), "half a line"
    record().save(s, rows)
    assert record().load(s), "and what comes after it is read"
    file.write_text("another key")
    assert not record().load(s)
    record().save(s, [Row("anna", "x.ipynb", "", "GRADER_ERROR", "")])
    assert not record().load(s), "what failed is tried again"
    f.write(path, f.answered("2.2", {"2.2-3": f.OVERLAP_WRONG}))
    assert not record().load(s), "another file"


def test_the_seed_is_drawn_once_per_run_and_kept(tmp_path):
    drawn = Record(tmp_path, None, []).seed
    assert drawn > 1 << 64 and Record(tmp_path, None, []).seed == drawn
    assert Record(tmp_path, 7, []).seed == 7 and Record(tmp_path, None, []).seed == 7


# -- reports --

EVIL = '=HYPERLINK("http://x")<script>alert(1)</script>'


def rows():
    read = f"{EVIL}\nsecond line"
    each = [
        Outcome("2.2-5", "Three systems", "PASS", 2, 2, answer="axes"),
        Outcome("2.2-2", "The dial", "WRONG", 0, 3, f"too large\n{EVIL}", "SECRET LOG"),
        Outcome("2.2-1", "In words", "NEEDS_HUMAN", 0, 3, "a person reads", "1 for: this", read),
    ]
    return [
        Row("anna", "anna/x.ipynb", "2.2", exercises=tuple(each), flags=("one of 2 files for this set",)),
        Row(EVIL, "@evil.ipynb", "", "UNREADABLE", "the file is empty"),
        Row("Zoë 王", "z.ipynb", "10.3", exercises=(Outcome("10.3-1", "One", "PASS", 4, 4),)),
    ]


def test_the_gradebook_has_a_line_for_each_and_disarms_formulas(tmp_path):
    write_reports(rows(), tmp_path)
    with (tmp_path / "gradebook.csv").open(encoding="utf-8-sig", newline="") as file:
        anna, evil, zoe = book = list(csv.DictReader(file))
    assert [[line[c] for c in ("set", "points", "of", "open", "status")] for line in book] == [
        ["set 2.2", "2", "8", "3", "graded"], ["", "", "", "", "UNREADABLE"], ["set 10.3", "4", "4", "0", "graded"],
    ]  # fmt: skip
    assert [anna[n] for n in "123"] == ["2", "0", "?"] and anna["flags"] == "one of 2 files for this set"
    assert evil["student"] == f"'{EVIL}" and evil["submission"] == "'@evil.ipynb" and evil["message"]
    assert zoe["student"] == "Zoë 王" and zoe["2"] == ""
    assert not any(cell.startswith(("=", "+", "-", "@")) for line in book for cell in line.values())


def test_no_cell_of_the_gradebook_begins_like_a_formula_and_ordinary_ones_stay_as_they_are(tmp_path):
    formulas = ["=1", "+1", "-1", "@x", " =1", "\t=1", "\r=1", "\n=1", "＝1"]
    plain = ["anna", "3.5", "a=b", "O'Neil"]
    write_reports([Row(text, text, "", "UNREADABLE", "") for text in formulas + plain], tmp_path)
    with (tmp_path / "gradebook.csv").open(encoding="utf-8-sig", newline="") as file:
        students = [line["student"] for line in csv.DictReader(file)]
    assert students == [f"'{text}" for text in formulas] + plain


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_a_feedback_page_escapes_everything_and_keeps_the_instructors_log_back(tmp_path):
    tags = Tags()
    write_reports(rows(), tmp_path)
    for path in (tmp_path / "feedback").iterdir():
        tags.feed(path.read_text())
    assert not {"script", "a", "img", "link"} & {tag for tag, _ in tags.seen}
    assert ("html", {"lang": "en"}) in tags.seen and "main" in {tag for tag, _ in tags.seen}
    assert "<script>alert(1)</script>" in tags.text
    assert "SECRET" not in tags.text and "1 for: this" not in tags.text
    for says in ("2 of 8 points, and 3 more are still open", "not right yet", "a person will look", "second line",
                 "the file is empty"):  # fmt: skip
        assert says in tags.text


def test_pages_of_students_whose_names_collide_climb_or_are_long_are_apart_and_inside(tmp_path):
    students = ["anna", "Anna", "../../etc/passwd", "a/b", "a_b", "...", "x" * 500, "王", "学" * 85]
    (tmp_path / "out").mkdir()
    write_reports([Row(s, "x", "", "UNREADABLE", "w") for s in students], tmp_path / "out")
    paths = list((tmp_path / "out" / "feedback").iterdir())
    assert len({str(p).casefold() for p in paths}) == len(students) and len(list(tmp_path.iterdir())) == 1


def test_the_table_shows_points_signs_and_a_legend():
    lines = table(rows()).splitlines()
    assert lines[0].split()[:8] == ["anna", "2.2", "2", "✗", "?", "2", "of", "8"]
    assert "UNREADABLE: the file is empty" in lines[1] and "? NEEDS_HUMAN 1" in lines[-1]
