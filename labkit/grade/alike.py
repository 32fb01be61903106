"""Which answers are more alike than chance makes them.

Likeness is reported and never judged: short answers are alike because there is one way to write them, and friends may have
been allowed to work together.
"""

from __future__ import annotations

import ast
import difflib
import io
import keyword
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from labkit.grade.outcome import Row

ALIKE, LONG_ENOUGH = 0.95, 60  # share of tokens in common, of answers of so many tokens at least


def alike(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Pairs of answers, by different students, that are (nearly) the same but for names, layout and comments."""
    answers: dict[str, list[tuple[Row, list[str]]]] = defaultdict(list)
    for row in rows:
        for e in row.exercises:
            words = _bones(e.answer) if e.answer and e.status not in ("NO_RESULT", "NEEDS_HUMAN") else []
            if len(words) >= LONG_ENOUGH:
                answers[e.id].append((row, words))
    for id, given in answers.items():
        for (a, x), (b, y) in combinations(given, 2):
            if a.student != b.student and (share := _share(x, y)) >= ALIKE:
                yield {"exercise": f"exercise {id}", "student": a.student, "other": b.student, "alike": f"{share:.2f}",
                       "submission": a.submission, "other submission": b.submission}  # fmt: skip


def _bones(source: str) -> list[str]:
    """The tokens of a program without comments, docstrings and layout, its names numbered as they come."""
    try:
        text = ast.unparse(_bare(ast.parse(source)))
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string.strip()]
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return []
    names: dict[str, str] = {}
    return [
        names.setdefault(word, f"n{len(names)}")
        if t.type == tokenize.NAME and word not in keyword.kwlist
        else word
        for t in tokens
        for word in t.string.split()  # measurements that are handed in are one string of many numbers
    ]


def _bare(tree: ast.AST) -> ast.AST:
    """The tree without docstrings."""
    for node in ast.walk(tree):
        body: Any = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


def _share(x: list[str], y: list[str]) -> float:
    if x == y:
        return 1.0
    match = difflib.SequenceMatcher(None, x, y, autojunk=False)
    return match.ratio() if match.real_quick_ratio() >= ALIKE and match.quick_ratio() >= ALIKE else 0.0
