"""Which answers are more alike than chance makes them.

Likeness is reported and never judged: short answers are alike because there is one way to write them, and friends may have
been allowed to work together.
"""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from labkit.grade.outcome import Row
from labkit.grade.variants import RIGHT_FOR

RUN = 4  # tokens in a row: one that is changed, in the midst of others, changes four of these
ALIKE, LONG_ENOUGH = 0.8, 60  # share of runs in common, of answers of so many tokens at least


def alike(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Pairs of answers, by different students, that are (nearly) the same but for names, layout and comments.

    Before them, answers that are wrong and right for the variant of somebody else: under "alike" they have that word.
    """
    for row in rows:
        for e in (e for e in row.exercises if e.log.startswith(RIGHT_FOR)):
            for who in e.log.partition("\n")[0].removeprefix(RIGHT_FOR).split(", "):
                yield {"exercise": f"exercise {e.id}", "student": row.student, "other": who, "alike": "variant",
                       "submission": row.submission}  # fmt: skip
    answers: dict[str, list[tuple[Row, str]]] = defaultdict(list)
    for row in rows:
        for e in row.exercises:
            if e.answer and e.status not in ("NO_RESULT", "NEEDS_HUMAN"):
                answers[e.id].append((row, e.answer))
    for id, given in answers.items():
        runs = {source: _runs(source) for source in {source for _, source in given}}
        long = [(row, runs[source]) for row, source in given if len(runs[source]) > LONG_ENOUGH - RUN]
        for (a, x), (b, y) in combinations(long, 2):
            share = 1.0 if x is y else 2 * len(x & y) / (len(x) + len(y))
            if a.student != b.student and share >= ALIKE:
                yield {"exercise": f"exercise {id}", "student": a.student, "other": b.student, "alike": f"{share:.2f}",
                       "submission": a.submission, "other submission": b.submission}  # fmt: skip


def _runs(source: str) -> frozenset[int]:
    """All runs of tokens in a program, each as a number; one that comes again has another."""
    words, seen = _bones(source), Counter[tuple[str, ...]]()
    found = []
    for run in zip(*(words[i:] for i in range(RUN)), strict=False):
        seen[run] += 1
        found.append(hash((run, seen[run])))
    return frozenset(found)


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
