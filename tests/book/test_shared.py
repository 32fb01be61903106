"""What a book offers beyond its pages comes from one address: launch buttons, feedback, a picture for messengers; slides, a
PDF and the wheel where they have been made. Without an address nothing is broken."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import build
import first_cell
import lean_pages
import nbformat
import pytest
import shared
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
HUB, LAB = "https://github.com/Somebody/labs", "https://gitlab.com/some/labs"
PAGE = "notebooks/lab"


def project(root: Path, url: str = "") -> Path:
    (root / "_config.yml").write_text(yaml.safe_dump({"repository": {"url": url}}))
    return root


@pytest.mark.parametrize(
    "wrong", ["https://example.org/x/y", "git@github.com:a/b.git", "https://github.com/a"]
)
def test_an_address_that_no_button_could_use_is_refused(tmp_path: Path, wrong: str) -> None:
    assert first_cell.address(project(tmp_path, HUB)) == HUB
    assert first_cell.address(project(tmp_path)) == first_cell.address(tmp_path / "nothing") == ""
    with pytest.raises(ValueError, match=r"^repository\.url in _config\.yml must be .*got '"):
        first_cell.address(project(tmp_path, wrong))


WEEKLY = [
    pytest.param(address, id=name, marks=pytest.mark.weekly)
    for name, address in (("GitLab", LAB), ("none", ""))
]


@pytest.fixture(scope="module", params=[pytest.param(HUB, id="GitHub"), *WEEKLY])
def book(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A book of prose and a lab with the footer, buttons and extension of the real one; its address, and its pages."""
    root, address = tmp_path_factory.mktemp("book"), request.param
    text = (ROOT / "_config.yml").read_text()
    marked = re.search(r"^# repository:\n(?:#.*\n)+", text, re.M)[0].replace("\n# ", "\n").removeprefix("# ")
    config = {"templates_path": [str(ROOT / "book" / "_templates")], "html_copy_source": True}
    config |= {"html_theme_options": {"footer_content_items": ["about.html"]}}
    options = {"local_extensions": {"shared": str(ROOT / "book" / "tools")}, "config": config}
    config = {"title": "A book", "sphinx": options, "execute": {"execute_notebooks": "off"}}
    config |= yaml.safe_load(marked.replace("https://github.com/owner/name", address)) if address else {}
    (root / "_config.yml").write_text(yaml.safe_dump(config))
    chapters = "[{file: book/about}, {file: notebooks/lab}]"
    (root / "_toc.yml").write_text(f"format: jb-book\nroot: index\nchapters: {chapters}\n")
    (root / "book").mkdir()
    (root / "book" / "about.md").write_text("# What is wrong & why\n\nWords.\n")
    (root / "index.md").write_text("# Cover\n\nWords.\n")
    nb = nbformat.v4.new_notebook()
    nb.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nb.cells = [nbformat.v4.new_markdown_cell("# A page"), nbformat.v4.new_code_cell("1 + 1")]
    first_cell.put_inplace(nb, address)
    (root / "notebooks").mkdir()
    nbformat.write(nb, root / f"{PAGE}.ipynb")
    command = [Path(sys.executable).with_name("jupyter-book"), "build", "-q", root]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return address, root / "_build" / "html"


@pytest.mark.weekly
def test_buttons_lead_to_the_notebook_in_the_repository_and_none_is_broken(book: tuple[str, Path]) -> None:
    address, html = book
    text = (html / f"{PAGE}.html").read_text()
    found = BeautifulSoup(text, "html.parser").select(".bd-header-article a.btn")
    links = {str(a["href"]).partition("title")[0] for a in found} - {
        f"../{first_cell.PLACE}/{first_cell.WHEEL}"
    }
    ipynb = f"{PAGE}.ipynb"
    wanted = {f"../_sources/{ipynb}"}
    if address:  # to say what is wrong with this page
        wanted.add(f"{HUB}/issues/new?" if address == HUB else f"{LAB}/-/issues/new?issue[")
    if address == HUB:
        wanted.add(f"https://mybinder.org/v2/gh/Somebody/labs/main?urlpath=lab/tree/{ipynb}")
        wanted.add(f"https://colab.research.google.com/github/Somebody/labs/blob/main/{ipynb}")
    elif address:
        wanted.add(f"https://mybinder.org/v2/gl/some%2Flabs/main?urlpath=lab/tree/{ipynb}")
    assert links == wanted and "REPOSITORY" not in text
    assert first_cell.address_in(nbformat.read(html / "_sources" / ipynb, as_version=4)) == address


def test_a_page_says_what_it_is_about_and_where_it_is_at_home_a_messenger_finds_a_picture() -> None:
    page = (
        "<title>Who &amp; why &#8212; A book</title><h1>Who</h1><p class=x>5 min</p><p>Some <b>words</b>.</p>"
    )
    assert lean_pages.about(page, "", "a.html") == dict.fromkeys(
        ("description", "og:description"), "Some words."
    )
    base = shared.home(HUB)
    said = lean_pages.about(page, base, "a.html")
    assert said["og:url"] == "https://somebody.github.io/labs/a.html" and said["og:title"] == "Who & why"
    assert (ROOT / "book" / said["og:image"].removeprefix(base)).exists()


# -- slides and PDF, in a folder as the build leaves it; the wheel -----------------------------------------------------


WHOLE = ("_build/book.pdf", "_build/epub/book.epub")


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A built book of a lab and a page of prose, both with the footer; slides of the lab; a PDF and an EPUB."""
    footer = (ROOT / "book" / "_templates" / "about.html").read_text()
    made = ["notebooks/lab.ipynb", "_build/slides/lab.html", "_build/slides/gone.html", *WHOLE]
    pages = [f"_build/html/{name}" for name in ("notebooks/lab.html", "book/index.html", "searchindex.js")]
    for name in [*made, *pages]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(footer if name in pages else "made")
    at(tmp_path, 100, "notebooks/lab.ipynb", "_build/html/searchindex.js")
    at(tmp_path, 200, "_build/slides/lab.html", *WHOLE)
    return tmp_path


def at(root: Path, seconds: float, *names: str) -> None:
    for name in names:
        os.utime(root / name, (seconds, seconds))


def offers(root: Path, page: str) -> dict[str, str]:
    path = root / "_build" / "html" / page
    links = BeautifulSoup(path.read_text(), "html.parser").select(".labkit-offered a")
    assert all((path.parent / str(a["href"])).is_file() for a in links), "a dead link"
    return {re.sub(r" \(.*", "", a.text): str(a["href"]) for a in links}


def test_pages_lead_to_slides_pdf_and_epub_that_are_there_and_no_older_than_they(built: Path) -> None:
    whole = {"the whole book as a PDF": "../book.pdf", "the whole book as an EPUB": "../book.epub"}
    for _ in range(2):  # and say so once
        assert build.offer(built) == 2
        assert offers(built, "notebooks/lab.html") == {"slides": "../slides/lab.html"} | whole
        assert offers(built, "book/index.html") == whole
    at(built, 300, "notebooks/lab.ipynb", "_build/html/searchindex.js")
    assert build.offer(built) == 0
    assert not offers(built, "notebooks/lab.html") and not offers(built, "book/index.html")
    shutil.rmtree(built / "_build" / "html")
    assert build.offer(built) == 0


@pytest.mark.browser  # when the book has been built
@pytest.mark.weekly
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
