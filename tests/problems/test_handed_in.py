"""Measurements can be handed in, and a mistake that is known is named: in the check as in the grader."""

import json
import sys
from types import ModuleType

import numpy as np
import pytest

from labkit_book.grader.grading import grade_one
from labkit_book.grader.zygote import Zygote
from labkit_book.problems import Case, Exercise, Wrong, close, judge, same_array, take
from labkit_book.problems.measured import read
from labkit_book.problems.withheld import replace_inplace

RNG = np.random.default_rng(0)


def noisy(n):
    return n + RNG.uniform()


def test_measurements_come_back_as_they_were_printed():
    asked = []
    data = take(lambda n: asked.append(n) or noisy(n), at=(1, np.int64(2), 3), repeats=4, seed=3)
    assert sorted(asked) == sorted([1, 2, 3] * 4) and asked != [1, 2, 3] * 4
    back = read(str(data), settings=3, repeats=4)
    assert back.at == (1, 2, 3) and np.array_equal(back.values, data.values) and "core" in back.machine


def test_measurements_that_are_none_are_refused():
    line = str(take(noisy, at=(1, 2), repeats=3))
    changed = json.loads(line)
    changed["values"][0][0] += 1
    for text, said in (
        (None, "no line"), ("[1, 2]", "no line"), (line[:-2], "no line"), (json.dumps(changed), "changed"),
        (str(take(float, at=(1, 2), repeats=3)), "a formula"),
    ):  # fmt: skip
        with pytest.raises(Wrong, match=said):
            read(text, 2, 3)
    for settings, repeats in ((3, 3), (2, 4)):
        with pytest.raises(Wrong, match="too few"):
            read(line, settings, repeats)
    for bad in ({"at": ()}, {"repeats": 0}, {"f": lambda n: "words"}):
        with pytest.raises(ValueError, match=r"at must|repeats must|f\(1\) must"):
            take(**{"f": noisy, "at": (1,), **bad})


SEND = """
import numpy as np
def f(comm, x):
    y = np.array([x])
    return comm.recv(y, 0) if comm.rank else comm.send(y, 1)
"""


@pytest.mark.processes
def test_check_and_grader_name_mistakes_alike():
    def is_close(value):
        return lambda given: close(given, value)

    known = Case(
        (4,), is_close(8.0), mistakes=(("that squares it", is_close(16.0)), ("never", is_close("no")))
    )
    double = Exercise("0-1", "Double", "build", 1, "f", lambda rng: iter([known]))
    real = Case(((1.0,), (2.0,)), lambda run: same_array(run.results[1], [1.0]), K=2, world="processes")
    sends = Exercise("0-3", "Send", "build", 1, "f", lambda rng: iter([real]))
    with Zygote(trust=True) as z:  # walls make no difference to what is said
        for exercise, source, status, said in (
            (double, "def f(x): return 2 * x", "PASS", ""),
            (double, "def f(x): return x ** 2", "WRONG", "that squares it"),
            (double, "def f(x): return x", "WRONG", "too small"),
            (sends, SEND, "PASS", ""),
        ):
            space: dict = {}
            exec(source, space)
            verdict = judge(exercise, space["f"], exercise.cases(None))
            outcome = grade_one(exercise, source, zygote=z)
            assert outcome.status == status and verdict.status == ("right" if status == "PASS" else "wrong")
            assert said in outcome.message and verdict.message == outcome.message, (verdict, outcome)


def test_a_function_is_taken_from_our_packages_and_from_nobody_else(monkeypatch):
    monkeypatch.setitem(sys.modules, "elsewhere", elsewhere := ModuleType("elsewhere"))
    monkeypatch.setitem(sys.modules, "elsewhere.blocked", None)  # as one keeps a module from being imported
    monkeypatch.setitem(sys.modules, "labkit.ours", ours := ModuleType("labkit.ours"))
    elsewhere.noisy = ours.noisy = noisy
    assert replace_inplace(noisy, None) == [(ours, "noisy", noisy)]
    assert elsewhere.noisy is noisy and ours.noisy is None
