"""Which functions and classes of the core (labkit/) do fewer than three labs reach? `python tests/reached.py` lists them.

A lab reaches what its cells name, and what that names in turn: names are followed through imports as `book/tools/closure.py`
follows files, a definition at a time. `reached.toml` gives exceptions a reason; one too few or too many is red.
"""

import ast
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "tools"))

import closure  # noqa: E402
import contents  # noqa: E402
import myst  # noqa: E402

DEFINING = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Definition = tuple[Path, str]


@cache  # of a few files, asked for thousands of definitions
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def defined(path: Path) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}  # what each name at the top of a file is bound to
    for node in ast.parse(read(path)).body:
        stored = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        named = [node.name] if isinstance(node, DEFINING) else stored
        found |= dict.fromkeys(named, node)
    return found


@cache
def home(root: Path, module: str, name: str) -> Definition | None:
    """Where that is defined which a module gives under a name; None for a module, and for what is not ours."""
    path = closure.file_of(root, module) if module.startswith(closure.PACKAGES) else None
    if path is None or name in defined(path):
        return path and (path, name)
    shown = closure.imports(read(path))
    further = [(m, real) for m, real, known in shown if known == name and (m, real) != (module, name)]
    return home(root, *further[0]) if further else None


@cache
def used(node: ast.stmt | ast.Module, source: str, path: Path | None, root: Path) -> set[Definition]:
    """The definitions that a piece of a text names, its own or imported; where it computes one, all of its folder."""
    taken = {known: (module, name) for module, name, known in closure.imports(source) if name}
    found: set[Definition | None] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id in taken:
            found.add(home(root, ".".join(taken[each.value.id]), each.attr))  # of a module
        elif isinstance(each, ast.Name):
            mine = (path, each.id) if path and each.id in defined(path) else None
            found.add(mine or home(root, *taken.get(each.id, ("", ""))))
    if path and closure.COMPUTED.search("\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno])):
        found |= {(other, name) for other in path.parent.glob("*.py") for name in defined(other)}
    return {one for one in found if one}


def reach(text: str, root: Path) -> set[Definition]:
    """The definitions that the cells of a lab's text reach."""
    program = "\n".join(myst.codes(text))
    left, seen = {*used(ast.parse(program), program, None, root)}, set[Definition]()
    while left:
        path, name = one = left.pop()
        seen.add(one)
        left |= used(defined(path)[name], read(path), path, root) - seen
    return seen


def main() -> int:
    reasons = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["few"]
    reached = {lab: reach(text, ROOT) for lab, text in contents.texts(ROOT).items()}
    found = set[str]()
    for path in sorted((ROOT / "labkit").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in (n for n, node in defined(path).items() if isinstance(node, DEFINING) and n[0] != "_"):
            labs, full = [lab for lab in reached if (path, name) in reached[lab]], f"{module}.{name}"
            if len(labs) < 3:
                found.add(full)
                print(f"{full:<58} {', '.join(labs) or 'no lab'}: {reasons.get(full, 'NO REASON')}")
    wrong = [f"{name}: reached.toml gives no reason" for name in found - {*reasons}]
    wrong += [f"{name}: it is gone, or three labs reach it" for name in {*reasons} - found]
    print(*sorted(wrong), f"{len(found)} that fewer than three labs reach, {len(wrong)} faults", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
