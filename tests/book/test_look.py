"""The book's colours are the figures', code wraps without changing, and no page gives an answer away before its question."""

from __future__ import annotations

import base64
import html
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import contents
import portable
import pytest
import yaml
from bs4 import BeautifulSoup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from labkit.show import palette
from labkit.show.predict import _amount
from labkit_book.problems import Verdict

ROOT = Path(__file__).resolve().parents[2]
PREDICT = "**Predict first**"  # a box, in the notebook's plain Markdown
LABS = [ROOT / "notebooks" / f"{name}.ipynb" for name in contents.labs()]


def tool(name: str) -> ModuleType:
    """book/tools/`name`.py as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "book" / "tools" / f"{name}.py")
    assert spec and spec.loader
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_colour_has_one_meaning_in_figures_and_pages() -> None:
    css = (ROOT / "book" / "_static" / "labkit.css").read_text(encoding="utf-8")
    root = re.search(r":root \{(.*?)\}", css, re.DOTALL).group(1)  # type: ignore[union-attr]
    ours = {name.upper(): value.upper() for name, value in re.findall(r"--labkit-(\w+): (#\w{6});", root)}
    names = ["INK", "PAPER", "COMPUTE", "WAIT", "COMMUNICATE", "PREDICTED", "SIMULATED", "MEASURED", "GUESS"]
    assert ours == {name: getattr(palette, name).upper() for name in names}


CODE = '''def f(a, b):
    """Two lines,

        one deeper."""
    return {"a": a, "b": f"{b:>3} <&> {a}"}

assert f(1, 2)
'''


def test_a_line_of_code_is_an_element_that_knows_its_indentation_and_no_character_is_lost() -> None:
    page = tool("code_lines").in_lines(highlight(CODE, PythonLexer(), HtmlFormatter()))
    soup = BeautifulSoup(page, "html.parser")
    assert (
        soup.get_text()
        == BeautifulSoup(highlight(CODE, PythonLexer(), HtmlFormatter()), "html.parser").get_text()
    )
    lines = soup.select(".labkit-line")
    assert [line.get_text() for line in lines] == CODE.rstrip("\n").split("\n")
    indents = [int(re.search(r"\d+", str(line.get("style", "0"))).group()) for line in lines]  # type: ignore[union-attr]
    assert indents == [len(line) - len(line.lstrip(" ")) for line in CODE.rstrip("\n").split("\n")]


def test_only_what_has_the_block_s_own_colour_light_and_dark_loses_its_wrapper() -> None:
    code_lines = tool("code_lines")
    full = highlight(CODE, PythonLexer(), HtmlFormatter())
    page = code_lines.unwrapped(full)
    assert BeautifulSoup(page, "html.parser").get_text() == BeautifulSoup(full, "html.parser").get_text()
    wrapped = {
        name for span in BeautifulSoup(page, "html.parser").select("span[class]") for name in span["class"]
    }
    assert {"k", "nf", "sd", "mi"} <= wrapped and not wrapped & set(code_lines.PLAIN)
    options = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]
    for scheme in ("light", "dark"):
        name = options["html_theme_options"][f"pygments_{scheme}_style"]
        css = HtmlFormatter(style=name).get_style_defs(".highlight")
        colour = re.search(r"^\.highlight \{[^}]*\bcolor: (#\w+)", css, re.MULTILINE).group(1)  # type: ignore[union-attr]
        assert all(f".highlight .{plain} {{ color: {colour} }}" in css for plain in code_lines.PLAIN), scheme


def test_what_is_not_pygments_is_left_alone() -> None:
    assert tool("code_lines").in_lines("<p>no block</p>") == "<p>no block</p>"


def test_the_cover_s_figure_is_drawn_from_the_stored_numbers_and_names_the_machine() -> None:
    found = json.loads((ROOT / "book" / "_static" / "cover.json").read_text(encoding="utf-8"))
    drawn = (ROOT / "book" / "_static" / "cover.html").read_text(encoding="utf-8")
    assert drawn == tool("cover_figure").draw_cover(found)
    caption = BeautifulSoup(drawn, "html.parser").find("figcaption").get_text()  # type: ignore[union-attr]
    assert found["where"][1:] in caption and re.search(r"\d{4}-\d\d-\d\d", caption)
    for series in found["ways"].values():
        assert f"{series['measured'][-1]:,.0f} ms" in caption


def outputs(cell: dict[str, Any], name: str) -> list[BeautifulSoup]:
    """The elements of class `name` that a cell has displayed."""
    pages = ["".join(o.get("data", {}).get("text/html", "")) for o in cell.get("outputs", [])]
    return [tag for page in pages for tag in BeautifulSoup(page, "html.parser").select(f".{name}")]  # type: ignore[misc]


def told(text: str, truth: float | str, unit: str) -> bool:
    """Whether `text` has the answer in words. One or two digits give nothing away without their unit."""
    if isinstance(truth, str):
        return False  # the choices are named, all of them
    forms = {_amount(truth), f"{truth:.0f}", f"{truth:.1f}", f"{truth:.2f}", f"{truth:g}"} - {"0", "1"}
    for form in forms:
        follows = r"(?![\d]|[.,]\d)" if len(re.sub(r"\D", "", form)) > 2 else rf"\s*{re.escape(unit or '%')}"
        if abs(float(form.replace(",", "")) - truth) <= 0.005 * abs(truth) and re.search(
            rf"(?<![\d.,]){re.escape(form)}{follows}", text
        ):
            return True
    return False


@pytest.mark.parametrize("path", LABS, ids=[path.stem for path in LABS])
def test_a_lab_asks_before_it_answers_and_does_not_tell(path: Path) -> None:
    """Neither the objectives nor anything from the question to the answer's cell has the number that is asked for."""
    cells = portable.read(path).cells
    source = [cell["source"] for cell in cells]
    head = "\n".join(source).split("\n## ")[0]
    objectives = head.split("After this lab", 1)[-1].split("```")[0]
    asked = [(i, tag) for i, cell in enumerate(cells) for tag in outputs(cell, "labkit-predict")]
    answers = {
        tag["data-key"]: (i, tag) for i, cell in enumerate(cells) for tag in outputs(cell, "labkit-reveal")
    }
    assert len(asked) >= 2, "a lab's main results are predicted first"
    for i, tag in asked:
        question = json.loads(html.unescape(str(tag["data-asked"])))
        j, reveal = answers[question["key"]]
        truth = json.loads(base64.b64decode(str(reveal["data-truth"])))
        assert i < j and "hide-output" in cells[j]["metadata"]["tags"], question["question"]
        assert PREDICT in source[i - 1], "a question stands in a box of its own"
        assert not any(re.search(r"^#+ ", text, re.MULTILINE) for text in source[i:j] if text), "one section"
        box = source[i - 1].rsplit(PREDICT, 1)[1]
        for text in (objectives, box, *source[i:j]):
            assert not told(text, truth, question["unit"]), f"{question['question']} {truth} is told: {text}"


def test_telling_is_noticed() -> None:
    assert told("about 1470 ms in all", 1470, "ms") and told("it is 1,470.", 1470, "ms") is False
    assert told("263,412 of them", 263412, "") and not told("of 8 workers", 8, "ms") and told("8 ms", 8, "ms")
    assert not told("14700", 1470, "ms") and not told("0.4700", 0.47, "") and told("by 0.47 or so", 0.47, "")


@pytest.mark.browser
def test_what_a_check_says_is_not_broken_inside_a_word(window: Any) -> None:
    """JupyterLab has a <pre> break anywhere."""
    message = "the gradient of the straggler, supercalifragilistically late, should have shape (3,)"
    page = window(viewport={"width": 320, "height": 600})
    verdict = Verdict("10.3-1", "Three faults", "wrong", 0, 4, message)._repr_html_()
    page.set_content(f"<style>pre {{ word-break: break-all }}</style>{verdict}")
    lines = page.evaluate("""() => {
      const text = document.querySelector("pre").firstChild, range = document.createRange();
      return [...text.data.matchAll(/[\\w,()]+/g)].map((word) => {
        range.setStart(text, word.index); range.setEnd(text, word.index + word[0].length);
        return range.getClientRects().length;
      });
    }""")
    assert len(lines) > 8 and set(lines) == {1}
