"""A Sphinx extension: what the pages of the book show that is not written in them, put into its places when they are read.

A place is a line that begins with `%`, or words in double braces. A gap between objectives and exercises breaks the build.
"""

from collections.abc import Callable
from typing import Any

import bench_page
import claims
import gpu_page
import lab_map
import objectives

PAGES: dict[str, Callable[[], dict[str, str]]] = {
    "book/claims": lambda: claims.page(claims.audited()),
    "book/coverage": objectives.current,
    "book/gpu": gpu_page.current,
    "book/map": lambda: {lab_map.PLACE: lab_map.page()},
    "book/performance": lambda: {bench_page.PLACE: bench_page.current()},
}


def filled(page: str, text: str) -> str:
    """The text of a page, its places filled. Raises ValueError for a place that it lacks."""
    for place, said in PAGES[page]().items() if page in PAGES else ():
        if place not in text:
            raise ValueError(f"{page}.md must have the place {place.strip()!r}")
        text = text.replace(place, said)
    return text


def fill(app: Any, page: str, source: list[str]) -> None:
    source[0] = filled(page, source[0])


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", fill)
    app.connect("doctree-read", lab_map.say_how_long)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
