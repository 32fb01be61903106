"""The house against its bounds, `house.toml`: lines and public names a room, import circles, arrows that run up, and style.

A room is a folder of labkit, or of its companion labkit_book, or a file beside them; a public name, a function or class at a
file's top level without an underscore before it. An arrow is an import, wherever in the file it stands; it runs up if it
leads to a room that stands later in the file's order, where the companion's rooms come last: so labkit imports none of them.
`[limits]` is what the project was given: what the rooms may weigh together may be less, never more. Functions and classes of
the core that hardly any lab reaches are `reached.py`'s. `python tests/house.py` prints the table; over a bound is red.
"""

import ast
import graphlib
import io
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("labkit", "labkit_book")
BUDGET = Path(__file__).with_name("house.toml")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def files() -> dict[str, Path]:
    """Every module of both packages: its dotted name and its file."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
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


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle: the first that is found, or none."""
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def lines(paths: Iterator[Path] | list[Path]) -> int:
    """Of these files together."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def long_functions(path: Path, most: int) -> Iterator[str]:
    """Those of a file with more lines than `most`, from `def` to their last."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, FUNCTIONS):
            has = (node.end_lineno or node.lineno) - node.lineno + 1
            if has > most:
                yield f"{path.relative_to(ROOT)}: {node.name} has {has} lines, at most {most}"


def tokens_a_line(paths: list[Path]) -> float:
    """Python's own tokens on a line of code, on average: without comments, docstrings and blank lines."""
    tokens, code = 0, 0
    for path in paths:
        text = path.read_text(encoding="utf-8")
        described = set[int]()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, FUNCTIONS | ast.ClassDef | ast.Module) and ast.get_docstring(node):
                described |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        seen = set[int]()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in SILENT and token.start[0] not in described:
                tokens += 1
                seen |= set(range(token.start[0], token.end[0] + 1))
        code += len(seen)
    return tokens / max(code, 1)


def weights(known: dict[str, Path]) -> tuple[Counter[str], Counter[str]]:
    """Lines and public names, by room."""
    count, names = Counter[str](), Counter[str]()
    for module, path in known.items():
        count[room(module)] += lines([path])
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, FUNCTIONS | ast.ClassDef):
                names[room(module)] += not node.name.startswith("_")
    return count, names


def against_the_rooms(budget: dict[str, Any], known: dict[str, Path]) -> Iterator[str]:
    """Print the table of rooms, and say what is over a bound, or nowhere in the file."""
    count, names = weights(known)
    rooms = budget["rooms"] | budget["companions"]
    yield from (f"{name} is no room of {BUDGET.name}" for name in sorted(set(count) - set(rooms)))
    print(f"{'room':<14}{'lines':>8}{'bound':>8}{'names':>8}{'bound':>8}")
    for name, may in rooms.items():
        print(f"{name:<14}{count[name]:>8}{may['lines']:>8}{names[name]:>8}{may['names']:>8}")
        for what, has in (("lines", count[name]), ("names", names[name])):
            if has > may[what]:
                yield f"{name}: {has} {what}, at most {may[what]}"
    for package, its in (("labkit", budget["rooms"]), ("labkit_book", budget["companions"])):
        for what, most in budget["limits"][package].items():
            may = sum(bounds[what] for bounds in its.values())
            has = sum((count if what == "lines" else names)[name] for name in its)
            print(f"{package}, all: {has} {what}; bounds of its rooms {may}, limit {most}")
            if may > most:
                yield f"{package}: the bounds of its rooms allow {may} {what}, the project at most {most}"


def against_the_arrows(budget: dict[str, Any], known: dict[str, Path]) -> Iterator[str]:
    """Say which imports make a circle, and which run up."""
    order = [*budget["rooms"], *budget["companions"]]
    arrows = {module: imports(module, path, set(known)) for module, path in known.items()}
    if found := circle(arrows):
        yield "circle: " + " -> ".join(found)
    for module, others in arrows.items():
        for other in sorted(others):
            ends = room(module), room(other)
            if set(ends) <= set(order) and order.index(ends[1]) > order.index(ends[0]):
                yield f"up: {module} -> {other}"


def against_the_style(limits: dict[str, Any], known: dict[str, Path]) -> Iterator[str]:
    """Print what tools and tests weigh and how dense the code is, and say what is over a limit."""
    tools = sorted((ROOT / "book" / "tools").glob("*.py"))
    tests = sorted((ROOT / "tests").rglob("*.py"))
    for what, paths in (("book/tools", tools), ("tests", tests)):
        print(f"{what}: {(has := lines(paths))} lines, limit {limits[what]['lines']}")
        if has > limits[what]["lines"]:
            yield f"{what}: {has} lines, at most {limits[what]['lines']}"
    for path in [*known.values(), *tools]:
        yield from long_functions(path, limits["style"]["function_lines"])
    core = [path for module, path in known.items() if module.split(".")[0] == "labkit"]
    print(
        f"labkit: {(dense := tokens_a_line(core)):.2f} tokens a line, limit {limits['style']['tokens_a_line']}"
    )
    if dense > limits["style"]["tokens_a_line"]:
        yield f"labkit: {dense:.2f} tokens a line of code, at most {limits['style']['tokens_a_line']}"


def main() -> int:
    budget = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    known = files()
    wrong = [
        *against_the_rooms(budget, known),
        *against_the_arrows(budget, known),
        *against_the_style(budget["limits"], known),
    ]
    print("\n".join(wrong) or "within the bounds; no circle, no arrow up")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
