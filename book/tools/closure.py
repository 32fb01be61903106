"""What a notebook's outputs can hang on: the files of our packages behind its imports, whose change makes it stale.

Imports are followed name by name through a package's face (`from labkit.timing import draw` leads to the file that has
`draw`), and as wholes from there on. A file that imports from labkit by a computed name brings its folder with it, and
every folder of a room its data.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import myst

PACKAGES = ("labkit", "labkit_book")
COMPUTED = re.compile(r"import_module\(f\"labkit")


def digest(data: bytes) -> str:
    """SHA-256 of a file, the same for either kind of line ending."""
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


@cache
def imports(source: str) -> tuple[tuple[str, str, str], ...]:
    """(module, name, what it is called here) of everything a text imports; no name for a module as a whole."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "", alias.asname or alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name, alias.asname or alias.name) for alias in node.names]
    return tuple(found)


def asked(text: str) -> Iterator[tuple[str, str]]:
    """What the code cells of a text source import; a cell that is no plain Python asks for all of labkit."""
    for cell in myst.codes(text):
        try:
            yield from (what[:2] for what in imports(cell))
        except SyntaxError:  # a magic, say
            yield "labkit", ""


@cache  # of one root, asked tens of thousands of times
def file_of(root: Path, module: str) -> Path | None:
    base = root / module.replace(".", "/")
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)


def behind(text: str, root: Path) -> list[Path]:
    """The files behind the text source of a notebook, sorted."""
    found: set[Path] = set()
    left = list(asked(text))

    def take(path: Path) -> None:
        if path in found:
            return
        found.add(path)
        source = path.read_text(encoding="utf-8")
        left.extend(what[:2] for what in imports(source))
        if COMPUTED.search(source):
            for other in path.parent.rglob("*.py"):
                take(other)

    while left:
        module, name = left.pop()
        if module.partition(".")[0] not in PACKAGES:
            continue
        path = file_of(root, f"{module}.{name}") if name else None
        if path is None and (path := file_of(root, module)) is None:
            continue
        if path.name == "__init__.py" and name and path == file_of(root, module):
            brought = imports(path.read_text(encoding="utf-8"))
            homes = [(home, real) for home, real, known in brought if known == name and home != module]
            if homes:
                left += homes
                continue
        elif path.name == "__init__.py":  # a package as a whole
            for other in path.parent.rglob("*.py"):
                take(other)
        take(path)
    folders = {path.parent for path in found} - {root / package for package in PACKAGES}
    return sorted(found | {path for path, owner in data(root) if owner in folders})


@cache
def data(root: Path) -> tuple[tuple[Path, Path], ...]:
    """Every file of our packages that is no code, each with the nearest folder above that has code."""
    files = (path for package in PACKAGES for path in (root / package).rglob("*"))
    there = [p for p in files if p.is_file() and p.suffix not in (".py", ".pyc")]
    return tuple((p, next(folder for folder in p.parents if any(folder.glob("*.py")))) for p in there)
