"""Worked solutions: in step with the keys, right, locked until `check` says right or somebody asks; never an answer's."""

from __future__ import annotations

import ast
import importlib
import textwrap

import numpy as np
import pytest
import worked as tool

import labkit.exercises
from labkit.exercises import check, find, judge, worked
from labkit.exercises.catalogue import all_exercises
from labkit.exercises.worked import SEALED, unsealed
from labkit.grade.grading import grade_one
from labkit.grade.zygote import Zygote

HOME = importlib.import_module("labkit.exercises.worked")  # the room shows the function under this name
THERE = unsealed()
JUDGED = [e for e in all_exercises() if not e.rubric]


def solution(id: str):
    """What the worked solution of an exercise answers."""
    space = {"__name__": "worked"}
    exec(worked(id, anyway=True).code, space)
    return space[find(id).function or "answer"]


def test_they_are_the_keys_own_and_there_is_one_of_each_exercise():
    made = tool.solutions()
    assert list(THERE) == list(made) == [e.id for e in all_exercises()], "run python book/tools/worked.py"
    for exercise in all_exercises():
        new, old = made[exercise.id], THERE[exercise.id]
        if not exercise.rubric:
            new, old = ([ast.dump(ast.parse(text)) for text in it] for it in (new, old))
        assert new == old, f"{exercise.id} has changed: run python book/tools/worked.py"


@pytest.mark.parametrize("exercise", JUDGED, ids=lambda e: e.id)
def test_what_is_shown_runs_as_it_stands_and_is_right(exercise):
    verdict = check(exercise.id, solution(exercise.id))
    assert verdict.status == "right", verdict


@pytest.mark.parametrize("exercise", JUDGED, ids=lambda e: e.id)
def test_nothing_in_it_is_there_for_a_mistake(exercise):
    *_, last = ast.parse(THERE[exercise.id][0]).body
    if isinstance(last, ast.FunctionDef):
        assert not last.args.defaults and not last.args.kwarg and not last.args.kwonlyargs
    assert "MUTANTS" not in THERE[exercise.id][0]


def test_a_right_answer_opens_it_and_a_wrong_one_does_not():
    def wrong(comm, x, order):
        return x

    assert check("10.5-1", wrong).status == "wrong"
    locked = worked("10.5-1")
    assert not locked.code and "has not said right" in str(locked) and "anyway=True" in str(locked)
    verdict = check("10.5-1", solution("10.5-1"))
    assert "\n" not in verdict.message and 'worked("10.5-1")' in verdict.message
    assert "def reduce_scatter(comm, x, order):" in worked("10.5-1").code
    assert not worked("10.5-3").code


def test_who_asks_gets_it_and_of_words_what_a_good_answer_says():
    exercise = next(e for e in all_exercises() if e.rubric)
    assert "anyway=True" in str(worked(exercise.id)) and THERE[exercise.id][0] not in str(worked(exercise.id))
    told = worked(exercise.id, anyway=True)
    assert all(text in told.text for text in THERE[exercise.id]) and told._repr_markdown_() == told.text
    assert str(worked("10.5-1", anyway=True)).startswith("# 10.5-1")
    assert "```python\n" in worked("10.5-1", anyway=True)._repr_markdown_()
    with pytest.raises(ValueError, match="there is no exercise"):
        worked("10.5-99", anyway=True)


def test_a_package_without_the_file_has_none_and_does_not_speak_of_it(monkeypatch, tmp_path):
    answer = solution("10.5-3")
    monkeypatch.setattr(HOME, "SEALED", tmp_path / "none.txt")
    assert str(worked("10.5-3", anyway=True)) == "This labkit has no worked solution of 10.5-3."
    assert str(check("10.5-3", answer)).count("\n") == 0


def test_sets_can_be_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(HOME, "SEALED", tmp_path / "some.txt")
    monkeypatch.setattr(tool, "SEALED", tmp_path / "some.txt")
    tool.write(tool.solutions(without=("10.5", "B")))
    left = {id.split("-")[0] for id in unsealed()}
    assert "10.3" in left and not left & {"10.5", "B"}


def test_no_line_of_one_can_be_read_in_the_file():
    text = SEALED.read_text()
    lines = {line.strip() for texts in THERE.values() for t in texts for line in t.splitlines()}
    assert not any(line in text for line in lines if len(line) > 8)


@pytest.mark.parametrize("exercise", [e for e in JUDGED if e.variant], ids=lambda e: e.id)
def test_it_is_no_answer_to_a_student_s_own_variant(exercise):
    answer = solution(exercise.id)
    for token in map(str, range(30)):
        assert check(exercise.id, answer, variant=token).status == "wrong", token


# An answer that would be right, if it could be had.
STOLEN = {
    "the function": 'from labkit.exercises import worked\nexec(worked("10.5-3", anyway=True).code, space)',
    "what is beneath it": 'from labkit.exercises.worked import unsealed\nexec(unsealed()["10.5-3"][0], space)',
    "the file": """
        import base64, json, lzma, labkit
        text = open(labkit.__path__[0] + "/exercises/worked.txt").read()
        exec(json.loads(lzma.decompress(base64.b85decode("".join(text.split()))))["10.5-3"][0], space)""",
}


@pytest.fixture(scope="module", params=[("namespaces", "landlock", "seccomp"), ("landlock", "seccomp")])
def z(request):
    with Zygote(means=request.param) as z:
        yield z


@pytest.mark.parametrize("how", STOLEN)
def test_no_answer_s_process_can_use_it(how, z):
    body = textwrap.indent(textwrap.dedent(STOLEN[how]).strip(), "    ")
    source = f"def ring_counts(K, n, itemsize):\n    space = {{}}\n{body}\n    return space['ring_counts'](K, n, itemsize)\n"
    here = {}
    exec(source, here)
    if how == "the file":  # in the notebook nothing keeps anybody from it: so it is seen to work
        assert check("10.5-3", here["ring_counts"]).status == "right"
    if not z.isolation.hides_files:
        pytest.skip("this machine can hide no files")
    outcome = grade_one(find("10.5-3"), source, zygote=z)
    assert outcome.points == 0, outcome


def test_the_check_withholds_it_as_the_grader_does():
    exercise = find("10.5-3")

    def stolen(K, n, itemsize):
        return labkit.exercises.worked("10.5-3", anyway=True)

    verdict = judge(exercise, stolen, exercise.cases(np.random.default_rng(0)))
    assert verdict.status == "wrong" and "is what you are asked to write" in verdict.message
    assert labkit.exercises.worked is worked
