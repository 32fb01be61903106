"""The house against its budget, `house.toml`: lines and public names a room, import circles, arrows that run up.

A room is a folder of labkit, or of its companion labkit_book, or a file beside them; a public name, a function or class at a
file's top level without an underscore before it (problem sets not counted). An arrow is an import, wherever in the file it
stands; it runs up if it leads to a room that stands later in the budget's order, where the companion's rooms come last.
`python tests/house.py` prints the table; over budget is red.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("labkit", "labkit_book")
BUDGET = Path(__file__).with_name("house.toml")
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def files() -> dict[str, Path]:
    """Every module of both packages: its dotted name and its file; the problem sets' are left out."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "sets" not in parts:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """`labkit.comm.base` -> `comm`; a file at the top is a room of its own, and so is a package's face."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def imports(module: str, path: Path, known: set[str]) -> set[str]:
    """The modules of both packages whose names `module` imports, at its top or later."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in named:
            while name and name not in known:
                name = name.rpartition(".")[0]
            if name and name != module:
                found.add(name)
    return found


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """The sets of more than one module that reach each other (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(one: str) -> None:
        index[one] = low[one] = len(index)
        stack.append(one)
        for other in sorted(arrows.get(one, ())):
            if other not in index:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], index[other])
        if low[one] == index[one]:
            at = stack.index(one)
            if len(circle := stack[at:]) > 1:
                found.append(sorted(circle))
            del stack[at:]

    for one in sorted(arrows):
        if one not in index:
            visit(one)
    return found


def main() -> int:
    budget = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    rooms: dict[str, dict[str, int]] = budget["rooms"] | budget["companions"]
    order = list(rooms)
    lines, names = Counter[str](), Counter[str]()
    arrows: dict[str, set[str]] = {}
    known = files()
    for module, path in known.items():
        source = path.read_text(encoding="utf-8")
        lines[room(module)] += source.count("\n")
        names[room(module)] += sum(
            isinstance(node, DEFINITIONS) and not node.name.startswith("_") for node in ast.parse(source).body
        )
        # a package's face hands names on: who asks it for one asks the file that has it
        arrows[module] = imports(module, path, set(known))
    up: dict[str, list[str]] = defaultdict(list)
    for module, others in arrows.items():
        for other in others:
            if (
                room(module) in order
                and room(other) in order
                and order.index(room(other)) > order.index(room(module))
            ):
                up[f"{room(module)} -> {room(other)}"].append(f"{module} -> {other}")

    wrong = [f"{name} is no room of {BUDGET.name}" for name in sorted(set(lines) - set(order))]
    print(f"{'room':<14}{'lines':>8}{'budget':>8}{'names':>8}{'budget':>8}")
    for name in [*order, "all"]:
        its = [name] if name != "all" else budget["rooms"]  # all of labkit
        has = {"lines": sum(lines[one] for one in its), "names": sum(names[one] for one in its)}
        may = rooms[name] if name != "all" else budget["all"]
        print(f"{name:<14}{has['lines']:>8}{may['lines']:>8}{has['names']:>8}{may['names']:>8}")
        wrong += [f"{name}: {has[what]} {what}, budget {may[what]}" for what in has if has[what] > may[what]]
    for circle in circles(arrows):
        wrong.append("circle: " + " <-> ".join(circle))
    for _, where in sorted(up.items()):
        wrong += [f"up: {arrow}" for arrow in sorted(where)]
    print("\n".join(wrong) or "within the budget; no circle, no arrow up")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
