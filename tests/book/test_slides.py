"""Every lab gives slides, in which no directive or role stands as raw text and every figure says what it shows."""

import re

import contents
import pytest
import slides
from bs4 import BeautifulSoup

RAW = re.compile(
    r":::|\{(?:doc|ref|term|cite|cite:t|admonition|code-cell|bibliography)\}|^:(?:class|name):", re.M
)


@pytest.mark.parametrize("lab", contents.labs())
def test_a_lab_gives_a_lecture_in_which_nothing_of_myst_is_left_and_nothing_is_lost(lab):
    cells = slides.deck(lab).cells
    begun = [kind for cell in cells if "slide" in (kind := cell.metadata.slideshow.slide_type)]
    assert 10 <= len(begun) <= 110 and begun[0] == "slide" and begun.count("slide") >= 4
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert [found for text in texts if (found := RAW.search(text))] == []
    page = (slides.ROOT / "notebooks" / f"{lab}.md").read_text()
    assert "".join(texts).count('<div class="box') == page.count("\n:::{admonition}")
    heads = re.findall(r"^#{1,3} .+$", slides.myst.CELL.sub("", page), re.M)
    assert [h for h in heads if slides.myst.plain(h, {}, {}) not in "".join(texts)] == []


def test_the_page_keeps_what_figures_show_and_asks_no_host_but_that_of_reveal():
    page = BeautifulSoup(slides.page("10_5_all_reduce"), "html.parser")
    alts = [image.get("alt", "") for image in page.find_all("img")]
    assert alts and min(map(len, alts)) > 40
    asked = [x.get("src") or x.get("href") for x in page.find_all(["script", "link", "img", "iframe"])]
    assert {a for a in asked if a and a.startswith("http") and not a.startswith(slides.REVEAL)} == set()
