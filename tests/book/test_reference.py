"""The API reference and the map of the labs: made from the sources, complete, and nothing misread."""

import importlib
import inspect

import api_pages
import contents
import lab_map
import pytest
from docutils.core import publish_doctree

# -- what is documented ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", api_pages.ROOMS)
def test_every_name_that_a_room_shows_has_words_and_a_place_on_its_page(room: str) -> None:
    pytest.importorskip("torch")
    shown = {
        name for module, read in api_pages.modules(room).items() for name in api_pages.names(module, read)
    }
    assert set(getattr(importlib.import_module(room), "__all__", ())) - shown <= {
        m.rpartition(".")[2] for m in api_pages.modules(room)
    }
    place = contents.ROOT / "book" / "api" / f"{room.partition('.')[2]}.md"
    assert api_pages.PLACE.findall(place.read_text(encoding="utf-8")) == [room]


# -- how a docstring is read: docutils says what a reader would see ------------------------------------------------


def read(doc: str, *names: str) -> list[str]:
    """The paragraphs, items and blocks of a docstring as they are shown."""
    text = "\n".join(api_pages.body(inspect.cleandoc(doc), set(names), "labkit.none"))
    tree = publish_doctree(text, settings_overrides={"report_level": 1, "halt_level": 2})
    leaves = ("paragraph", "literal_block", "doctest_block")
    return [f"{node.tagname}: {node.astext()}" for node in tree.findall() if node.tagname in leaves]


def test_parameters_are_listed_and_what_is_returned_or_raised_stands_alone() -> None:
    doc = """Do it. Note: all.

    x: (d,), the vector. eta: a number,
    or a function. K, b: whole numbers; H: another.
    Returns w. Raises ValueError for a bad x.
    """
    said = [
        "Do it. Note: all.", "x: (d,), the vector.", "eta: a number, or a function.", "K, b: whole numbers",
        "H: another.", "Returns w. Raises ValueError for a bad x.",
    ]  # fmt: skip
    assert read(doc, "x", "eta", "K", "b", "H") == [f"paragraph: {words}" for words in said]


@pytest.mark.parametrize(("written", "shown"), [
    ("F_k * x_i <= |w|^2 # [0, 1] and x_, `a`", "F_k * x_i <= |w|^2 # [0, 1] and x_, a"),
    ("`code_k`s ``a*b``, *A Title Here*; $3 or {this}.", "code_ks a*b, A Title Here; $3 or {this}."),
    ("1. is a number. B. is one, too", "1. is a number. B. is one, too"),
    ("- 3 is less than 2", "- 3 is less than 2"),
    (":x: and + y", ":x: and + y"),
])  # fmt: skip
def test_signs_of_restructuredtext_mean_themselves(written: str, shown: str) -> None:
    tree = publish_doctree(api_pages.inline(written, "labkit.none"), settings_overrides={"halt_level": 2})
    assert tree.astext() == shown


def test_examples_formulas_and_lists_are_kept() -> None:
    doc = """Words.

        F[k] = max_k *x*

    >>> 1 + 1
    2

    - one,
      and on
    - two
    """
    blocks = ["literal_block: F[k] = max_k *x*", "doctest_block: >>> 1 + 1\n2"]
    assert read(doc) == ["paragraph: Words.", *blocks, "paragraph: one, and on", "paragraph: two"]


def test_a_name_of_labkit_is_a_link_to_its_own_room() -> None:
    found = api_pages.inline("``own_chunk``, not `nothing_here`.", "labkit.network")
    assert found == ":py:obj:`own_chunk <labkit.collectives.ring.own_chunk>`, not ``nothing_here``."


# -- the map of the labs ---------------------------------------------------------------------------------------


def test_every_lab_of_the_book_is_on_the_map_after_those_it_builds_on() -> None:
    order = contents.labs()
    assert set(order) <= set(lab_map.LABS), "say in book/tools/lab_map.py what the new lab builds on"
    for name in order:
        assert all(order.index(a) < order.index(name) for a in lab_map.LABS[name][2] if a in order)


def test_no_box_hides_another_and_every_line_leads_down() -> None:
    at = lab_map.places()
    for name, place in at.items():
        for other in at.keys() - {name}:
            apart = [abs(p - q) for p, q in zip(place, at[other], strict=True)]
            assert apart[0] >= lab_map.BOX[0] or apart[1] >= lab_map.BOX[1]
        assert all(at[a][1] < place[1] for a in lab_map.LABS[name][2] if a in at)
