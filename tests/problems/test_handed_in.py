"""Figures and measurements can be handed in, and a mistake that is known is named: in the check as in the grader."""

from __future__ import annotations

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

from labkit_book.grader.grading import grade_one
from labkit_book.grader.zygote import Zygote
from labkit_book.problems import Case, Exercise, Wrong, close, judge, same_array, take, wire
from labkit_book.problems.drawn import curve, labelled, shown
from labkit_book.problems.measured import read


def picture(unit="ms", scale=1.0):
    figure = Figure()
    ax = figure.subplots()
    ax.plot([3, 1, 2], scale * np.array([30.0, 10, 20]), label="measured")
    ax.scatter([1, 2], [5, 6])
    ax.bar([1, 2], [7, 8])
    ax.set(xlabel="workers", ylabel=f"time ({unit})", xscale="log")
    return figure


def test_a_figure_travels_as_what_it_shows():
    for given in (picture(), picture().axes[0], (picture(), "more")):
        axes = shown(wire.as_sent(given))
        assert (axes["xscale"], axes["ylabel"], axes["bars"].tolist()) == ("log", "time (ms)", [7, 8])
        labelled(axes, "x")
        labelled(axes, "y", "ms")
        curve(axes, [1, 2, 3], [10, 20, 30], "the times")
        curve(axes, [1, 2], [5, 6], "the points")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: shown(wire.as_sent(3.0)), "return the figure"),
        (lambda: labelled(shown(wire.as_sent(Figure(layout=None).subplots())), "y"), "has no label"),
        (lambda: labelled(shown(wire.as_sent(picture())), "y", "s"), "let the label say so"),
        (lambda: curve(shown(wire.as_sent(picture(scale=2))), [1, 2, 3], [10, 20, 30], "the times"), "not the times"),
        (lambda: curve(shown(wire.as_sent(picture())), [1, 2, 3, 4], [1, 2, 3, 4], "a law"), "no curve of 4 points"),
    ],
)  # fmt: skip
def test_what_a_figure_lacks_is_said(asked, said):
    with pytest.raises(Wrong, match=said):
        asked()


def test_an_empty_figure_is_no_figure():
    with pytest.raises(Wrong, match="return the figure"):
        shown(wire.as_sent(Figure()))


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


DRAW = """
import matplotlib.pyplot as plt
def f():
    fig, ax = plt.subplots()
    ax.set_xlabel("time (UNIT)")
    return fig
"""
SEND = """
import numpy as np
def f(comm, x):
    y = np.array([x])
    return comm.recv(y, 0) if comm.rank else comm.send(y, 1)
"""


@pytest.mark.processes
def test_check_and_grader_read_figures_and_name_mistakes_alike():
    def is_close(value):
        return lambda given: close(given, value)

    known = Case(
        (4,), is_close(8.0), mistakes=(("that squares it", is_close(16.0)), ("never", is_close("no")))
    )
    double = Exercise("0-1", "Double", "build", 1, "f", lambda rng: iter([known]))
    plots = Case((), lambda given: labelled(shown(given), "x", "ms"))
    plot = Exercise("0-2", "Plot", "plot", 1, "f", lambda rng: iter([plots]))
    real = Case(((1.0,), (2.0,)), lambda run: same_array(run.results[1], [1.0]), K=2, world="processes")
    sends = Exercise("0-3", "Send", "build", 1, "f", lambda rng: iter([real]))
    with Zygote() as z:
        for exercise, source, status, said in (
            (double, "def f(x): return 2 * x", "PASS", ""),
            (double, "def f(x): return x ** 2", "WRONG", "that squares it"),
            (double, "def f(x): return x", "WRONG", "too small"),
            (plot, DRAW.replace("UNIT", "ms"), "PASS", ""),
            (plot, DRAW.replace("UNIT", "s"), "WRONG", "let the label say so"),
            (sends, SEND, "PASS", ""),
        ):
            space: dict = {}
            exec(source, space)
            verdict = judge(exercise, space["f"], exercise.cases(None))
            outcome = grade_one(exercise, source, zygote=z)
            assert outcome.status == status and verdict.status == ("right" if status == "PASS" else "wrong")
            assert said in outcome.message and verdict.message == outcome.message, (verdict, outcome)
    plt.close("all")
