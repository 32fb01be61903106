"""What share of the code that a page shows is its subject, and not plumbing: of each lab, in lines.

    python book/tools/subject.py            the table
    python book/tools/subject.py 10_5       the lines counted as plumbing, too

Only unfolded code counts, without blank lines and comments. Plumbing is what a line is for: an import, an assertion, a
print, a plot or another display, a setting of the notebook. A function is read inside; its `def` line is subject, and so is
all that is left: the algorithm and the experiment.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import contents
import myst

ROOT = Path(__file__).resolve().parents[2]
FOLDED = re.compile(r"hide-input|remove-input|hide-cell|remove-cell")
SHOWN = {
    "print",
    "display",
    "use_style",
    "predict",
    "reveal",
    "explorer",
    "figure",
    "compare",
    "draw",
    "fill",
}
DRAWN = re.compile(r"^(plt|ax|axes|fig|figure|left|right|above|below|palette|show|top|bottom)\b")
LEAST = 0.5


@dataclass(frozen=True)
class Count:
    """Lines of a lab's unfolded code: how many are its subject, and which are plumbing."""

    lab: str
    subject: int
    plumbing: tuple[str, ...]

    @property
    def share(self) -> float:
        return self.subject / max(1, self.subject + len(self.plumbing))


def count(lab: str, text: str) -> Count:
    """Of the unfolded code in a lab's text."""
    subject, plumbing = 0, []
    for cell in myst.CELL.finditer(text):
        if FOLDED.search(cell["head"]):
            continue
        lines = cell["code"].splitlines()
        marked: set[int] = set()  # numbers of lines
        for node in _statements(ast.parse(cell["code"])):
            if _is_plumbing(node):
                marked.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for n, line in enumerate(lines, 1):
            if not line.strip() or line.strip().startswith("#"):
                continue
            if n in marked:
                plumbing.append(line)
            else:
                subject += 1
    return Count(lab, subject, tuple(plumbing))


def _statements(tree: ast.AST) -> list[ast.stmt]:
    """Every statement, inner ones of loops and functions too."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _is_plumbing(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert):
        return True
    if isinstance(node, ast.For | ast.With | ast.If):  # a loop that only prints or plots
        return all(_is_plumbing(inner) for inner in [*node.body, *getattr(node, "orelse", [])])
    if isinstance(node, ast.FunctionDef):
        return (
            bool(node.body)
            and all(_is_plumbing(inner) for inner in node.body if not isinstance(inner, ast.Return))
            and any(_is_plumbing(inner) for inner in node.body)
        )
    value = getattr(node, "value", None)
    if isinstance(node, ast.Assign) and isinstance(value, ast.Call):
        return bool(DRAWN.match(ast.unparse(value.func)))
    if isinstance(node, ast.Expr):
        said = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        return (
            said.split(".")[-1] in SHOWN
            or bool(DRAWN.match(said))
            or isinstance(value, ast.Name | ast.Constant)
        )
    return False


def counts(root: Path = ROOT) -> list[Count]:
    """Of every lab, in the book's order."""
    return [
        count(name, (root / "notebooks" / f"{name}.md").read_text(encoding="utf-8"))
        for name in contents.labs(root)
    ]


def main(argv: list[str]) -> int:
    print(f"{'lab':<24}{'unfolded':>9}{'subject':>9}{'share':>8}")
    for c in counts():
        print(f"{c.lab:<24}{c.subject + len(c.plumbing):>9}{c.subject:>9}{c.share:>8.0%}")
        if argv and c.lab.startswith(argv[0]):
            print(*(f"    {line}" for line in c.plumbing), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
