"""What our tools find in a page's text (MyST Markdown): its code cells and its boxes.

A cell's `head` is its options, YAML between two lines of `---` or lines `:key: value`; `code` is what it runs. A box is an
admonition with three colons; its options are the lines `:key: value` under its title.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n(?P<head>---\n.*?^---\n|(?::[^\n]*\n)*)(?P<code>.*?)^```", re.M | re.S
)
BOX = re.compile(
    r"^:::\{admonition\} (?P<title>.*)\n(?P<options>(?::\w+:.*\n)*)(?P<body>(?:.*\n)*?):::$", re.M
)


def codes(text: str) -> list[str]:
    """What the code cells of a text run, in order."""
    return [cell["code"] for cell in CELL.finditer(text)]


def boxes(text: str) -> Iterator[tuple[re.Match[str], dict[str, str]]]:
    """Every box of a text, in order, and its options by their names."""
    for box in BOX.finditer(text):
        yield box, dict(re.findall(r":(\w+): *(.*)", box["options"]))
