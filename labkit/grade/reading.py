"""What can be read off an answer's source without running it: whether it is an untouched stub, and what it may not use."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from labkit.grade.withheld import Withheld


@dataclass(frozen=True)
class Reading:
    """stub: whether the function that is asked for has nothing in it yet."""

    stub: bool


def read(source: str, name: str, withheld: tuple[str, ...]) -> Reading:
    """Look at a cell. Raises SyntaxError, and Withheld where it takes from labkit what it should write."""
    tree = ast.parse(source, "<answer>")
    _scan(tree, withheld)
    made = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
    ]
    return Reading(bool(made) and _empty(made[-1].body))


def _empty(body: list[ast.stmt]) -> bool:
    """Whether a function's body is a docstring, ``...``, ``pass``, a bare return or NotImplementedError, and no more."""
    for node in body:
        if isinstance(node, ast.Pass) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            continue
        if isinstance(node, ast.Return) and (
            node.value is None or (isinstance(node.value, ast.Constant) and node.value.value in (None, ...))
        ):
            continue
        if isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
            continue
        return False
    return True


def _scan(tree: ast.Module, withheld: tuple[str, ...]) -> None:
    """Names imported from labkit, and attributes of what was imported from it."""
    asked = {full.rpartition(".")[2]: full for full in withheld}
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            own |= {
                (a.asname or a.name).split(".")[0] for a in node.names if a.name.split(".")[0] == "labkit"
            }
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "labkit":
            own |= {a.asname or a.name for a in node.names}
            for a in node.names:
                if a.name in asked:
                    raise Withheld(asked[a.name])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in asked:
            root: ast.expr = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in own:
                raise Withheld(asked[node.attr])
