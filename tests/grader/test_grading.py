"""The grader says what the notebook's check says, and tests itself before it is believed."""

import pkgutil
import re
from types import SimpleNamespace

import grading_fakes as f
import numpy as np
import pytest

import labkit_book.problems.sets
from labkit_book.grader.grading import grade_one
from labkit_book.grader.key import Key, selftest
from labkit_book.grader.submission import Released
from labkit_book.grader.zygote import Child, Zygote
from labkit_book.problems import Case, Exercise, close, exercise_set, find, wire
from labkit_book.problems.asking import NO_ANSWER, NO_RESULT, Ended, GraderFailure, Wrong
from labkit_book.problems.withheld import holder_of

pytestmark = [pytest.mark.processes, f.needs_walls]


@pytest.fixture(scope="module")
def z():
    with Zygote(setup="import matplotlib.pyplot, scipy.stats, torch") as z:
        yield z


def asked(cases):
    return Exercise("0-1", "Asked", "build", 1, "f", cases)


def test_a_function_among_the_arguments_is_called_where_it_is(z):
    """10.6-3 hands the answer a function that knows the targets: it stays with the grader."""

    def cases(rng):
        secret = float(rng.standard_normal())

        def ask(x, shift):
            if x is None:
                raise ValueError("x must be a number, got None")
            return secret * x + shift

        yield Case((ask, 3.0), lambda given: close(given, 3 * secret + 1))

    assert grade_one(asked(cases), "def f(ask, x): return ask(x, 1)", zygote=z, seed=4).status == "PASS"
    peek = "def f(ask, x): return [c.cell_contents for c in ask.__closure__][0]"
    assert grade_one(asked(cases), peek, zygote=z).points == 0
    for call, said in (
        ("None, 1", "ValueError: x must be a number"),
        ("__import__('numpy').zeros(100_001), 1", "at most 800,000 bytes"),
    ):
        raised = grade_one(asked(cases), f"def f(ask, x): return ask({call})", zygote=z)
        assert raised.status in ("ERROR", "WRONG") and said in raised.message + raised.log


@pytest.mark.parametrize(
    "frame", [b"\0\0", wire.encode([1]), wire.encode({"op": 1}), wire.encode({})], ids=repr
)
def test_what_is_no_reply_is_no_answer(frame):
    line = SimpleNamespace(recv_bytes=lambda most: frame)
    with pytest.raises(Ended, match=NO_ANSWER) as ended:
        Child._exchange(SimpleNamespace(_line=line, most=99, printed=str), b"")
    assert ended.value.status == NO_RESULT


def test_other_questions_are_asked_for_another_seed(z):
    def cases(rng):
        yield Case((float(rng.standard_normal()),), lambda given: close(given, 1.0))

    x = float(np.random.default_rng(11).standard_normal())
    source = f"def f(x): return 1.0 if x == {x!r} else 0.0"
    first = grade_one(asked(cases), source, zygote=z, seed=11)
    assert first.status == "PASS" and not first.message and "seed 11" in first.log
    assert grade_one(asked(cases), source, zygote=z, seed=12).status == "WRONG"


@pytest.mark.parametrize(
    ("value", "status", "said"), [("", "NO_RESULT", "programs"), (", 1.0", "WRONG", "must be")]
)
def test_a_value_is_judged_and_a_blank_one_is_not(z, value, status, said):
    source = f"programs = dict.fromkeys('ABCD'{value})"
    outcome = grade_one(find("10.1-1"), source, name="programs", zygote=z)
    assert outcome.status == status and said in outcome.message


def test_what_one_exercise_asks_for_works_for_labkit_itself_and_in_others(z):
    ring = "from labkit.collectives import ring\nfrom labkit.network import Link\n"
    for id, source in (
        ("10.5-2", "def f(K, n, i): return ring.time(K, n, Link(1e-5, 1e9))"),
        ("10.5-3", "def f(*a): return ring.bytes(3, 12, 8)"),
    ):
        assert "asked to write" not in grade_one(find(id), ring + source, name="f", zygote=z).message


def test_every_name_that_is_withheld_exists():
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

SOLUTIONS = {"10.5-2": right}
MUTANTS = {"10.5-2": [lambda K, n, i: right(K, n, i)]}
"""


def test_a_broken_key_is_found_before_any_grading(z, tmp_path):
    def tested(id, text):
        (tmp_path / f"key_{id.split('-')[0].replace('.', '_')}.py").write_text(text)
        return list(selftest(Key.load(tmp_path, id.split("-")[0]), id, z))

    assert "the solution of 10.5-2 gets WRONG" in tested("10.5-2", KEY)[0]
    assert tested("10.5-1", KEY) == ["the key has no solution of 10.5-1"]
    mixed = (f.KEY / "key_10_5.py").read_text()
    mixed += "\nMUTANTS = {'10.5-4': [SOLUTIONS['10.5-4']]}\nSOLUTIONS = {'10.5-4': SOLUTIONS['10.5-4']}\n"
    assert tested("10.5-4", mixed) == ["mistake 0 of 10.5-4 gets full points"]
    assert tested("2.2-1", "") == ["LOOK_FOR of 2.2-1 has 0 lines, where its rubric has 4"]


def test_a_key_goes_to_its_process_without_judges_and_with_its_lines_in_place(tmp_path):
    (tmp_path / "key_10_5.py").write_text(KEY)
    lines = Key.load(tmp_path, "10.5").setup.splitlines()
    assert len(lines) == len(KEY.splitlines())
    assert not any("labkit_book.problems" in line or "Wrong" in line for line in lines)
    assert lines.index("def right(K, n, itemsize):") == KEY.splitlines().index("def right(K, n, itemsize):")


def test_a_question_that_cannot_be_put_is_the_graders_failure_and_nobodys_fault(z):
    deep = []
    for _ in range(99):
        deep = [deep]
    emulated = Case(((1.0,), (2.0,)), lambda run: None, 2, world="emulated")
    for case, said in ((emulated, "simulated"), (Case((deep,), lambda given: None), "deep")):
        with pytest.raises(GraderFailure, match=said):
            grade_one(asked(lambda rng, case=case: [case]), "def f(*a): return 1", zygote=z)


def test_a_judge_that_stumbles_makes_no_error_of_the_students(z):
    def judge_(given):
        if given[0] != 1:
            raise Wrong("not that one")

    outcome = grade_one(asked(lambda rng: [Case((1,), judge_)]), "def f(x): return 5", zygote=z)
    assert outcome.status == "WRONG" and "can't be judged" in outcome.message and "judge_" in outcome.log


@pytest.mark.parametrize("name", ["10.3", "10.4", "10.5"])
def test_what_a_released_notebook_imports_is_met_once_and_torch_only_where_it_does(name):
    setup = Released.load(name, f.RELEASED).setup
    met = set(re.findall(r"^(?:import|from) ([\w.]+)", setup, re.M)) - {"labkit_book"}
    source = (
        f"import sys\ndef f(): return [name in sys.modules for name in {sorted(met)}], 'torch' in sys.modules"
    )

    def judged(given):
        assert all(given[0]) and given[1] == ("torch" in met), given

    with Zygote(setup=setup) as fresh:
        outcome = grade_one(asked(lambda rng: [Case((), judged)]), source, zygote=fresh)
    assert met and outcome.status == "PASS", outcome
