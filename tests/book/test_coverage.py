"""Every objective of every lab has an exercise, every exercise an objective, and the page says which."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import contents
import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("coverage_tool", ROOT / "book" / "tools" / "objectives.py")
coverage = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = coverage  # where dataclasses look
spec.loader.exec_module(coverage)


read = cache(coverage.read)


def test_no_objective_is_without_an_exercise_and_no_exercise_without_an_objective():
    labs, sets, _ = read()
    assert coverage.gaps(labs, sets) == []


def test_every_lab_is_there_with_three_objectives_or_more():
    labs, _, _ = read()
    assert {x.name for x in labs} == {
        p.stem for p in (ROOT / "notebooks").glob("*.md") if contents.number(p.stem)
    }
    assert all(3 <= len(x.objectives) <= 6 for x in labs)


def test_the_committed_page_is_what_labs_sets_and_keys_say():
    labs, sets, mutants = read()
    assert (ROOT / "book" / "coverage.md").read_text() == coverage.page(labs, sets, mutants), (
        "run: python book/tools/objectives.py"
    )


def test_the_page_lists_each_objective_with_its_exercises_points_and_mutants():
    labs, sets, mutants = read()
    text = coverage.page(labs, sets, mutants)
    for x, _, objective in coverage.numbered(labs):
        assert objective.replace("|", "&#124;") in text, x.name
    rows = [
        x
        for x in text.splitlines()
        if x.startswith("| ") and not x.startswith(("| After it", "| kind ", "| *"))
    ]
    assert len(rows) == len(coverage.numbered(labs)) and all(line.count("|") == 5 for line in rows)


def test_a_gap_on_either_side_is_named():
    labs, sets, _ = read()
    first = labs[0]
    more = replace(first, objectives=(*first.objectives, "fly"))
    assert any(first.name in g and "'fly'" in g for g in coverage.gaps([more, *labs[1:]], sets))
    exercises = dict(sets[first.set])
    id, e = next(iter(exercises.items()))
    exercises[id] = replace(e, objectives=())
    assert f"exercise {id} is about no objective" in coverage.gaps(labs, {**sets, first.set: exercises})
    exercises[id] = replace(e, objectives=(99,))
    assert any("objective 99" in g for g in coverage.gaps(labs, {**sets, first.set: exercises}))


def test_an_objective_is_practised_as_deep_as_its_verb_says():
    labs, sets, _ = read()
    first = replace(labs[0], objectives=("fly, and prove it in two lines",))
    exercises = sets[first.set]
    e = replace(next(iter(exercises.values())), objectives=(1,), rubric=())
    for kind, missing in (("build", True), ("derive", False)):
        found = coverage.gaps([first], {first.set: {e.id: replace(e, kind=kind)}})
        assert any("nobody practises to 'prove'" in gap for gap in found) == missing, found


def test_objectives_are_read_over_line_breaks_and_a_lab_without_them_is_refused():
    text = "# 3.4 A lab\n\nWords. After this page you can\n\n- do one thing\n  well;\n- do another.\n\n- not this one\n"
    x = coverage.lab("3_4_a_lab", text)
    assert (x.title, x.objectives, x.set) == ("3.4 A lab", ("do one thing well", "do another"), "3.4")
    assert coverage.lab("a_sharded", text).set == "A"
    with pytest.raises(ValueError, match="3_4_a_lab must have a title"):
        coverage.lab("3_4_a_lab", "# 3.4 A lab\n\n- a list\n")
