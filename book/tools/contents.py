"""The labs of the book: which there are, in what order, and how they are numbered.

A lab's file begins with its number, `10_5_all_reduce`, or, for an appendix, its letter, `a_sharded_training`; a page of
cells that begins with neither is no lab.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def number(name: str) -> str:
    """10_5_all_reduce: 10.5; a_sharded_training: A; "" for what is no lab."""
    found = re.match(r"(?:\d+_\d+|[a-z])(?=_)", name)
    return found[0].replace("_", ".").upper() if found else ""


def label(name: str, labs: Sequence[str]) -> str:
    """The lab's number, and the rest of its name if an earlier one of `labs` has that number: 10.7 finale."""
    first = next(other for other in labs if number(other) == number(name))
    words = name[len(number(name)) + 1 :].replace("_", " ")
    return number(name) if first == name else f"{number(name)} {words}"


def labs(root: Path = ROOT) -> list[str]:
    """The labs that the table of contents lists, in its order."""
    parts = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    files = [chapter["file"] for part in parts for chapter in part["chapters"]]
    return [Path(f).name for f in files if re.fullmatch(r"notebooks/\w+", f) and number(Path(f).name)]
