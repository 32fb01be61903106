"""Every solution gets full points, every plausible mistake does not, every untouched stub is todo."""

from __future__ import annotations

import importlib.util
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import labkit.exercises.sets
from labkit.exercises import check, exercise_set, judge, summary

HERE = Path(__file__).parent
SETS = sorted(m.name[1:].replace("_", ".") for m in pkgutil.iter_modules(labkit.exercises.sets.__path__))


def key(name: str):
    """The instructor's key of a set: SOLUTIONS, MUTANTS and, where it has any, HIDDEN cases."""
    path = HERE / f"key_{name.replace('.', '_')}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXERCISES = [(name, id) for name in SETS for id, e in exercise_set(name).items() if not e.rubric]
IN_WORDS = [(name, id) for name in SETS for id, e in exercise_set(name).items() if e.rubric]
MUTANTS = [(name, id, i) for name, id in EXERCISES for i in range(len(key(name).MUTANTS[id]))]


def verdicts(name: str, id: str, answer):
    """The notebook's own check, two more with other questions, and the hidden cases."""
    yield check(id, answer)
    yield check(id, answer, seed=1)
    yield check(id, answer, seed=20)
    hidden = getattr(key(name), "HIDDEN", {}).get(id)
    if hidden is not None:
        yield judge(exercise_set(name)[id], answer, hidden(np.random.default_rng(3)))


@pytest.mark.parametrize("name,id", EXERCISES)
def test_the_solution_gets_full_points(name, id):
    for verdict in verdicts(name, id, key(name).SOLUTIONS[id]):
        assert verdict.status == "right" and verdict.points == verdict.of > 0, verdict


@pytest.mark.parametrize("name,id,i", MUTANTS)
def test_a_plausible_mistake_does_not(name, id, i):
    said = list(verdicts(name, id, key(name).MUTANTS[id][i]))
    assert any(v.status == "wrong" and v.points == 0 and v.message for v in said), said
    assert all(v.status != "todo" for v in said)


@pytest.mark.parametrize("name,id", EXERCISES)
def test_there_are_at_least_three_mistakes(name, id):
    assert len(key(name).MUTANTS[id]) >= 3


@pytest.mark.parametrize("name,id", EXERCISES)
def test_an_untouched_stub_is_todo(name, id):
    def stub(*args, **kwargs): ...

    def other(*args, **kwargs):
        raise NotImplementedError

    exercise = exercise_set(name)[id]
    blanks = [stub, other, None] if exercise.function else [None, ...]
    for blank in blanks:
        assert check(id, blank).status == "todo"


@pytest.mark.parametrize("name,id", EXERCISES)
def test_nonsense_is_wrong_and_never_raises(name, id):
    nonsense = [lambda *a: "words", lambda *a: np.full(3, np.nan), lambda: 0, lambda *a: 1 / 0, 7]
    if not exercise_set(name)[id].function:
        nonsense = ["words", {"a": 1}, [1, 2]]
    for answer in nonsense:
        verdict = check(id, answer)
        assert verdict.status == "wrong" and verdict.message, (answer, verdict)


@pytest.mark.parametrize("name,id", IN_WORDS)
def test_an_answer_in_words_is_for_a_human_who_is_told_what_to_look_for(name, id):
    exercise = exercise_set(name)[id]
    verdict = check(id)
    assert (verdict.status, verdict.points, verdict.of) == ("for a human", 0, exercise.points)
    assert all(what in verdict.message for what, _ in exercise.rubric)
    assert len(key(name).LOOK_FOR[id]) == len(exercise.rubric)
    told = "; ".join(key(name).LOOK_FOR[id])
    assert told not in verdict.message and id not in key(name).MUTANTS
    assert f"up to {exercise.points} for your words" in str(summary(verdict))


def test_every_set_has_three_to_seven_exercises_and_its_notebook_checks_them_all():
    for name in SETS:
        exercises = exercise_set(name)
        assert 3 <= len(exercises) <= 7
        source = next(
            (HERE.parents[1] / "notebooks" / "exercises").glob(f"{name.replace('.', '_').lower()}_*.md")
        ).read_text()
        for id, e in exercises.items():
            assert f'check("{id}"' in source, f"{id} is not checked in the notebook"
            assert not e.function or f"def {e.function}(" in source
