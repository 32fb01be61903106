"""The grader says what the notebook's check says, and tests itself before it is believed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from labkit_book.grader.grading import grade_one
from labkit_book.grader.key import Key, selftest
from labkit_book.grader.outcome import STATUSES, Outcome
from labkit_book.grader.submission import Released
from labkit_book.grader.zygote import Zygote
from labkit_book.problems import Case, Exercise, close, exercise_set, find, judge
from labkit_book.problems.asking import GraderFailure, Wrong

pytestmark = pytest.mark.processes
KEYS = Path(__file__).parents[1] / "problems"
SAMPLE = {  # of each set one exercise; of its mistakes the first three: all of them agree, but that takes minutes
    "2.2": 2, "10.1": 4, "10.3": 0, "10.4": 4, "10.5": 4, "10.6": 2, "10.9": 2, "A": 1, "B": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def z():
    with Zygote() as z:
        yield z


@pytest.mark.parametrize("name", SAMPLE)
def test_the_grader_says_what_the_check_says(z, name):
    key = Key.load(KEYS, name)
    exercise = list(exercise_set(name).values())[SAMPLE[name]]
    cases = list(exercise.cases(np.random.default_rng(5)))
    entries = [("SOLUTIONS[{!r}]", key.solutions[exercise.id])]
    entries += [(f"MUTANTS[{{!r}}][{i}]", key.mutants[exercise.id][i]) for i in range(3)]
    for which, answer in entries:
        verdict = judge(exercise, answer, cases)
        source = f"answer_ = {which.format(exercise.id)}"
        outcome = grade_one(exercise, source, cases, setup=key.setup, name="answer_", zygote=z)
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

    exercise = Exercise("0-1", "Ask", "build", 1, "f", cases)
    assert grade_one(exercise, "def f(ask, x): return ask(x, 1)", zygote=z, seed=4).status == "PASS"
    peek = "def f(ask, x): return [c.cell_contents for c in ask.__closure__][0]"
    assert grade_one(exercise, peek, zygote=z).status == "ERROR"
    raised = grade_one(exercise, "def f(ask, x): return ask(None, 1)", zygote=z)
    assert raised.status == "ERROR" and "ValueError: x must be a number" in raised.message


UNSPEAKABLE = """
class Unspeakable(Exception):
    def __str__(self):
        raise {}
def f(*args):
    raise Unspeakable
"""


@pytest.mark.parametrize("worse", ["ValueError('worse')", "SystemExit", "KeyboardInterrupt"])
@pytest.mark.parametrize("K", [0, 2])
def test_an_exception_that_cannot_say_what_it_is_is_reported_by_its_type(z, worse, K):
    case = Case([(1,), (2,)] if K else (1,), lambda given: close(given, 1), K=K)
    exercise = Exercise("0-1", "Say it", "build", 1, "f", lambda rng: iter([case]))
    source, space = UNSPEAKABLE.format(worse), {}
    exec(source, space)
    verdict = judge(exercise, space["f"], [case])
    outcome = grade_one(exercise, source, zygote=z)
    assert verdict.status == "wrong" and outcome.status == "ERROR"
    said = "rank 0 raised Unspeakable" if K else "it raised Unspeakable"
    assert verdict.message.splitlines()[0] == outcome.message.splitlines()[0] == said


@pytest.mark.parametrize(
    "line, hint",
    [
        ("total = total + x", "is its own there: give it one before this line"),
        ("total = numpy.sum(x)", "put what it needs, imports too, into the same cell"),
        ("import torchvision", "does not have that package"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "without a network"),
    ],
)
def test_what_went_wrong_has_a_hint_of_its_own(z, line, hint):
    exercise = Exercise(
        "2.2-1", "a sum", "build", 1, "f", lambda rng: iter([Case((2.0,), lambda given: None)])
    )
    source = f"total = 0\ndef f(x):\n    {line}\n    return total"
    outcome = grade_one(exercise, source, list(exercise.cases(None)), name="f", zygote=z)
    assert outcome.status == "ERROR" and hint in str(outcome.message), outcome


def test_other_questions_are_asked_for_another_seed(z):
    def cases(rng):
        yield Case((float(rng.standard_normal()),), lambda given: close(given, 1.0))

    exercise = Exercise("0-1", "Seeds", "build", 1, "f", cases)
    x = float(np.random.default_rng(11).standard_normal())
    source = f"def f(x): return 1.0 if x == {x!r} else 0.0"
    first = grade_one(exercise, source, zygote=z, seed=11)
    assert first.status == "PASS" and "seed 11" in first.log
    assert grade_one(exercise, source, zygote=z, seed=12).status == "WRONG"


def test_a_value_is_judged_and_a_blank_one_is_not(z):
    exercise = find("2.2-1")
    blank = grade_one(exercise, "far_ahead = dict.fromkeys(['around', 'posted'])", name="far_ahead", zygote=z)
    assert blank.status == "NO_RESULT" and "far_ahead" in blank.message
    wrong = grade_one(
        exercise, "far_ahead = dict.fromkeys(['around', 'posted'], 1.0)", name="far_ahead", zygote=z
    )
    assert wrong.status == "WRONG" and "should have shape" in wrong.message


@pytest.mark.parametrize(
    "use", ["from labkit.collectives import ring\ndef f(*a): return ring.bytes(*a)",
            "import labkit.collectives as c\ndef f(*a): return getattr(c.ring, 'by' + 'tes')(*a)",
            "from labkit.collectives import Torus\ndef f(K, *a): return Torus(K).bytes(K, *a)",
            "from labkit.collectives import Collective, ring\ndef f(*a): return Collective.bytes(ring, *a)",
            "import labkit.collectives\ndef f(*a): return vars(labkit.collectives)['reduce_scatter'].bytes(*a)"]
)  # fmt: skip
def test_what_an_exercise_asks_for_is_not_there_to_be_called(z, use):
    outcome = grade_one(find("10.5-3"), use, name="f", zygote=z)
    assert outcome.status == "WRONG" and "is what you are asked to write" in outcome.message


def test_what_is_withheld_works_for_labkit_itself_and_for_other_exercises(z):
    uses = "from labkit.collectives import ring\nfrom labkit.network import Link\n"
    uses += "def f(K, n, i): return ring.time(K, n, Link(1e-5, 1e9))"
    assert "asked to write" not in grade_one(find("10.5-3"), uses, name="f", zygote=z).message
    calls = "from labkit.collectives import ring\ndef f(K, a, b): return ring.bytes(K, 12, 8)"
    assert "asked to write" not in grade_one(find("10.5-4"), calls, name="f", zygote=z).message


def test_every_name_that_is_withheld_exists():
    import pkgutil

    import labkit_book.problems.sets
    from labkit_book.problems.withheld import holder_of

    for module in pkgutil.iter_modules(labkit_book.problems.sets.__path__):
        for exercise in exercise_set(module.name[1:].replace("_", ".")).values():
            for full in exercise.withheld:
                assert callable(getattr(*holder_of(full))), (exercise.id, full)


KEY = """
import numpy as np
from labkit_book.problems import Case
from labkit_book.problems.exercise import Wrong

def right(K, n, itemsize):
    return [8 * n + K * itemsize] * K

SOLUTIONS = {"10.5-3": right}
MUTANTS = {"10.5-3": [lambda K, n, i: right(K, n, i)]}
"""


def test_a_broken_key_is_found_before_any_grading(z, tmp_path):
    real = (KEYS / "key_10_5.py").read_text()
    (tmp_path / "key_10_5.py").write_text(KEY)
    assert "the solution of 10.5-3 gets WRONG" in selftest(tmp_path, "10.5-3", z)[0]
    assert selftest(tmp_path, "10.5-1", z) == ["the key has no solution of 10.5-1"]
    mixed = (
        real + "\nMUTANTS = {'10.5-6': [SOLUTIONS['10.5-6']]}\nSOLUTIONS = {'10.5-6': SOLUTIONS['10.5-6']}\n"
    )
    (tmp_path / "key_10_5.py").write_text(mixed)
    assert selftest(tmp_path, "10.5-6", z) == ["mistake 0 of 10.5-6 gets full points"]
    (tmp_path / "key_10_5.py").write_text("def broken(")
    assert "can't be read" in selftest(tmp_path, "10.5-1", z)[0]
    assert "can't be read" in selftest(tmp_path / "nowhere", "10.5-1", z)[0]
    (tmp_path / "key_2_2.py").write_text("")
    assert selftest(tmp_path, "2.2-6", z) == ["LOOK_FOR of 2.2-6 has 0 lines, where its rubric has 3"]


def test_a_key_goes_to_its_process_without_judges_and_with_its_lines_in_place(tmp_path):
    (tmp_path / "key_10_5.py").write_text(KEY)
    lines = Key.load(tmp_path, "10.5").setup.splitlines()
    assert len(lines) == len(KEY.splitlines()) and not any(
        "labkit_book.problems" in line or "Wrong" in line for line in lines
    )
    assert lines.index("def right(K, n, itemsize):") == KEY.splitlines().index("def right(K, n, itemsize):")


def test_a_question_that_cannot_be_put_is_the_graders_failure_and_nobodys_fault(z):
    def two(rng):
        yield Case(((1.0,), (2.0,)), lambda run: None, 2, world="emulated")

    with pytest.raises(GraderFailure, match="simulated"):
        grade_one(Exercise("0-1", "Real", "build", 1, "f", two), "def f(comm, x): return x", zygote=z)

    def deep(rng):
        x = []
        for _ in range(99):
            x = [x]
        yield Case((x,), lambda given: None)

    with pytest.raises(GraderFailure, match="deep"):
        grade_one(Exercise("0-2", "Deep", "build", 1, "f", deep), "def f(x): return 1", zygote=z)
    assert not z.left()


def test_a_judge_that_stumbles_makes_no_error_of_the_students(z):
    def cases(rng):
        def judge_(given):
            if given[0] != 1:
                raise Wrong("not that one")

        yield Case((1,), judge_)

    outcome = grade_one(Exercise("0-1", "First", "build", 1, "f", cases), "def f(x): return 5", zygote=z)
    assert outcome.status == "WRONG" and "can't be judged" in outcome.message and "judge_" in outcome.log


def test_an_outcome_knows_its_statuses():
    for status in STATUSES:
        assert Outcome("0-1", "One", status, 0, 1).open == (status in ("NEEDS_HUMAN", "GRADER_ERROR"))
    with pytest.raises(ValueError, match="status must be one of"):
        Outcome("0-1", "One", "FINE", 0, 1)


def test_what_released_notebooks_import_is_imported_once_and_not_by_every_process_of_an_answer(z):
    released = [Released.load(name, KEYS.parents[1] / "notebooks" / "exercises") for name in Key.sets(KEYS)]
    setups = {stub.setup for book in released for stub in book.stubs.values()}
    names = set(re.findall(r"^(?:import|from) ([\w.]+)", "\n".join(setups), re.M))
    large = sorted(n for n in names if n.partition(".")[0] in ("torch", "matplotlib", "scipy", "numpy"))
    assert {"torch", "matplotlib.pyplot", "scipy.stats"} <= {*large}
    source = f"import sys\nmet = sum(name in sys.modules for name in {large})\ndef f(): return met"
    exercise = Exercise(
        "0-1", "Met", "build", 1, "f", lambda rng: iter([Case((), lambda given: close(given, len(large)))])
    )
    for _ in range(2):
        outcome = grade_one(exercise, source, zygote=z)
        assert outcome.status == "PASS", (large, outcome)
        z.close()  # a server that is started anew meets them anew
