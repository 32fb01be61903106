"""A guess stays a guess: nothing between a question and its answer says the answer, neither in words, code nor outputs.

What a cell with an answer prints is stored encoded, and covered on the page (`portable.covered`): there the answer is read.
"""

import base64
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contents
import nbformat
import portable
import pytest

ROOT = Path(__file__).resolve().parents[2]
ASKED = re.compile(r'class="labkit-predict" data-asked="([^"]*)"')
TOLD = re.compile(r'class="labkit-reveal" data-key="(\w+)" data-truth="([^"]*)"')
TALKS = re.compile(r".*(?:\bassert |print\(|==|isclose\(|# ).*")  # lines of code whose numbers are results
NUMBER = re.compile(
    r"(?<![\w.])\d[\d,_ \N{NARROW NO-BREAK SPACE}\N{NO-BREAK SPACE}]*(?:\.\d+)?(?:e[+-]?\d+)?"
)


def shown(cell: Any) -> str:
    """What a cell's outputs say in words."""
    outputs = cell.get("outputs", [])
    data = [text for o in outputs for kind, text in o.get("data", {}).items() if kind.startswith("text/")]
    return "\n".join([*data, *(o.get("text", "") for o in outputs)])


def says(text: str, answer: float | str, unit: str) -> str:
    """Where a text holds the answer, or a number to which it rounds; a single digit counts beside its unit only."""
    if isinstance(answer, str):
        return answer if answer in text else ""
    rounded = {float(f"{answer:.{digits}g}") for digits in range(2, 8)}
    for found in NUMBER.finditer(text):
        number = re.sub(r"[^\d.e+-]", "", found[0])
        beside = text[found.end() : found.end() + len(unit) + 1].strip().startswith(unit or "\0")
        if float(number) in rounded and (len(re.sub(r"e.*|[^1-9]", "", number)) > 1 or beside):
            return text[max(0, found.start() - 30) : found.end() + 30]
    return ""


def answers(cells: list[Any]) -> Iterator[tuple[int, int, dict[str, Any], float | str]]:
    """Of each question: the place of its cell and of its answer's, what was asked, and the answer."""
    asked = {}
    for at, cell in enumerate(cells):
        for question in map(json.loads, map(html.unescape, ASKED.findall(shown(cell)))):
            asked[question["key"]] = at, question
        for key, truth in TOLD.findall(shown(cell)):
            yield asked[key][0], at, asked[key][1], json.loads(base64.b64decode(truth))


def told(name: str) -> Iterator[str]:
    """Where a lab tells an answer before it is asked for."""
    path = ROOT / "notebooks" / f"{name}.ipynb"
    stored = nbformat.read(path, as_version=4).cells  # as JupyterLab and its previews show them
    for place, at, question, answer in answers(portable.read(path).cells):
        for cell in [stored[place - 1], *stored[place + 1 : at + 1]]:  # its box, and all that follows
            described = "" if cell is stored[at] else str(cell.metadata.get("mystnb", ""))
            code = cell.source if cell.cell_type == "markdown" else "\n".join(TALKS.findall(cell.source))
            code *= not isinstance(answer, str)  # choices are counted and compared there
            if where := says(f"{shown(cell)}\n{described}\n{code}", answer, question["unit"]):
                yield f"{question['question']!r} is {answer}: {where!r}"


@pytest.mark.parametrize("name", contents.labs())
def test_a_question_stands_in_a_box_of_its_own_and_its_answer_covered_in_the_same_section(name: str) -> None:
    cells = portable.read(ROOT / "notebooks" / f"{name}.ipynb").cells
    found = [*answers(cells)]
    assert found, "a lab's main result is predicted first"
    for place, at, question, _ in found:
        assert place < at and "hide-output" in cells[at].metadata.tags, question
        assert "**Predict first**" in cells[place - 1].source, question
        assert not any(
            re.search(r"^#+ ", c.source, re.M) for c in cells[place:at] if c.cell_type == "markdown"
        )


@pytest.mark.parametrize("name", contents.notebooks())
def test_nothing_on_the_way_to_an_answer_tells_it(name: str) -> None:
    assert [*told(name)] == []


def test_an_answer_is_found_as_it_stands_and_rounded() -> None:
    for text in ("it is 3,246 ms", "about 3200 ms", "3246.0", "3.2e3", "about 3 250"):
        assert says(text, 3246.0, "ms"), text
    assert says("5 workers", 5, "workers") and not says("5 seeds", 5, "workers")
    assert not says("3245 and 13246, 32.46 or x3246", 3246.0, "ms")
