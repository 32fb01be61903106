"""Reveal slides of the labs, from their executed notebooks: `python book/tools/slides.py [LAB ...]`, _build/slides/LAB.html.

A heading begins a slide, and so does a box, a figure, or code that the page shows; folded code is left out, and an answer
that the page covers comes at a click. Of prose a slide shows first sentences, lists and formulas; all of it goes to the
speaker's notes (key S). MathJax and our figures are copied beside the pages that nbconvert writes. reveal.js is fetched by
the browser if no folder _build/slides/reveal.js is there; where it does not come, the slides stand in one column.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from html import escape
from pathlib import Path

import contents
import myst
import nbformat
import offered
import portable
from nbconvert.exporters import SlidesExporter
from nbformat import NotebookNode as Cell

from labkit.show.figures.sources import names, script

ROOT = Path(__file__).resolve().parents[2]
REVEAL = "https://unpkg.com/reveal.js@5.2.1"
LINES = 22  # of code and output that a slide holds beside a sentence
PIECE = re.compile(r"(^:::\{admonition\}[\s\S]*?^:::$|^#{1,4} .+$)", re.M)
KEPT = re.compile(r"^(?:[-*] |\||\d+\. |\\begin)|\$\$", re.M)  # lists, tables and formulas
SENTENCE = re.compile(r"(?<=[.:?!])\s+(?=[*$`]?[A-Z])")


def seen(prose: str) -> str:
    """What a slide shows of prose: its first sentence, and lists, tables and formulas with the sentence before them."""
    out, paragraphs = [], re.split(r"\n\s*\n", prose.strip())
    for i, paragraph in enumerate(paragraphs):
        sentences = SENTENCE.split(paragraph)
        if KEPT.search(paragraph):
            out.append(paragraph)
        else:
            introduces = any(map(KEPT.match, paragraphs[i + 1 : i + 2]))
            out += dict.fromkeys(sentences[: i == 0] + sentences[-1:] * introduces)
    return "\n\n".join(out)


def pieces(source: str) -> list[tuple[str, str, str]]:
    """The pieces of a text cell: (slide type, "" for text without a heading; what is shown; notes)."""
    out, head = [], ""
    for part in PIECE.split(myst.plain(source, portable.titles(), portable.works())):
        kind = "slide" if re.match("##? ", head) else "subslide" if head else ""
        if part.startswith("#"):
            head += f"{part}\n\n"
        elif part.startswith(":::"):
            box, options = next(myst.boxes(part + "\n"))
            inside = f"\n\n**{box['title']}**\n\n{box['body']}\n\n"
            out.append((kind or "subslide", f'{head}<div class="box {options["class"]}">{inside}</div>', ""))
            head = ""
        elif part.strip():
            out.append((kind, head + seen(part), part))
            head = ""
    return out + [("slide", head, "")] * bool(head)


def code(cell: Cell) -> list[Cell]:
    """The cells that show a code cell, what the page hides left out; a covered answer, and output that is long, apart."""
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
    height = sum(20 if "<img" in str(o) else str(o.get("text", "")).count("\n") for o in outputs)
    height += cell.source.count("\n") * (not hidden)
    if hidden or not outputs or ("hide-output" not in tags and height <= LINES):
        return [_cell(cell, "-" if hidden and height < 5 else "subslide", hidden, outputs)]
    kind = "fragment" if height <= LINES else "subslide"
    return [_cell(cell, "subslide", False, []), _cell(cell, kind, True, outputs, "-output")]


def _cell(cell: Cell, kind: str, hidden: bool, outputs: list[Cell], name: str = "") -> Cell:
    metadata = {"slideshow": {"slide_type": kind}, "transient": {"remove_source": hidden}}
    return nbformat.from_dict({**cell, "id": cell.id + name, "outputs": outputs, "metadata": metadata})


def deck(lab: str) -> Cell:
    """The lab's notebook in slides. Text without a heading stands above the code it introduces, or only in the notes."""
    path = ROOT / "notebooks" / f"{lab}.ipynb"
    notebook = portable.read(path)
    portable.dress_inplace(notebook, path.with_suffix(".md"))
    cells, waiting = [], ("", "", "")

    def settle(kind: str = "") -> None:
        for slide_type, said in ((waiting[0] or kind, waiting[1]), ("notes", waiting[2])):
            if slide_type and said:
                metadata = {"slideshow": {"slide_type": slide_type}}
                cells.append(nbformat.v4.new_markdown_cell(said, metadata=metadata))

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for piece in pieces(cell.source):
                settle("subslide" * bool(KEPT.search(waiting[1])))
                waiting = piece
        elif parts := code(cell):
            settle("subslide")
            if waiting[1] and len(waiting[1]) < 300:
                parts[0].metadata.slideshow.slide_type = "-"
            cells, waiting = cells + parts, ("", "", "")
    settle()
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
    offered.put(ROOT)
    if not here:
        print(
            f"The browser that shows them fetches reveal.js from {REVEAL}; without it they stand in one column."
        )


if __name__ == "__main__":
    main(sys.argv[1:])
