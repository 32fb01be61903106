"""Every objective of every lab has an exercise as deep as its verb, every exercise an objective; a gap is named."""

from dataclasses import replace

import objectives as coverage
import pytest


def test_a_gap_on_either_side_is_named_and_there_is_none():
    labs, sets, _ = coverage.read()
    assert coverage.gaps(labs, sets) == []
    first = labs[0]
    more = replace(first, objectives=(*first.objectives, "fly"))
    assert any(first.name in g and "'fly'" in g for g in coverage.gaps([more, *labs[1:]], sets))
    exercises = dict(sets[first.set])
    id, e = next(iter(exercises.items()))
    for about, said in (((), "no objective"), ((99,), "objective 99")):
        exercises[id] = replace(e, objectives=about)
        gaps = coverage.gaps(labs, {**sets, first.set: exercises})
        assert any(f"exercise {id} is about {said}" in gap for gap in gaps)
    deep = replace(first, objectives=("fly, and prove it in two lines",))
    for kind, missing in (("build", True), ("derive", False)):
        only = replace(e, objectives=(1,), rubric=(), kind=kind)
        found = coverage.gaps([deep], {first.set: {e.id: only}})
        assert any("nobody practises to 'prove'" in gap for gap in found) == missing, found


def test_objectives_are_read_over_line_breaks_and_a_lab_without_them_is_refused():
    text = "# 3.4 A lab\n\nWords. After this page you can\n\n- do one thing\n  well;\n- do another.\n\n- not this one\n"
    x = coverage.lab("3_4_a_lab", text)
    assert (x.title, x.objectives, x.set) == ("3.4 A lab", ("do one thing well", "do another"), "3.4")
    assert coverage.lab("a_sharded", text).set == "A"
    with pytest.raises(ValueError, match="3_4_a_lab must have a title"):
        coverage.lab("3_4_a_lab", "# 3.4 A lab\n\n- a list\n")
