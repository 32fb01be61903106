"""Every argument on a page is short, whole, and checked: a box of class `why` has a test named after it.

A box is named `why-NUMBER-word`; its test is `test_why_NUMBER_word` in this folder, and checks the derivation by symbols
(sympy) or by numbers, without labkit's function for it where labkit has one.
"""

import re
from pathlib import Path

import contents
import myst
import pytest

ROOT = Path(__file__).parents[2]
PARTS = (r"\*Statement\.\*", r"\*(Argument|Sketch)\.\*", r"\*What it does not say\.\*")
LINES, LETTERS = 15, 140  # at most, of a box
LEAST = 1  # boxes a lab: one idea, one argument


def whys(text: str) -> list[tuple[str, str, int]]:
    """(name, body, where it ends) of every why-box of a lab's text."""
    found = []
    for box, options in myst.boxes(text):
        if options.get("class") == "why":
            assert box["title"].startswith("Why"), box["title"]
            found.append((options.get("name", ""), box["body"], box.end()))
    return found


@pytest.mark.parametrize("lab", contents.labs())
def test_a_box_states_argues_and_says_where_it_ends_and_an_experiment_follows(lab):
    text = (ROOT / "notebooks" / f"{lab}.md").read_text(encoding="utf-8")
    boxes = whys(text)
    assert len(boxes) >= LEAST, f"{lab} has {len(boxes)} arguments"
    starts = [text.rindex("\n:::{admonition} Why", 0, end) for _, _, end in boxes]
    for (name, body, end), until in zip(boxes, [*starts[1:], len(text)], strict=True):
        lines = [line for line in body.splitlines() if line.strip()]
        assert len(lines) <= LINES, f"{name} has {len(lines)} lines"
        assert max(map(len, lines)) <= LETTERS, f"{name} has a long line"
        places = [m.start() if (m := re.search(part, body)) else -1 for part in PARTS]
        assert places == sorted(places) and places[0] >= 0, f"{name} lacks one of {PARTS}"
        assert "```{code-cell}" in text[end:until], f"no cell follows {name}"


def test_every_box_has_a_test_of_its_own_and_no_test_outlives_its_box():
    number = {lab: contents.number(lab).replace(".", "-").lower() for lab in contents.labs()}
    names = []
    for lab in contents.labs():
        for name, _, _ in whys((ROOT / "notebooks" / f"{lab}.md").read_text(encoding="utf-8")):
            assert name.startswith(f"why-{number[lab]}-"), f"{lab} has a box named {name!r}"
            names.append(name)
    assert len(names) == len(set(names))
    tests = {
        f"why-{name.replace('_', '-')}"
        for path in Path(__file__).parent.glob("test_*.py")
        for name in re.findall(r"^def test_why_(\w+)\(", path.read_text(encoding="utf-8"), re.M)
    }
    assert tests == set(names)
