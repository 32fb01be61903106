"""What a page offers beyond itself: feedback, a picture for messengers, slides and PDF; and nothing that is not there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import offered
import pytest
import shared
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
HOME = "https://github.com/Somebody/labs"


@pytest.fixture(
    scope="module", params=[HOME, "https://gitlab.com/some/labs", ""], ids=["GitHub", "GitLab", "none"]
)
def book(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A book of two pages with the footer and the extension of the real one; its address, and where it was built."""
    root = tmp_path_factory.mktemp("book")
    (root / "book" / "_static").mkdir(parents=True)
    shutil.copy(ROOT / "book" / "_static" / "cover.json", root / "book" / "_static")
    options = {
        "local_extensions": {"shared": str(ROOT / "book" / "tools")},
        "config": {
            "templates_path": [str(ROOT / "book" / "_templates")],
            "html_theme_options": {"footer_content_items": ["about.html"]},
        },
    }
    config = {"title": "A book", "sphinx": options, "repository": {"url": request.param}}
    (root / "_config.yml").write_text(yaml.safe_dump(config if request.param else {"sphinx": options}))
    (root / "_toc.yml").write_text("format: jb-book\nroot: index\nchapters: [{file: book/about}]\n")
    (root / "index.md").write_text("# Cover\n\nWords.\n")
    (root / "book" / "about.md").write_text("# What is wrong & why\n\nWords.\n")
    command = [Path(sys.executable).with_name("jupyter-book"), "build", "-q", root]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return request.param, root / "_build" / "html"


def meta(page: Path) -> dict[str, str]:
    soup = BeautifulSoup(page.read_text(), "html.parser")
    return {m.get("property", m.get("name", "")): m.get("content", "") for m in soup.find_all("meta")}


def test_a_page_leads_to_a_new_issue_that_names_it_or_to_none(book: tuple[str, Path]) -> None:
    address, html = book
    footer = BeautifulSoup((html / "book" / "about.html").read_text(), "html.parser").select_one(
        ".component-about"
    )
    links = [a["href"] for a in footer.select("a")][1:]
    wanted = {
        HOME: [f"{HOME}/issues/new?title=book/about%3A%20"],
        "https://gitlab.com/some/labs": [
            "https://gitlab.com/some/labs/-/issues/new?issue[title]=book/about%3A%20"
        ],
    }
    assert links == wanted.get(address, [])


def test_a_messenger_finds_a_picture_at_an_absolute_address_or_none(book: tuple[str, Path]) -> None:
    address, html = book
    said = meta(html / "book" / "about.html")
    picture = html / shared.PICTURE
    if not address:
        assert "og:image" not in said and not picture.exists()
        return
    base = {HOME: "https://somebody.github.io/labs/"}.get(address, "https://some.gitlab.io/labs/")
    assert said["og:image"] == base + shared.PICTURE and said["og:url"] == base + "book/about.html"
    assert said["og:title"] == "What is wrong & why" and said["twitter:card"] == "summary_large_image"
    head = picture.read_bytes()[:24]
    assert head[1:4] == b"PNG" and [int.from_bytes(head[i : i + 4], "big") for i in (16, 20)] == [1200, 630]


# -- slides and PDF, in a folder as the build leaves it -----------------------------------------------------------


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A built book of a lab and a page of prose, both with the footer; slides of the lab; a PDF."""
    footer = (ROOT / "book" / "_templates" / "about.html").read_text()
    html = tmp_path / "_build" / "html"
    for name in (
        "notebooks/lab.ipynb",
        "_build/slides/lab.html",
        "_build/slides/gone.html",
        "_build/book.pdf",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("made")
    for name in ("notebooks/lab.html", "book/index.html", "searchindex.js"):
        (html / name).parent.mkdir(parents=True, exist_ok=True)
        (html / name).write_text(footer)
    at(tmp_path, 100, "notebooks/lab.ipynb", "_build/html/searchindex.js")
    at(tmp_path, 200, "_build/slides/lab.html", "_build/book.pdf")
    return tmp_path


def at(root: Path, seconds: float, *names: str) -> None:
    for name in names:
        os.utime(root / name, (seconds, seconds))


def offers(root: Path, page: str) -> dict[str, str]:
    path = root / "_build" / "html" / page
    links = BeautifulSoup(path.read_text(), "html.parser").select(".labkit-offered a")
    assert all((path.parent / str(a["href"])).is_file() for a in links), "a dead link"
    return {re.sub(r" \(.*", "", a.text): str(a["href"]) for a in links}


def test_pages_lead_to_slides_and_pdf_that_are_there(built: Path) -> None:
    pdf = {"the whole book as a PDF": "../book.pdf"}
    for _ in range(2):  # and say so once
        assert offered.put(built) == 2
        assert offers(built, "notebooks/lab.html") == {"slides": "../slides/lab.html"} | pdf
        assert offers(built, "book/index.html") == pdf


def test_what_is_older_than_its_pages_is_not_offered(built: Path) -> None:
    offered.put(built)
    at(built, 300, "notebooks/lab.ipynb", "_build/html/searchindex.js")
    assert offered.put(built) == 0
    assert not offers(built, "notebooks/lab.html") and not offers(built, "book/index.html")


def test_where_nothing_was_made_a_page_says_nothing(built: Path) -> None:
    shutil.rmtree(built / "_build" / "slides")
    (built / "_build" / "book.pdf").unlink()
    assert offered.put(built) == 0 and not offers(built, "notebooks/lab.html")
    shutil.rmtree(built / "_build" / "html")
    assert offered.put(built) == 0


# -- without JavaScript, from a file ------------------------------------------------------------------------------


@pytest.mark.browser
def test_a_page_with_formulas_says_why_they_stand_raw_and_no_other_does(html: Path) -> None:
    said = {p.relative_to(html).as_posix(): p.read_text() for p in html.rglob("notebooks/*.html")}
    assert len(said) > 10
    for name, text in said.items():
        raw = re.search(r"</h1>\s*<noscript>(.*?)</noscript>", text)
        assert bool(raw) == ('class="math' in text), name
    assert "in TeX" in said["notebooks/10_3_synchronous_sgd.html"]


# -- labkit, for a notebook that was downloaded -----------------------------------------------------------------------


@pytest.mark.browser
def test_a_notebook_s_page_offers_the_wheel_that_its_first_cell_asks_for(html: Path) -> None:
    sources = list((html / "_sources" / "notebooks").rglob("*.ipynb"))
    assert len(sources) > 10
    for source in sources:
        page = html / source.relative_to(html / "_sources").with_suffix(".html")
        (link,) = BeautifulSoup(page.read_text(), "html.parser").select('a[href$=".whl"]')
        wheel = (page.parent / str(link["href"])).resolve()
        assert f'WHEEL = "{wheel.name}"' in source.read_text().replace('\\"', '"')
        with zipfile.ZipFile(wheel) as archive:
            assert {"labkit/__init__.py", "labkit_book/labs/published.toml"} <= set(archive.namelist())
