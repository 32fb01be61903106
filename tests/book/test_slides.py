"""Every lab gives slides, in which no directive or role stands as raw text and every figure says what it shows."""

from __future__ import annotations

import re
from functools import cache

import contents
import pytest
import slides
from bs4 import BeautifulSoup

LABS = contents.labs()
RAW = re.compile(
    r":::|\{(?:doc|ref|term|cite|cite:t|admonition|code-cell|bibliography)\}|^:(?:class|name):", re.M
)


@cache
def deck(lab):
    return slides.deck(lab).cells


def kinds(cells):
    return [cell.metadata.slideshow.slide_type for cell in cells]


@pytest.mark.parametrize("lab", LABS)
def test_a_lab_gives_a_lecture_of_slides(lab):
    begun = [kind for kind in kinds(deck(lab)) if kind in ("slide", "subslide")]
    assert 20 <= len(begun) <= 110 and begun[0] == "slide"
    assert begun.count("slide") >= 4


@pytest.mark.parametrize("lab", LABS)
def test_nothing_of_myst_is_left_and_nothing_is_lost(lab):
    texts = [cell.source for cell in deck(lab) if cell.cell_type == "markdown"]
    assert [found for text in texts if (found := RAW.search(text))] == []
    page = (slides.ROOT / "notebooks" / f"{lab}.md").read_text()
    assert "".join(texts).count('<div class="box') == page.count("\n:::{admonition}")
    heads = re.findall(r"^#{1,3} .+$", slides.myst.CELL.sub("", page), re.M)
    assert [h for h in heads if slides.myst.plain(h, {}, {}) not in "".join(texts)] == []


@pytest.mark.parametrize("lab", LABS)
def test_a_covered_answer_is_uncovered_by_a_click_and_folded_code_is_not_shown(lab):
    page = (slides.ROOT / "notebooks" / f"{lab}.ipynb").read_text()
    covered = sum(
        "hide-output" in c.metadata.tags for c in slides.nbformat.reads(page, 4).cells if "tags" in c.metadata
    )
    assert kinds(deck(lab)).count("fragment") >= 0.5 * covered
    shown = "".join(
        c.source for c in deck(lab) if c.cell_type == "code" and not c.metadata.transient.remove_source
    )
    assert "my_guess" not in re.sub(r"(?m)^.*guess=my_guess.*$", "", shown)
    assert "use_style()" not in shown


def test_the_page_keeps_what_figures_show_and_asks_no_host_but_that_of_reveal():
    page = BeautifulSoup(slides.page("10_5_all_reduce"), "html.parser")
    alts = [image.get("alt", "") for image in page.find_all("img")]
    assert len(alts) >= 5 and min(map(len, alts)) > 40
    assert any(alt.startswith("Bars of the megabytes sent by each of eight ranks") for alt in alts)
    asked = [x.get("src") or x.get("href") for x in page.find_all(["script", "link", "img", "iframe"])]
    assert {a for a in asked if a and a.startswith("http") and not a.startswith(slides.REVEAL)} == set()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("see {doc}`10_5_network`", "see 10.5 On a network whose speed you set"),
        ("two {term}`ports <port>`, a {term}`round`", "two ports, a round"),
        ("{cite:t}`dean2004` did, as others {cite}`dean2004,chu2006`",
         "Dean and Ghemawat (2004) did, as others (Dean and Ghemawat, 2004; Chu et al., 2006)"),
        ("(here)=\n% a remark\nText", "Text"),
    ],
)  # fmt: skip
def test_roles_become_what_a_page_shows(said, shown):
    assert slides.myst.plain(said, slides.portable.titles(), slides.portable.works()) == shown


def test_of_prose_the_first_sentence_stays_and_lists_and_formulas_with_what_introduces_them():
    prose = "First of all. Then more.\n\nMuch more. It is:\n\n$$x$$\n\nIn the end nothing."
    assert slides.seen(prose) == "First of all.\n\nIt is:\n\n$$x$$"
