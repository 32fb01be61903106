"""The table of efforts says what solvers needed, and dashes where nobody has tried."""

from __future__ import annotations

import tomllib

import effort
import pytest

from labkit_book.problems.catalogue import all_exercises
from labkit_book.problems.exercise import Exercise

TWO = [Exercise("10.3-2", "Add", "build", 3, "f"), Exercise("2.2-1", "Wait", "derive", 2, "g")]
SAMPLE = """
[[solver]]
name = "a sample, in this test only"
when = 2026-01-31
[solver.exercises]
"2.2-1" = {tries = 1, hints = 0, minutes = 4, hard = 2, guess = 15}
"10.3-2" = {tries = 3, hints = 1, minutes = 12.5, hard = 4, guess = 30, stuck = "ties | none"}

[[solver]]
name = "another"
when = 2026-02-01
[solver.exercises]
"10.3-2" = {tries = 4, hints = 0, minutes = 8, hard = 4, guess = 40, solved = false}
"""


def rows(data: str) -> list[str]:
    return [line for line in effort.page(TWO, tomllib.loads(data)).splitlines() if line.startswith("| ")]


def test_without_data_every_exercise_has_a_row_of_dashes():
    found = [line for line in rows("") if "exercise" not in line]
    assert found == [
        "| 1. Wait | derive | 2 | – | – | – | – | – |  |",
        "| 2. Add | build | 3 | – | – | – | – | – |  |",
    ]


def test_what_several_solvers_needed_is_a_range_and_who_gave_up_is_said():
    found = [line for line in rows(SAMPLE) if "exercise" not in line]
    assert found[0] == "| 1. Wait | derive | 2 | 2 | 15 | 1 | 0 | 4 |  |"
    assert found[1].startswith(
        "| 2. Add *(given up)* | build | 3 | 4 | 30 to 40 | 3 to 4 | 0 to 1 | 8 to 12.5 |"
    )
    assert found[1].endswith("| ties &#124; none |")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"9.9-1" = {tries = 1, hints = 0, minutes = 1, hard = 1, guess = 3}', "exist"),
        ('"2.2-1" = {tries = 1, hints = 0, minutes = 1, guess = 3}', "hard"),
    ],
)
def test_a_wrong_line_is_refused(line, said):
    with pytest.raises(ValueError, match=said):
        effort.page(
            TWO, tomllib.loads(f'[[solver]]\nname = "x"\nwhen = 2026-01-31\n[solver.exercises]\n{line}')
        )


def test_the_committed_page_is_what_sets_and_data_say():
    data = tomllib.loads(effort.DATA.read_text())
    assert effort.PAGE.read_text() == effort.page([*all_exercises()], data), (
        "run: python book/tools/effort.py"
    )
