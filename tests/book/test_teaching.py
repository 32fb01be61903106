"""The plans name kinds of exercises that their sets have, labs that are there, and running times that were noted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from labkit_book.problems.catalogue import exercise_set

ROOT = Path(__file__).parents[2]
PLAN = (ROOT / "book" / "teaching.md").read_text()
ASKED = re.findall(r"set ([\d.]+|[AB]):? ((?:\*\w+\*(?:, )?)+)", PLAN)


@pytest.mark.parametrize(("name", "kinds"), ASKED)
def test_a_set_has_the_kinds_of_exercises_that_a_plan_asks_of_it(name, kinds):
    assert set(re.findall(r"\w+", kinds)) <= {e.kind for e in exercise_set(name).values()}


def test_every_week_has_a_lab_predictions_a_figure_homework_and_what_comes_of_it():
    weeks = re.findall(r"^\*\*Week (\d+)\.\*\* (.*)\n\n((?:- .*\n)+)", PLAN, re.M)
    assert [int(number) for number, _, _ in weeks] == list(range(1, 13))
    for _, labs, text in weeks:
        assert "{doc}`" in labs
        said = re.findall(r"^- \*([\w ]+):?\*", text, re.M)
        assert said == ["Asked before", "Shown live", "Figure", "At home", "Afterwards"]


def test_the_seconds_that_a_plan_gives_were_noted_when_the_lab_ran():
    noted = json.loads((ROOT / "book" / "run_times.json").read_text())
    given = re.findall(r"</notebooks/(\w+)>` \((\d+) s\)", PLAN)
    assert len(given) >= 14
    assert [lab for lab, s in given if not 0.5 < int(s) / noted[lab]["seconds"] < 2.0] == []


def test_the_day_has_seven_hours():
    assert (
        sum(int(minutes) for minutes in re.findall(r"^\| (\d+) \|", PLAN.partition("## One day")[2], re.M))
        == 420
    )
