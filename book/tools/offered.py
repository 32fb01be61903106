"""Slides and PDF beside the built pages, which lead to what is there: `slides.py`, `pdf.py`, `build.py` end so.

Slides belong to a page as long as its notebook has not changed since, the PDF as long as the book has not been built again.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

PLACE = re.compile(r'<span class="labkit-offered">.*?</span>', re.S)  # see book/_templates/about.html


def put(root: Path) -> int:
    """Copy what there is into the built book and link it; how many pages lead to something."""
    built = root / "_build"
    html, slides, pdf = built / "html", built / "slides", built / "book.pdf"
    if not (index := html / "searchindex.js").exists():
        return 0
    there = [p for p in slides.glob("*.html") if _newer(p, root / "notebooks" / f"{p.stem}.ipynb")]
    if there:
        shutil.copytree(slides, html / "slides", dirs_exist_ok=True)
    whole = _newer(pdf, index)
    if whole:
        shutil.copy(pdf, html)
    leading = 0
    for page in html.rglob("*.html"):
        if not PLACE.search(text := page.read_text(encoding="utf-8")):
            continue
        links = []
        if html / "notebooks" == page.parent and slides / page.name in there:
            asks = (
                "" if (slides / "reveal.js").is_dir() else " (your browser fetches reveal.js from unpkg.com)"
            )
            links.append((html / "slides" / page.name, f"slides{asks}"))
        if whole:
            links.append((html / pdf.name, f"the whole book as a PDF ({pdf.stat().st_size / 1e6:.0f} MB)"))
        said = "".join(f' · <a href="{os.path.relpath(to, page.parent)}">{what}</a>' for to, what in links)
        new = PLACE.sub(lambda _, said=said: f'<span class="labkit-offered">{said}</span>', text)
        if new != text:
            page.write_text(new, encoding="utf-8")
        leading += bool(links)
    return leading


def _newer(made: Path, of: Path) -> bool:
    return made.exists() and of.exists() and made.stat().st_mtime >= of.stat().st_mtime
