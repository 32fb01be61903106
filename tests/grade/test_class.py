"""A whole class, as learning management systems hand it out and want it back."""

from __future__ import annotations

import csv
import json
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import grading_fakes as f

from labkit.exercises import take
from labkit.grade.__main__ import OK, main
from labkit.grade.alike import _bones, alike
from labkit.grade.batch import flag_all
from labkit.grade.collect import collect
from labkit.grade.outcome import Outcome, Row
from labkit.grade.roster import Roster, feedback_name

# The columns are those of the systems' own exports; the people are made up.
EXPORTS = {
    "moodle": "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Last modified (submission),Feedback comments\n"
    'Participant 4711,Anna Berg,anna@uni.example,Submitted,,15.00,"Monday, 2 November",\n'
    "Participant 4712,Zoë Łuk,zoe@uni.example,No submission,,15.00,-,\n",
    "moodle participants": "First name;Last name;ID number;Email address\nAnna;Berg;4711;anna@uni.example\n"
    "Zoë;Łuk;4712;zoe@uni.example\n",
    "canvas": "Student,ID,SIS User ID,SIS Login ID,Section,Homework 0 (77)\n    Points Possible,,,,,10\n"
    '"Berg, Anna",4711,u1,anna,A,9\n"Łuk, Zoë",4712,u2,zoe,A,\n"Student, Test",4799,,x,A,\n',
    "gradescope": "First Name,Last Name,SID,Email,Sections\nAnna,Berg,4711,anna@uni.example,A\n"
    "Zoë,Łuk,4712,zoe@uni.example,A\n",
}  # fmt: skip
NAMES = ["Anna Berg_4711", "anna", "anna@uni.example", "berg-anna", "Anna Berg", "berganna_4711", "4711"]


def roster(tmp_path, system) -> Roster:
    path = tmp_path / "roster.csv"
    path.write_text("\ufeff" + EXPORTS[system], encoding="utf-8")
    return Roster.read(path)


@pytest.mark.parametrize("system", EXPORTS)
def test_each_system_s_export_is_read_as_it_is_and_finds_a_student_by_any_of_their_names(tmp_path, system):
    found = roster(tmp_path, system)
    assert len(found.students) == 2
    for name in NAMES if system != "canvas" else [n for n in NAMES if "@" not in n]:
        assert found.find(name) == found.students[0], name
    assert found.find("Bob") is None and found.find("uni.example") is None and found.find("") is None
    assert found.missing(["anna"]) and "Anna" not in found.missing(["anna"])[0]
    assert len(found.missing([])) == 2


def test_namesakes_are_told_apart_by_number_and_never_guessed(tmp_path):
    path = tmp_path / "roster.csv"
    path.write_text("First Name,Last Name,SID,Email\nAnna,Berg,1,a@u\nAnna,Berg,2,b@u\n")
    found = Roster.read(path)
    assert found.find("Anna Berg") is None and found.find("Anna Berg_2") == 1 and found.find("a") == 0


def test_what_goes_back_has_the_system_s_own_columns_and_numbers_only(tmp_path):
    points = {"anna": {"2.2": "7.5", "10.3": "?"}}
    of = {"2.2": 15, "10.3": 18}
    columns, lines = roster(tmp_path, "canvas").filled_in(of, points)
    assert columns[:5] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    sets = ["problem set 2.2", "problem set 10.3"]
    assert columns[-2:] == sets
    assert [lines[0][s] for s in sets] == ["15", "18"], "Canvas' line of possible points"
    assert lines[1]["Student"] == "Berg, Anna" and lines[1]["ID"] == "4711"
    assert (
        lines[1]["problem set 2.2"] == "7.5"
        and not {*sets} & {*lines[2]}
        and "problem set 10.3" not in lines[1]
    )
    columns, lines = roster(tmp_path, "moodle").filled_in({"2.2": 15}, points)
    assert columns == list(roster(tmp_path, "moodle").columns), "a worksheet is taken back only as it was"
    assert [line["Grade"] for line in lines] == ["7.5", ""]


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "Student,ID\n    Points Possible,\n", b"\xff\xfe\x00"], ids=range(4)
)
def test_what_is_no_roster_is_refused_in_a_sentence(tmp_path, text):
    path = tmp_path / "x.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match="roster must be"):
        Roster.read(path)
    with pytest.raises(ValueError, match="roster must be"):
        Roster.read(tmp_path / "none.csv")


def test_names_of_the_systems_are_one_student_s_also_late_and_again(tmp_path):
    nb = json.dumps(f.released("2.2"))
    names = [
        "berganna_4711_98765_2_2_exercises.ipynb", "berganna_LATE_4711_98999_2_2_exercises-1.ipynb",
        "Zoë Łuk_4712_assignsubmission_file_/2_2_exercises.ipynb", "submission_5/2_2.ipynb", ".bob.ipynb",
    ]  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(nb)
    (tmp_path / "submission_metadata.yml").write_text(
        "submission_5:\n  :submitters:\n  - :name: Carla Diaz\n    :sid: '12'\n    :email: carla@u\n"
    )
    (tmp_path / ".DS_Store").write_bytes(b"x")
    assert [s.student for s in collect([tmp_path])] == [
        ".bob", "Zoë Łuk_4712", "berganna_4711", "berganna_4711", "carla@u",
    ]  # fmt: skip
    assert feedback_name("anna.ipynb") == ""


@pytest.mark.parametrize("name", ["../evil.ipynb", "/tmp/evil.ipynb", "a/../../evil.ipynb", "..\\evil.ipynb"])
def test_an_archive_writes_nowhere_but_below_its_folder(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        zipped.writestr(name, "x")
    with pytest.raises(ValueError, match="would lie outside"):
        collect([tmp_path / "x.zip"], into=tmp_path / "in")
    assert not list(tmp_path.rglob("evil*"))


def test_an_archive_that_is_none_or_would_fill_the_disk_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x.zip").write_text("no")
    with pytest.raises(ValueError, match="cannot be unpacked"):
        collect([tmp_path / "x.zip"], into=tmp_path / "in")
    with zipfile.ZipFile(tmp_path / "y.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("a.ipynb", "0" * 100_000)
    monkeypatch.setattr("labkit.grade.collect.MOST_BYTES", 99_999)
    with pytest.raises(ValueError, match="more than is unpacked"):
        collect([tmp_path / "y.zip"], into=tmp_path / "in")


def test_an_archive_and_a_roster_go_in_and_what_the_systems_take_back_comes_out(
    tmp_path, monkeypatch, capsys
):
    f.in_one_process(monkeypatch)
    notebook = json.dumps(f.answered("2.2", {"2.2-2": f.SSP, "2.2-3": f.OVERLAP}))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as zipped:
        zipped.writestr("Anna Berg_4711_assignsubmission_file_/2_2_exercises.ipynb", notebook)
        zipped.writestr("Carla Diaz_4713_assignsubmission_file_/2_2_exercises.ipynb", notebook)
    (tmp_path / "class.csv").write_text(EXPORTS["moodle"])
    out = tmp_path / "out"
    args = [
        tmp_path / "all.zip",
        "--roster",
        tmp_path / "class.csv",
        "--out",
        out,
        "--key",
        f.KEY,
        "--jobs",
        "1",
    ]
    assert main([str(a) for a in args], f.fake) == OK
    said = capsys.readouterr()
    assert "nothing handed in: Participant 4712 Zoë Łuk" in said.err and "not on the roster" in said.out
    back = list(csv.DictReader((out / "upload.csv").open(encoding="utf-8-sig", newline="")))
    assert [(line["Full name"], line["Grade"]) for line in back] == [("Anna Berg", "7"), ("Zoë Łuk", "")]
    with zipfile.ZipFile(out / "feedback.zip") as pages:
        assert "Anna Berg_4711_assignsubmission_file_/feedback.html" in pages.namelist()
    stats = list(csv.DictReader((out / "statistics.csv").open(encoding="utf-8-sig", newline="")))
    assert [(s["exercise"], s["right"], s["answered"]) for s in stats[1:3]] == [
        ("exercise 2.2-2", "2", "2"), ("exercise 2.2-3", "2", "2"),
    ]  # fmt: skip
    assert (out / "statistics.png").read_bytes().startswith(b"\x89PNG")


def row(student, source, status="PASS", message=""):
    return Row(
        student,
        f"{student}.ipynb",
        "2.2",
        exercises=(Outcome("2.2-2", "", status, 2, 2, message, "", source),),
    )


def test_answers_alike_but_for_names_layout_and_comments_are_reported_and_others_are_not():
    renamed = f.SSP.replace("before", "wer").replace("F", "E").replace("finished", "fertig")
    renamed = renamed.replace("\n    E, sent", "\n    # mine!\n\n    E, sent")
    other = "def ssp_worker(comm, X, s):\n" + "".join(f"    x{i} = X[{i}].sum() * {i}\n" for i in range(20))
    rows = [
        row("anna", f.SSP),
        row("bob", renamed),
        row("carla", other),
        row("dora", "def f(): ...", "NO_RESULT"),
    ]
    assert [(line["student"], line["other"], line["alike"]) for line in alike(rows)] == [
        ("anna", "bob", "1.00")
    ]
    assert not list(alike([row("anna", f.SSP), row("anna", f.SSP)])), "one student's two files"
    long = (
        "def f(x):\n"
        + "".join(f"    y{i} = x[{i}].mean() + {i * i}\n" for i in range(20))
        + "    return y1\n"
    )
    one_more, one_other = long.replace("    return", "    print(x)\n    return"), long.replace("144", "145")
    for other in (one_more, one_other):
        assert len(list(alike([row("anna", long), row("bob", other)]))) == 1
    assert _bones("def f(:") == []


def test_a_class_of_a_hundred_long_answers_is_compared_in_seconds():
    def long(i):
        return "".join(f"x{j % (i + 2)} = f({j} % {i}, x{j % 7})\n" for j in range(60))

    before = time.process_time()
    list(alike([row(f"student {i}", long(i)) for i in range(1, 101)]))
    assert time.process_time() - before < 10


def test_what_a_person_should_look_at_is_flagged():
    odd = flag_all(
        [
            row("a", "x", "WRONG", "labkit.collectives.ring.bytes is what you are asked to write"),
            row("b", "y"),
        ]
    )
    assert odd[0].flags == ("called what was to be written in 2.2-2",) and odd[1].flags == ()
    assert "by force" in flag_all([row("a", "x", "KILLED", "too much")])[0].flags[0]


def test_the_same_measurements_from_two_students_are_reported_and_measurements_of_the_same_thing_are_not():
    clock = np.random.default_rng(0)

    def data():
        return str(take(lambda n: n + clock.uniform(), at=range(8), repeats=9))

    mine = data()
    rows = [
        row(who, f"answer = {{'data': '{line}'}}") for who, line in (("a", mine), ("b", data()), ("c", mine))
    ]
    assert [(x["student"], x["other"]) for x in alike(rows)] == [("a", "c")]
