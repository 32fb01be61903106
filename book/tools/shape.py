"""The shape of every lab, against its bounds: one idea, in the least that carries it.

    python book/tools/shape.py [LAB ...]     prints the table, lab by lab; exits 1 if one is over a bound

words: of prose, as its notebook has them. first: words before the first picture. a picture: words to one picture. view,
folded: lines of code in sight and folded; longest: of its longest cell. subject: the share of the lines in view that are
no plumbing (imports, assertions, prints, plots). minutes: prose at 200 words a minute, a formula in display 15 s, a line of
code in view 6 s, a guess 60 s, and the run. run: seconds of the stored run, `book/run_times.json`.
"""

import ast
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contents
import myst
import portable

ROOT = Path(__file__).resolve().parents[2]
WORDS_A_MINUTE = 200
BOUNDS = {
    "words": 2800, "first": 150, "a picture": 350, "cells": 60, "view": 250, "folded": 100, "longest": 25,
    "subject": 65, "minutes": 40, "run": 30,
}  # fmt: skip
LEAST = {"subject"}
ALL_WORDS = 55_000
PICTURES = re.compile(r'"image/(?:png|svg\+xml)"|labkit-figure|<svg')
SHOWS = re.compile(
    r"(?:.*\.)?(?:print|display|use_style|predict|reveal|explorer|figure|compare|draw|fill)$"
    r"|(?:plt|ax|axes|fig|figure|left|right|above|below|palette|show|top|bottom)\b"
)


def is_plumbing(node: ast.stmt) -> bool:
    """Whether a statement imports, asserts, or shows something, or holds nothing else."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert):
        return True
    if isinstance(node, ast.For | ast.With | ast.If | ast.FunctionDef):
        inside = [n for n in [*node.body, *getattr(node, "orelse", [])] if not isinstance(n, ast.Return)]
        return bool(inside) and all(map(is_plumbing, inside))
    value = getattr(node, "value", None)
    if isinstance(value, ast.Call):
        return bool(SHOWS.match(ast.unparse(value.func)))
    return isinstance(node, ast.Expr)


def code_lines(text: str) -> tuple[list[str], list[str]]:
    """(subject, plumbing) of the code in view of a lab's text, without blank lines and comments."""
    found: tuple[list[str], list[str]] = [], []
    for cell in myst.CELL.finditer(text):
        if myst.FOLDED.search(cell["head"]):
            continue
        marked = set()
        for node in ast.walk(ast.parse(cell["code"])):
            if isinstance(node, ast.stmt) and is_plumbing(node):
                marked |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for n, line in enumerate(cell["code"].splitlines(), 1):
            if line.strip() and not line.strip().startswith("#"):
                found[n in marked].append(line.strip())
    return found


def minutes(text: str, seconds: float = 0.0) -> int:
    """To work through a page with cells, its run of so many seconds included."""
    prose = re.sub(r"\A---\n(?s:.*?)^---\n|^:\w+:.*\n|^:::.*\n", "", myst.CELL.sub("", text), flags=re.M)
    formulas = prose.count("$$") // 2 + prose.count("```{math}")
    code = sum(map(len, code_lines(text)))
    guesses = len(re.findall(r"^:class: predict$", text, re.M))
    spent_s = 60 * len(prose.split()) / WORDS_A_MINUTE + 15 * formulas + 6 * code + 60 * guesses + seconds
    return math.ceil(spent_s / 60)


def pictures(cell: Any) -> int:
    """How many pictures a cell shows."""
    if cell.cell_type == "markdown":
        return len(re.findall(r"!\[|<svg|<img", cell.source))
    return sum(bool(PICTURES.search(json.dumps(output))) for output in cell.outputs)


def shape(name: str, seconds: float) -> dict[str, float]:
    """One lab, by the names of BOUNDS; its notebook must have been executed."""
    text = (ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8")
    cells = portable.read(ROOT / "notebooks" / f"{name}.ipynb").cells
    words = [len(c.source.split()) if c.cell_type == "markdown" else 0 for c in cells]
    shown = list(map(pictures, cells))
    first = next((i for i, n in enumerate(shown) if n), len(cells))
    subject, plumbing = code_lines(text)
    folded = [c["code"] for c in myst.CELL.finditer(text) if myst.FOLDED.search(c["head"])]
    size: Callable[[str], int] = lambda code: sum(bool(line.strip()) for line in code.splitlines())  # noqa: E731
    return {
        "words": sum(words), "first": sum(words[:first]), "a picture": round(sum(words) / max(sum(shown), 1)),
        "cells": len(cells), "view": len(subject) + len(plumbing), "folded": sum(map(size, folded)),
        "longest": max(map(size, myst.codes(text)), default=0),
        "subject": round(100 * len(subject) / max(len(subject) + len(plumbing), 1)),
        "minutes": minutes(text, seconds), "run": round(seconds),
    }  # fmt: skip


def over(found: dict[str, float]) -> list[str]:
    """The bounds that a lab does not keep."""
    return [w for w, most in BOUNDS.items() if (found[w] < most if w in LEAST else found[w] > most)]


def main(names: list[str]) -> int:
    noted = json.loads((ROOT / "book" / "run_times.json").read_text(encoding="utf-8"))
    seconds = {n: noted.get(n, {"seconds": 0})["seconds"] for n in names or contents.notebooks()}
    labs = {name: shape(name, s) for name, s in seconds.items()}
    print(f"{'':<24}" + "".join(f"{what:>11}" for what in BOUNDS))
    print(f"{'bound':<24}" + "".join(f"{most:>11}" for most in BOUNDS.values()))
    wrong = []
    for name, found in labs.items():
        print(f"{name:<24}" + "".join(f"{found[w]:>10}{'!' if w in over(found) else ' '}" for w in BOUNDS))
        wrong += [f"{name}: {', '.join(over(found))}"] * bool(over(found))
    total = sum(found["words"] for found in labs.values())
    print(f"all: {total:.0f} words, at most {ALL_WORDS}")
    wrong += [f"all: {total:.0f} words"] * (total > ALL_WORDS)
    print("\n".join(["over the bound:", *wrong]) if wrong else "within the bounds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
