"""A Sphinx extension: every line of code is an element, so that a long one can wrap on a phone as code should.

A style sheet alone can wrap a line only to the page's edge, where it reads like a new statement. With each line
an element that knows its own indentation, book/_static/labkit.css hangs the rest of it below and to the right.
The characters stay the same: what is copied is the program. In Python, what the styles of `_config.yml` paint in the
colour of the block itself loses its wrapper: a name's or a comma's colours nothing and weighs more than the name.
"""

from __future__ import annotations

import re
from typing import Any

PRINTED = {"myst-ansi", "none", "text"}  # what a cell printed: columns stay columns
PYTHON = {"ipython3", "python"}  # labkit.css gives these blocks the style's own colour
PLAIN = ("n", "nn", "nx", "p", "pm", "w")  # names, punctuation, blanks: in the block's colour, light and dark
_WRAPPED = re.compile(rf'<span class="(?:{"|".join(PLAIN)})">([^<]*)</span>')


def in_lines(page: str) -> str:
    """Pygments' HTML of a block, each line in an element of class labkit-line with its indentation."""
    found = re.fullmatch(r"(.*?<pre>(?:<span></span>)?)(.*?)(\n?</pre>.*)", page, re.DOTALL)
    if not found:
        return page
    before, code, after = found.groups()
    return before + "\n".join(map(_line, code.split("\n"))) + after


def unwrapped(page: str) -> str:
    """Pygments' HTML of Python without the wrappers of what is plain."""
    return _WRAPPED.sub(r"\1", page)


def _line(line: str) -> str:
    text = re.sub(r"<[^>]*>", "", line)
    indent = len(text) - len(text.lstrip(" "))
    style = f' style="--indent:{indent}"' if indent else ""
    return f'<span class="labkit-line"{style}>{line}</span>'


def install(app: Any) -> None:
    """Let the HTML builder's highlighter hand out lines."""
    highlighter = getattr(app.builder, "highlighter", None)
    if highlighter is None or app.builder.format != "html":
        return
    plain = highlighter.highlight_block

    def highlight_block(source: str, lang: str, *args: Any, **options: Any) -> str:
        page = plain(source, lang, *args, **options)
        if lang in PRINTED or options.get("linenos"):
            return page
        return in_lines(unwrapped(page) if lang in PYTHON else page)

    highlighter.highlight_block = highlight_block


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", install)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
