"""The grader says what the notebook's check says, and tests itself before it is believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labkit.grade import Case, Exercise, close, exercise_set, find, judge
from labkit.grade.asking import GraderFailure, Wrong
from labkit.grade.grading import grade_one
from labkit.grade.outcome import STATUSES, Outcome
from labkit.grade.selftest import key_path, key_setup, load_key, selftest
from labkit.grade.zygote import Zygote

pytestmark = pytest.mark.processes
KEYS = Path(__file__).parents[1] / "exercises"
SAMPLE = {  # of each set one exercise; of its mistakes the first three: all of them agree, but that takes minutes
    "2.2": 2, "10.1": 4, "10.3": 0, "10.4": 4, "10.5": 4, "10.6": 2, "10.9": 2, "11": 1, "12": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def z():
    with Zygote() as z:
        yield z


@pytest.mark.parametrize("name", SAMPLE)
def test_the_grader_says_what_the_check_says(z, name):
    key = load_key(key_path(KEYS, name))
    setup = key_setup(key_path(KEYS, name).read_text())
    exercise = list(exercise_set(name).values())[SAMPLE[name]]
    cases = list(exercise.cases(np.random.default_rng(5)))
    entries = [("SOLUTIONS[{!r}]", key.SOLUTIONS[exercise.id])]
    entries += [(f"MUTANTS[{{!r}}][{i}]", key.MUTANTS[exercise.id][i]) for i in range(3)]
    for which, answer in entries:
        verdict = judge(exercise, answer, cases)
        source = f"answer_ = {which.format(exercise.id)}"
        outcome = grade_one(exercise, source, cases, setup=setup, name="answer_", zygote=z)
        assert (outcome.status == "PASS") == (verdict.status == "right"), (verdict, outcome)
        assert outcome.points == verdict.points and outcome.of == verdict.of
        if verdict.status == "wrong":
            assert outcome.message == verdict.message


def test_a_function_among_the_arguments_is_called_where_it_is(z):
    """10.6-3 hands the answer a function that knows the targets: it stays with the grader."""

    def cases(rng):
        secret = float(rng.standard_normal())

        def ask(x, shift):
            if x is None:
                raise ValueError("x must be a number, got None")
            return secret * x + shift

        yield Case((ask, 3.0), lambda given: close(given, 3 * secret + 1))

    exercise = Exercise("0-1", "Ask", 1, "f", cases)
    assert grade_one(exercise, "def f(ask, x): return ask(x, 1)", zygote=z, seed=4).status == "PASS"
    peek = "def f(ask, x): return [c.cell_contents for c in ask.__closure__][0]"
    assert grade_one(exercise, peek, zygote=z).status == "ERROR"
    raised = grade_one(exercise, "def f(ask, x): return ask(None, 1)", zygote=z)
    assert raised.status == "ERROR" and "ValueError: x must be a number" in raised.message


def test_other_questions_are_asked_for_another_seed(z):
    def cases(rng):
        yield Case((float(rng.standard_normal()),), lambda given: close(given, 1.0))

    exercise = Exercise("0-1", "Seeds", 1, "f", cases)
    x = float(np.random.default_rng(11).standard_normal())
    source = f"def f(x): return 1.0 if x == {x!r} else 0.0"
    first = grade_one(exercise, source, zygote=z, seed=11)
    assert first.status == "PASS" and first.seed == 11 and "seed 11" in first.log
    assert grade_one(exercise, source, zygote=z, seed=12).status == "WRONG"


def test_a_value_is_judged_and_a_blank_one_is_not(z):
    exercise = find("2.2-1")
    items = [
        f"{s}: {i}"
        for s in ("all-reduce", "parameter server", "SSP")
        for i in ("state", "pace", "hurt most by")
    ]
    blank = grade_one(exercise, f"axes = dict.fromkeys({items!r})", name="axes", zygote=z)
    assert blank.status == "NO_RESULT" and "axes" in blank.message
    wrong = grade_one(exercise, f"axes = dict.fromkeys({items!r}, 'own copies')", name="axes", zygote=z)
    assert wrong.status == "WRONG" and "must be one of" in wrong.message


@pytest.mark.parametrize(
    "use", ["from labkit.cost import ring_bytes\ndef f(*a): return ring_bytes(*a)",
            "import labkit.cost as c\ndef f(*a): return c.ring_bytes(*a)",
            "import labkit.cost.closed_forms as c\ndef f(*a): return getattr(c, 'ring_' + 'bytes')(*a)",
            "import labkit.cost\ndef f(K, n, i): return vars(labkit.cost)['reduce_scatter' + '_bytes'](K, n, i)"]
)  # fmt: skip
def test_what_an_exercise_asks_for_is_not_there_to_be_called(z, use):
    outcome = grade_one(find("10.5-3"), use, name="f", zygote=z)
    assert outcome.status == "WRONG" and "is what you are asked to write" in outcome.message


def test_what_is_withheld_works_for_labkit_itself_and_for_other_exercises(z):
    uses = "from labkit.cost import Link, ring_time\ndef f(K, n, i): return ring_time(K, n, Link(1e-5, 1e9))"
    assert "asked to write" not in grade_one(find("10.5-3"), uses, name="f", zygote=z).message
    calls = "from labkit.cost import ring_bytes\ndef f(K, a, b): return ring_bytes(K, 12, 8)"
    assert "asked to write" not in grade_one(find("10.5-4"), calls, name="f", zygote=z).message


def test_every_name_that_is_withheld_exists():
    import importlib
    import pkgutil

    import labkit.grade.sets

    for module in pkgutil.iter_modules(labkit.grade.sets.__path__):
        for exercise in exercise_set(module.name[1:].replace("_", ".")).values():
            for full in exercise.withheld:
                home, _, name = full.rpartition(".")
                assert callable(getattr(importlib.import_module(home), name)), (exercise.id, full)


KEY = """
import numpy as np
from labkit.grade import Case
from labkit.grade.exercise import (
    Wrong,
)

def right(K, n, itemsize):
    return [8 * n + K * itemsize] * K

SOLUTIONS = {"10.5-3": right}
MUTANTS = {"10.5-3": [lambda K, n, i: right(K, n, i)]}
"""


def test_a_broken_key_is_found_before_any_grading(z, tmp_path):
    real = key_path(KEYS, "10.5").read_text()
    (tmp_path / "key_10_5.py").write_text(KEY)
    problems = selftest(tmp_path, ["10.5"], z)
    assert any("the solution of 10.5-3 gets WRONG" in p for p in problems)
    assert any("no solution of 10.5-1" in p for p in problems)
    assert not any("can't be read" in p for p in problems)
    mixed = (
        real + "\nMUTANTS = {'10.5-6': [SOLUTIONS['10.5-6']]}\nSOLUTIONS = {'10.5-6': SOLUTIONS['10.5-6']}\n"
    )
    (tmp_path / "key_10_5.py").write_text(mixed)
    problems = selftest(tmp_path, ["10.5"], z)
    assert "mistake 0 of 10.5-6 gets full points" in problems
    assert not any("the solution of 10.5-6" in p for p in problems)
    (tmp_path / "key_10_5.py").write_text("def broken(")
    assert "can't be read" in selftest(tmp_path, ["10.5"], z)[0]
    assert "can't be read" in selftest(tmp_path / "nowhere", ["10.5"], z)[0]


def test_a_key_goes_to_its_process_without_judges_and_with_its_lines_in_place():
    lines = key_setup(KEY).splitlines()
    assert len(lines) == len(KEY.splitlines()) and not any(
        "labkit.grade" in line or "Wrong" in line for line in lines
    )
    assert lines.index("def right(K, n, itemsize):") == KEY.splitlines().index("def right(K, n, itemsize):")


def test_a_question_that_cannot_be_put_is_the_graders_failure_and_nobodys_fault(z):
    def two(rng):
        yield Case(((1.0,), (2.0,)), lambda run: None, 2, world="processes")

    with pytest.raises(GraderFailure, match="simulated"):
        grade_one(Exercise("0-1", "Real", 1, "f", two), "def f(comm, x): return x", zygote=z)

    def deep(rng):
        x = []
        for _ in range(99):
            x = [x]
        yield Case((x,), lambda given: None)

    with pytest.raises(GraderFailure, match="deep"):
        grade_one(Exercise("0-2", "Deep", 1, "f", deep), "def f(x): return 1", zygote=z)
    assert not z.left()


def test_a_judge_that_stumbles_makes_no_error_of_the_students(z):
    def cases(rng):
        def judge_(given):
            if given[0] != 1:
                raise Wrong("not that one")

        yield Case((1,), judge_)

    outcome = grade_one(Exercise("0-1", "First", 1, "f", cases), "def f(x): return 5", zygote=z)
    assert outcome.status == "WRONG" and "can't be judged" in outcome.message and "judge_" in outcome.log


def test_an_outcome_knows_its_statuses():
    exercise = find("10.3-1")
    for status in STATUSES:
        assert Outcome.of_exercise(exercise, status, "why").as_dict()["status"] == status
    with pytest.raises(ValueError, match="status must be one of"):
        Outcome.of_exercise(exercise, "FINE")
