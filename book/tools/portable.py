"""The text of a notebook as every program shows it, and as the book does.

A lab is written in MyST, of which JupyterLab, VS Code, Colab and GitHub show boxes, hints and references as raw text. So its
notebook gets plain Markdown: a box is a coloured division where there are colours, a hint and an argument fold, a
reference is a link, a citation its authors and year. The book reads the same notebook and puts the written text back (this
is also its extension).

JupyterLab, GitHub and VS Code show or preview every stored output, also that of an answer that the page covers. So a
stored notebook keeps the outputs of cells tagged `hide-output` encoded in their metadata (`covered`); `read` decodes them.
"""

import base64
import copy
import functools
import html
import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import contents
import jupytext
import myst
import nbformat
from docutils import nodes
from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parents[2]
COLOURS = {"predict": "info", "exercise": "info", "why": "success", "tip": "success"}
COLOURS |= {"check-claim": "warning", "verdict": "warning"}
INCLUDED = re.compile(r"^:::\{literalinclude\} (\S+)\n:language: (\w+)\n:::$", re.M)
ARGUMENT = re.compile(r"^\*(Argument|Sketch)\.\*((?s:.*?))(?=^\*What it does not say\.\*)", re.M)
LABEL = re.compile(r"^(?::name: |\()([\w-]+)(?:\)=)?$", re.M)


@functools.cache
def titles() -> Mapping[str, str]:
    """Titles of pages, by the names of their files."""
    pages = [*ROOT.glob("book/*.md"), *contents.sources()]
    return {p.stem: myst.title(p.read_text("utf-8")) for p in pages}


@functools.cache
def works() -> Mapping[str, Any]:
    """What the book cites, by key."""
    entries: Mapping[str, Any] = parse_file(ROOT / "book" / "references.bib").entries
    return entries


@functools.cache
def labels() -> Mapping[str, Path]:
    """Which text each label of a lab stands in."""
    return {name: p for p in ROOT.glob("notebooks/*.md") for name in LABEL.findall(p.read_text("utf-8"))}


def portable(text: str, page: Path) -> str:
    """The MyST `text` of a cell of `page` as plain Markdown; links lead from the notebook beside that text."""

    def address(role: str, target: str) -> str:
        if role == "ref":
            found = labels()[target].with_suffix(".ipynb")
        else:  # a page that is no notebook, or a term of the glossary, has no place beside this one
            place = ROOT / target[1:] if target.startswith("/") else page.parent / target
            found = place.with_suffix(".ipynb")
        known = found.exists() and found.stem != page.stem
        return Path(os.path.relpath(found, page.parent)).as_posix() if known else ""

    def box(found: re.Match[str]) -> str:
        kind, body = myst.options(found)["class"], found["body"].strip()
        if kind == "dropdown":
            summary = f"<summary><b>{html.escape(found['title'])}</b></summary>"
            return f"<details>\n{summary}\n\n{body}\n\n</details>"
        if kind == "why":
            body = ARGUMENT.sub(r"<details>\n<summary><i>\1</i></summary>\n\n\2</details>\n\n", body)
        return f'<div class="alert alert-block alert-{COLOURS[kind]}">\n\n**{found["title"]}**\n\n{body}\n\n</div>'

    def included(found: re.Match[str]) -> str:
        return f"```{found[2]}\n{(page.parent / found[1]).read_text('utf-8').rstrip()}\n```"

    text = INCLUDED.sub(included, myst.plain(text, titles(), works(), address))
    return myst.BOX.sub(box, text)


def covered(nb: Any) -> Any:
    """A copy of `nb` as it is stored, with no output in sight that the page covers."""
    nb = copy.deepcopy(nb)
    for cell in nb.cells:
        if "hide-output" in cell.metadata.get("tags", ()):
            packed = base64.b64encode(zlib.compress(json.dumps(cell.outputs).encode(), 9)).decode()
            cell.metadata["labkit"], cell.outputs = nbformat.from_dict({"outputs": packed}), []
    return nb


def uncover_inplace(nb: Any) -> None:
    """Give the cells of `nb`, as it is stored, the outputs that `covered` has put into their metadata."""
    for cell in nb.cells:
        if stored := cell.metadata.pop("labkit", None):
            outputs = json.loads(zlib.decompress(base64.b64decode(stored["outputs"])))
            cell.outputs = [nbformat.from_dict(output) for output in outputs]


def read(ipynb: Path) -> Any:
    """The notebook `ipynb` with all outputs that its run stored."""
    nb = nbformat.read(ipynb, as_version=4)
    uncover_inplace(nb)
    return nb


def undress_inplace(nb: Any, md: Path) -> None:
    """Give the cells of `nb`, read from the text `md`, what a notebook shows; what the page folds is folded there too.

    A question's code stays in sight: the guess is written there. A lab ends with a link to the next; its page has a button.
    """
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = portable(cell.source, md)
            continue
        if "hide-input" in cell.metadata.get("tags", ()) and "predict(" not in cell.source:
            cell.metadata["jupyter"] = nbformat.from_dict({"source_hidden": True})
    if leads := contents.leads(md.stem):
        metadata = nbformat.from_dict({"tags": ["remove-cell"]})
        nb.cells.append(nbformat.v4.new_markdown_cell(leads, id="labkit-next", metadata=metadata))


def dress_inplace(nb: Any, md: Path) -> None:
    """Put the text `md` and covered outputs back into the notebook `nb` made of it; ValueError if it was not."""
    uncover_inplace(nb)
    leads = [c for c in nb.cells if c.cell_type != "code" and "remove-cell" in c.metadata.get("tags", ())]
    nb.cells = [c for c in nb.cells if c not in leads]
    written = [c for c in jupytext.read(md, fmt="md:myst").cells if c.cell_type == "markdown"]
    shown = [c for c in nb.cells if c.cell_type == "markdown"]
    if [portable(c.source, md) for c in written] != [c.source for c in shown]:
        raise ValueError(f"{md.stem}.ipynb is out of step with {md.name}: run `make notebooks`")
    for cell, text in zip(shown, written, strict=True):
        cell.source = text.source


def _read(app: Any, name: str, source: list[str]) -> None:
    path = Path(app.env.doc2path(name))
    if path.suffix == ".ipynb" and path.with_suffix(".md").exists():
        nb = nbformat.reads(source[0], as_version=4)
        dress_inplace(nb, path.with_suffix(".md"))
        app.env.note_dependency(str(path.with_suffix(".md")))
        source[0] = nbformat.writes(nb)


def _fold(app: Any, doctree: nodes.document) -> None:
    """Fold the argument of a why box, from the paragraph that begins with its word to the one that says where it ends."""
    for box in doctree.findall(lambda n: isinstance(n, nodes.admonition) and "why" in n["classes"]):
        begins = [n for n in box.children if n.astext().startswith(("Argument.", "Sketch."))]
        ends = [n for n in box.children if n.astext().startswith("What it does not say.")]
        if begins and ends:
            word = begins[0].astext().partition(".")[0]
            opening = f'<details class="labkit-argument"><summary>{word}</summary>'
            box.insert(box.index(ends[0]), nodes.raw("", "</details>", format="html"))
            box.insert(box.index(begins[0]), nodes.raw("", opening, format="html"))
            begins[0].remove(begins[0].children[0])  # its word, which the summary says


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _read)
    app.connect("doctree-read", _fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
