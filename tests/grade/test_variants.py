"""Students with constants and labels of their own: written offline, found again by the grader, and no use to others."""

from __future__ import annotations

import csv
import json
import stat
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import grading_fakes as f

from labkit.exercises import check, find
from labkit.exercises.catalogue import all_exercises
from labkit.grade import variants
from labkit.grade.__main__ import OK, USAGE, main
from labkit.grade.key import Key
from labkit.grade.roster import Roster
from labkit.grade.variants import Variants, make_secret, read_secret, varied

VARIED = [e.id for e in all_exercises() if e.variant]
CLASS = "Student,ID,SIS User ID,SIS Login ID,Section\n" + "".join(
    f'"Berg, {name}",{4711 + i},u{i},{name.lower()},A\n'
    for i, name in enumerate(["Anna", "Bob", "Carla", "Dora"])
)


def key(id) -> Key:
    return Key.load(f.KEY, id.split("-")[0])


def right(id, token):
    return key(id).variants[id](**find(id).varied(token).given)


@pytest.fixture
def course(tmp_path):
    """A roster and a secret; and who has which token."""
    (tmp_path / "class.csv").write_text(CLASS)
    make_secret(tmp_path / "secret")
    known = Variants(Roster.read(tmp_path / "class.csv"), read_secret(tmp_path / "secret"))
    return tmp_path, known.tokens


@pytest.mark.parametrize("id", VARIED)
def test_the_key_s_solution_is_right_for_every_variant_and_hardly_ever_for_another(id):
    tokens = [str(n) for n in range(20)]
    answers = [right(id, t) for t in tokens]
    assert all(check(id, a, variant=t).status == "right" for a, t in zip(answers, tokens, strict=True))
    others = [check(id, answers[0], variant=t).status == "right" for t in tokens[1:]]
    assert sum(others) <= 4, "a label may be another's by chance"
    assert key(id).solutions[id] is not None and check(id, key(id).solutions[id]).status == "right"


@pytest.mark.parametrize("id", ["B-3", "10.1-3"])
def test_a_mistake_under_other_labels_is_one(id):
    (names,) = find(id).varied("a").given.values()
    shown = {own: name for name, own in names.items()}
    for wrong in key(id).mutants[id]:
        verdict = check(id, {shown[item]: said for item, said in wrong.items()}, variant="a")
        assert verdict.status == "wrong" and verdict.message


def test_an_exercise_with_a_value_that_no_student_measures_has_variants_or_many_right_answers():
    found = {e.id for e in all_exercises() if not (e.function or e.rubric or e.kind == "measure")}
    assert found - {*VARIED} == {"2.2-1", "10.1-1"}, "whose answers are inputs that the student has found"


def test_every_student_s_notebook_says_and_checks_their_own_numbers(course, capsys):
    folder, tokens = course
    args = ["B", "--secret", folder / "secret", "--roster", folder / "class.csv", "--out", folder / "out",
            "--notebooks", f.RELEASED]  # fmt: skip
    assert variants.main([str(a) for a in args]) == 0
    assert "4 notebooks" in capsys.readouterr().out
    texts = {}
    for who, token in tokens.items():
        nb = json.loads((folder / "out" / who / "b_exercises.ipynb").read_text())
        source = texts[who] = "\n".join("".join(c["source"]) for c in nb["cells"])
        assert f"the team watches {find('B-6').varied(token).given['jobs']} such jobs" in source
        line = next(line for line in source.splitlines() if 'check("B-6"' in line)
        verdict = {"check": check, "accused": right("B-6", token)}
        exec(line, verdict)
        assert verdict["v6"].status == "right"
        assert read_secret(folder / "secret").hex() not in source
    assert len(set(texts.values())) == 4
    assert variants.main([str(a) for a in ["10.5", *args[1:]]]) == 2 and "as it is" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted({id.rpartition("-")[0] for id in VARIED}))
def test_all_that_differs_between_students_stands_in_the_released_notebook(name):
    nb = json.loads((f.RELEASED / f"{name.replace('.', '_').lower()}_exercises.ipynb").read_text())
    for token in map(str, range(20)):
        made = varied(nb, name, token)
        assert len(made["cells"]) == len(nb["cells"])
    nb["cells"] = [c for c in nb["cells"] if "check(" not in "".join(c["source"])]
    with pytest.raises(ValueError, match="must say 'check"):
        varied(nb, name, "a")


def test_a_copied_answer_of_another_variant_scores_nothing_and_a_person_is_told_whose(
    course, monkeypatch, capsys
):
    folder, tokens = course
    f.in_one_process(monkeypatch)
    mine, hers = right("B-6", tokens["4711"]), right("B-6", tokens["4712"])
    assert mine != hers
    for name, answer in (("anna", mine), ("bob", hers), ("carla", mine), ("zoe", mine)):
        nb = f.answered("B", {"B-6": f"accused = {answer!r}"})
        f.write(folder / "class" / f"{name}.ipynb", nb)
    args = [folder / "class", "--key", f.KEY, "--out", folder / "out", "--jobs", "1", "--set", "B"]
    args += ["--roster", folder / "class.csv", "--variants", folder / "secret"]
    assert main([str(a) for a in args], f.fake) == OK
    said = capsys.readouterr()
    rows = {r["student"]: r for r in json.loads((folder / "out" / "grades.json").read_text())["rows"]}
    got = {who: next(e for e in r["exercises"] if e["id"] == "B-6") for who, r in rows.items()}
    assert (got["anna"]["status"], got["bob"]["status"]) == ("PASS", "PASS") and not rows["anna"]["flags"]
    assert got["carla"]["status"] == "WRONG" and got["carla"]["points"] == 0
    reported = list(csv.DictReader((folder / "out" / "alike.csv").open(encoding="utf-8-sig", newline="")))
    pairs = {(x["student"], x["other"]) for x in reported if x["exercise"] == "exercise B-6"}
    assert ("carla", "4711") in pairs and not any(who == "bob" for who, _ in pairs)
    page = (folder / "out" / "feedback" / "carla.html").read_text()
    assert "other numbers or names" in page and "4711" not in page
    assert got["zoe"]["status"] == "NEEDS_HUMAN" and "roster" in got["zoe"]["message"]
    secret = (folder / "secret").read_text().strip()
    assert secret not in said.out + said.err + (folder / "out" / "grades.json").read_text()


def test_a_secret_is_long_and_nobody_else_s_to_read(tmp_path, capsys):
    make_secret(tmp_path / "secret")
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert len(read_secret(tmp_path / "secret")) >= 16
    with pytest.raises(FileExistsError):
        make_secret(tmp_path / "secret")
    for text in ("", "abc", "0" * 31, "0" * 30, "zz" * 16):
        (tmp_path / "short").write_text(text)
        with pytest.raises(ValueError, match="32 digits"):
            read_secret(tmp_path / "short")
    roster = Roster.read(_written(tmp_path / "c.csv", CLASS))
    tokens = [Variants(roster, bytes([n]) * 16).tokens for n in range(3)]
    assert len({t for of in tokens for t in of.values()}) == 12
    assert "0101" not in repr(Variants(roster, bytes([1]) * 16))
    args = [str(tmp_path), "--key", str(f.KEY), "--variants", str(tmp_path / "secret")]
    assert main(args, f.fake) == USAGE and "--variants wants --roster" in capsys.readouterr().err


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_class_has_enough_variants():
    for id in VARIED:
        given = {repr(sorted(find(id).varied(str(n)).texts.items())) for n in range(100)}
        assert len(given) >= (20 if id == "B-3" else 60), (id, len(given))
