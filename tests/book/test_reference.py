"""The API reference and the map of the labs: made from the sources, complete, and nothing misread."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "labkit.comm", "labkit.collectives", "labkit.timing", "labkit.network", "labkit.learn", "labkit.compress",
    "labkit.show", "labkit_book.problems",
)  # fmt: skip
# Two need torch; the planner's `Case` has fields made by a function, so that griffe can't tell their defaults.
OTHERS = ("labkit.train", "labkit_book.zero", "labkit_book.planner")


@pytest.fixture(scope="module")
def tool() -> Iterator[object]:
    """A module of book/tools by its name, as Sphinx would import it."""
    sys.path.insert(0, str(ROOT / "book" / "tools"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "book" / "tools"))


@pytest.fixture(scope="module")
def source(tool) -> ModuleType:
    return tool("api_source")


@pytest.fixture(scope="module")
def pages(tool) -> ModuleType:
    return tool("api_pages")


# -- what is documented ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [*ROOMS, "labkit_book.planner"])
def test_every_name_that_a_room_exports_is_there_with_its_words(source, room: str) -> None:
    home = importlib.import_module(room)
    entries = {e.name: e for e in source.room(room)}
    modules = {n for n in home.__all__ if inspect.ismodule(getattr(home, n))}
    assert set(home.__all__) - modules <= set(entries)
    assert not [e.full for e in entries.values() if not e.doc]


def test_every_name_that_a_lab_imports_is_there(source) -> None:
    rooms = {room: {e.name for e in source.room(room)} for room in (*ROOMS, *OTHERS)}
    for module, name in source.imported_by_notebooks():
        room = ".".join(module.split(".")[:2])
        if room in rooms and source.definition(module, name) and not name.startswith("_"):
            assert name in rooms[room], f"{module}.{name}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_call_is_the_one_that_python_itself_knows(source, room: str) -> None:
    """The oracle is inspect.signature, of the imported thing."""
    for e in source.room(room):
        thing = getattr(importlib.import_module(e.home), e.name)
        if e.kind != "function" and not (e.kind == "class" and e.call):
            continue
        known = list(inspect.signature(thing).parameters.values())
        assert list(e.parameters) == [p.name for p in known], e.full
        defaults = [p.name for p in known if p.default is not p.empty]
        assert [n for n in e.parameters if re.search(rf"(?<![\w=]){n}=", e.call)] == defaults, e.full


def test_every_room_has_its_page_in_the_table_of_contents(pages) -> None:
    toc = (ROOT / "_toc.yml").read_text()
    for room in pages.ROOMS:
        page = room.partition(".")[2]
        text = (ROOT / "book" / "api" / f"{page}.md").read_text()
        assert pages.PLACE.findall(text) == [room]
        assert f"book/api/{page}\n" in toc
        assert f"({page}.md)" in (ROOT / "book" / "api" / "index.md").read_text()


# -- how a docstring is read -----------------------------------------------------------------------------------


def lines(pages, doc: str, *names: str, room: str = "labkit.network") -> list[str]:
    return [line for line in pages.body(inspect.cleandoc(doc), names, room) if line]


def test_parameters_are_listed_and_what_is_returned_or_raised_stands_alone(pages) -> None:
    doc = """Do it.

    x: (d,), the vector. eta: a number,
    or a function. K, b: whole numbers; H: another.
    Returns w. Raises ValueError for a bad x.
    """
    assert lines(pages, doc, "x", "eta", "K", "b", "H") == [
        "Do it.",
        "- `x`: (d,), the vector.",
        "- `eta`: a number, or a function.",
        "- `K`, `b`: whole numbers",
        "- `H`: another.",
        "Returns w. Raises ValueError for a bad x.",
    ]


def test_a_word_with_a_colon_that_is_no_parameter_stays_text(pages) -> None:
    assert lines(pages, "Symbols: K workers. Note: x is large.", "y") == [
        "Symbols: K workers. Note: x is large."
    ]


def test_signs_of_markdown_mean_themselves(pages) -> None:
    out = lines(pages, "F_k * x_i <= |w|^2 # [0, 1] and `code_k` ``a*b``, *A Title Here*; $3 or {this}.")
    assert out == [
        r"F\_k \* x\_i \<= \|w\|\^2 \# \[0, 1\] and `code_k` `a*b`, *A Title Here*; \$3 or \{this\}."
    ]


def test_examples_and_formulas_are_kept_to_the_letter(pages) -> None:
    doc = """Words.

        F[k] = max_k *x*

    >>> 1 + 1
    2

    - one,
      and on
    - two
    """
    assert lines(pages, doc) == [
        "Words.", "```{code-block} text", "F[k] = max_k *x*", "```", "```{code-block} pycon", ">>> 1 + 1", "2", "```",
        "- one, and on", "- two",
    ]  # fmt: skip


def test_a_name_of_labkit_is_a_link_to_its_own_room(pages) -> None:
    assert lines(pages, "As ``own_chunk``, not `nothing_here`.") == [
        "As {py:obj}`own_chunk <labkit.collectives.own_chunk>`, not `nothing_here`."
    ]


def test_the_text_of_every_page_has_all_its_names(pages, source) -> None:
    for room in pages.ROOMS:
        text = pages.names_of(room)
        assert text.count("{py:function}") + text.count("{py:class}") + text.count("{py:data}") == len(
            source.room(room)
        )


# -- the map of the labs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab_map(tool) -> ModuleType:
    return tool("lab_map")


def test_every_lab_of_the_book_is_on_the_map_after_those_it_builds_on(lab_map) -> None:
    order = lab_map.contents.labs()
    assert set(order) <= set(lab_map.LABS), "say in book/tools/lab_map.py what the new lab builds on"
    for name in order:
        assert all(order.index(a) < order.index(name) for a in lab_map.LABS[name][2] if a in order)


def test_no_box_hides_another_and_every_line_leads_down(lab_map) -> None:
    labs = lab_map.read()
    at = lab_map.places(labs)
    for lab in labs:
        for other in labs:
            apart = [abs(p - q) for p, q in zip(at[lab.name], at[other.name], strict=True)]
            assert lab is other or apart[0] >= lab_map.BOX[0] or apart[1] >= lab_map.BOX[1]
        assert all(at[a][1] < at[lab.name][1] for a in lab.after if a in at)


def test_what_a_lab_needs_is_read_off_its_code(lab_map) -> None:
    labs = {lab.name: lab for lab in lab_map.read()}
    finale = " ".join(labs["10_7_finale"].needs)
    assert "torch models" in finale and "namespaces" in finale
    assert labs["10_2_minibatch_sgd"].needs == ("uses a GPU if there is one",)
    assert not any("GPU" in need for need in labs["10_9_lower_bounds"].needs)
    assert all(5 <= lab.minutes + (lab.seconds or 60) / 60 <= 45 for lab in labs.values())


def test_the_map_links_every_lab_twice_and_says_where_times_come_from(lab_map) -> None:
    page = lab_map.page()
    for name in lab_map.contents.labs():
        assert f'href="../notebooks/{name}.html"' in page and f"</notebooks/{name}>`" in page
    assert "aria-label=" in page
    assert "Running times are those of" in page or "No running time" in page


def test_the_map_stands_on_its_page() -> None:
    assert "\n% map of the labs\n" in (ROOT / "book" / "map.md").read_text()
    files = yaml.safe_dump(yaml.safe_load((ROOT / "_toc.yml").read_text()))
    assert "book/map" in files and "book/glossary" in files


def test_the_history_gives_each_step_its_primary_reference() -> None:
    steps = {
        "1951": "robbins1951", "DistBelief (2012)": "dean2012", "Hogwild! (2011)": "recht2011",
        "Stale synchronous parallel (2013)": "ho2013", "In 2017": "goyal2017", "Horovod (2017–18)": "sergeev2018",
        "LARS (2017)": "you2017", "LAMB (2019)": "you2020", "ZeRO (2019–20)": "rajbhandari2020",
        "DistributedDataParallel (2020)": "li2020", "FSDP": "zhao2023", "DiLoCo (2023)": "douillard2023",
        "16,384 GPUs": "dubey2024", "100,000 GPUs": "si2025",
    }  # fmt: skip
    text = (ROOT / "book" / "history.md").read_text()
    known = set(re.findall(r"^@\w+\{([\w-]+),", (ROOT / "book" / "references.bib").read_text(), re.M))
    for step, key in steps.items():
        at = text.index(step)
        assert key in known and key in text[max(0, at - 80) : at + 700], step


# -- the PDF ---------------------------------------------------------------------------------------------------


def test_links_of_a_page_lead_inside_the_one_document(tool) -> None:
    inside = tool("pdf").inside
    pages = {"book/index", "notebooks/lab", "notebooks/exercises/set"}
    assert (
        inside("exercises/set.html#claim", "notebooks/lab", pages, True)
        == "#page-notebooks-exercises-set--claim"
    )
    assert inside("../../book/index.html", "notebooks/exercises/set", pages, True) == "#page-book-index"
    assert inside("#here", "notebooks/lab", pages, True) == "#page-notebooks-lab--here"
    assert inside("https://example.org/x#y", "notebooks/lab", pages, True) == "https://example.org/x#y"
    assert inside("label", "book/index", pages, False) == "page-book-index--label"


def test_the_pdf_has_every_page_once_in_order(tool, tmp_path: Path) -> None:
    pdf = tool("pdf")
    (tmp_path / "_config.yml").write_text("title: A book\n")
    (tmp_path / "_toc.yml").write_text(
        "root: a\nparts: [{caption: Labs, chapters: [{file: b, sections: [{file: c}]}]}]\n"
    )
    for name in "abc":
        (tmp_path / f"{name}.html").write_text(
            f"<html><head><link rel=stylesheet href=s.css></head><article class=bd-article><h1 id=top>{name.upper()}"
            "<a class=headerlink>#</a></h1><details><summary>s</summary>hidden</details><a href='b.html#top'>l</a></article>"
        )
    text = pdf.document(tmp_path, tmp_path)
    assert [text.index(f'id="page-{n}--top"') for n in "abc"] == sorted(
        text.index(f'id="page-{n}--top"') for n in "abc"
    )
    assert text.count('href="#page-b--top"') == 3 and "headerlink" not in text
    assert text.count("<details open") == 3 and 'rel="stylesheet"' in text and "Labs" in text
