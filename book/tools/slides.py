"""Reveal slides of the labs, from their executed notebooks: `python book/tools/slides.py [LAB ...]`, _build/slides/LAB.html.

nbconvert makes them; here is said where a slide begins: at a heading, a box, a paragraph. Of a paragraph it shows the
first sentence, lists and formulas; all of it goes to the speaker's notes (key S). The code that follows stands below it;
folded code is left out, and a covered answer comes at a click. reveal.js is fetched by the browser if no folder
_build/slides/reveal.js is there; where it does not come, the slides stand in one column.
"""

import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

import build
import contents
import myst
import nbformat
import portable
from nbconvert.exporters import SlidesExporter
from nbformat import NotebookNode as Cell

from labkit_book.labs.figures import names, script

ROOT = Path(__file__).resolve().parents[2]
REVEAL = "https://unpkg.com/reveal.js@5.2.1"
PIECE = re.compile(r"(^:::\{admonition\}[\s\S]*?^:::$|^#{1,4} .+$)", re.M)
KEPT = re.compile(r"^(?:[-*] |\||\d+\. |\\begin)|\$\$", re.M)  # lists, tables and formulas
SENTENCE = re.compile(r"(?<=[.:?!])\s+(?=[*$`]?[A-Z])")


def seen(prose: str) -> str:
    """What a slide shows of prose: its first sentence, and lists, tables and formulas."""
    first, *others = re.split(r"\n\s*\n", prose.strip())
    kept = [paragraph for paragraph in others if KEPT.search(paragraph)]
    return "\n\n".join([first if KEPT.search(first) else SENTENCE.split(first)[0], *kept])


def text(source: str) -> Iterator[Cell]:
    """The cells that show a text cell, and those that only the speaker sees."""
    head = ""
    for part in PIECE.split(myst.plain(source, portable.titles(), portable.works())):
        kind = "slide" if re.match("##? ", head) else "subslide"
        if part.startswith("#"):
            head += f"{part}\n\n"
            continue
        if part.startswith(":::"):
            box, options = next(myst.boxes(part + "\n"))
            inside = f"\n\n**{box['title']}**\n\n{box['body']}\n\n"
            yield _text(kind, f'{head}<div class="box {options["class"]}">{inside}</div>')
        elif part.strip():
            yield _text(kind, head + seen(part))
            yield _text("notes", part)
        else:
            continue
        head = ""
    if head:
        yield _text("slide", head)


def _text(kind: str, said: str) -> Cell:
    return nbformat.v4.new_markdown_cell(said, metadata={"slideshow": {"slide_type": kind}})


def code(cell: Cell, kind: str) -> list[Cell]:
    """The cells that show a code cell, what the page hides left out; a covered answer apart."""
    tags = {*cell.metadata.get("tags", ())}
    outputs = [] if "remove-output" in tags else cell.outputs
    alt = escape(cell.metadata.get("mystnb", {}).get("image", {}).get("alt", ""))
    for data in (output.data for output in outputs if "data" in output):
        if "image/png" in data:  # as HTML: nbconvert's own image has no place for what the figure shows
            png = data.pop("image/png").strip()
            data["text/html"] = f'<img alt="{alt}" src="data:image/png;base64,{png}">'
    hidden = "labkit-predict" in str(outputs) or "hide-input" in tags
    if "remove-cell" in tags or (hidden and not outputs):
        return []
    if "hide-output" not in tags or hidden:
        return [_code(cell, kind, hidden, outputs)]
    return [_code(cell, kind, False, []), _code(cell, "fragment", True, outputs, "-output")]


def _code(cell: Cell, kind: str, hidden: bool, outputs: list[Cell], name: str = "") -> Cell:
    metadata = {"slideshow": {"slide_type": kind}, "transient": {"remove_source": hidden}}
    return nbformat.from_dict({**cell, "id": cell.id + name, "outputs": outputs, "metadata": metadata})


def deck(lab: str) -> Cell:
    """The lab's notebook in slides."""
    path = ROOT / "notebooks" / f"{lab}.ipynb"
    notebook = portable.read(path)
    portable.dress_inplace(notebook, path.with_suffix(".md"))
    cells: list[Cell] = []
    for cell in notebook.cells:
        below = cells and cells[-1].cell_type == "markdown"
        kind = "-" if below else "subslide"
        cells += text(cell.source) if cell.cell_type == "markdown" else code(cell, kind)
    return nbformat.from_dict({**notebook, "cells": cells})


def page(lab: str, reveal: str = REVEAL) -> str:
    """The HTML of a lab's slides."""
    template = Path(__file__).with_suffix(".html.j2").read_text("utf-8")
    exporter = SlidesExporter(raw_template=template, reveal_url_prefix=reveal, reveal_theme="white")
    return str(exporter.from_notebook_node(deck(lab))[0])


def main(labs: list[str]) -> None:
    if unknown := set(labs) - set(contents.labs()):
        sys.exit(f"LAB must be one of {', '.join(contents.labs())}, got {', '.join(sorted(unknown))}")
    target, source = ROOT / "_build" / "slides", importlib.import_module("sphinx-mathjax-offline").__path__[0]
    shutil.copytree(f"{source}/static/mathjax/output", target / "mathjax" / "output", dirs_exist_ok=True)
    shutil.copy(f"{source}/static/mathjax/tex-chtml.js", target / "mathjax")
    shutil.copy(ROOT / "book" / "_static" / "labkit-figures.js", target)
    (target / "figures").mkdir(exist_ok=True)
    for name in names():
        (target / "figures" / f"{name}.js").write_text(script(name), "utf-8")
    here = (target / "reveal.js" / "dist" / "reveal.js").exists()
    for lab in labs or contents.labs():
        (target / f"{lab}.html").write_text(page(lab, "reveal.js" if here else REVEAL), "utf-8")
        print(target / f"{lab}.html")
    build.offer()


if __name__ == "__main__":
    main(sys.argv[1:])
