"""What labkit offers, read off its source without importing it: names, signatures, docstrings.

Public is what a room's `__all__` lists and, beside that, whatever a lab or problem set imports from one of the
room's modules: a reader of the labs finds every name of theirs in the reference.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE_CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTIONS = re.compile(r"\A(?:---\n.*?^---\n|(?::.*\n)+)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """One name. kind: function, class, data, method or property; call: what follows the name, as `(a, b=1)`."""

    kind: str
    name: str
    home: str  # the module to import it from
    module: str  # the module that defines it
    call: str
    doc: str
    parameters: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    members: tuple[Entry, ...] = field(default=())

    @property
    def full(self) -> str:
        return f"{self.home}.{self.name}"


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def file_of(module: str, root: Path) -> Path | None:
    """The file of a module or package of labkit; None if there is none."""
    base = root / module.replace(".", "/")
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.exists()), None)


def exported(module: str, root: Path = ROOT) -> list[str]:
    """The module's `__all__`; empty without one."""
    path = file_of(module, root)
    for node in tree(path).body if path else []:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    return []


@cache
def imported_by_notebooks(root: Path = ROOT) -> set[tuple[str, str]]:
    """(module, name) of everything that a lab or problem set imports from labkit."""
    found: set[tuple[str, str]] = set()
    for md in sorted((root / "notebooks").rglob("*.md")):
        for cell in CODE_CELL.findall(md.read_text(encoding="utf-8")):
            try:
                nodes = list(ast.walk(ast.parse(OPTIONS.sub("", cell))))
            except SyntaxError:  # a magic
                continue
            for node in nodes:
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit"):
                    found |= {(str(node.module), alias.name) for alias in node.names}
    return found


@cache
def definition(module: str, name: str, root: Path = ROOT) -> tuple[str, ast.stmt, str] | None:
    """(defining module, node, comment) of a name, imports followed; None where it is a module or not labkit's.

    comment: the `#:` lines above, or behind, a constant.
    """
    path = file_of(module, root)
    if path is None:
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    found = None
    for node in statements(tree(path).body):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("labkit")
            and node.module != module
        ):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    found = definition(str(node.module), alias.name, root)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            found = (module, node, "")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and name in targets(node):
            found = (module, node, comment_of(node, lines))
    return found


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, those under an `if` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from statements(node.body)


def targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    nodes = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [n.id for n in nodes if isinstance(n, ast.Name)]


def comment_of(node: ast.stmt, lines: list[str]) -> str:
    """What `#:` says above a constant, or behind it."""
    above, i = [], node.lineno - 2
    while i >= 0 and lines[i].startswith("#:"):
        above.insert(0, lines[i][2:].strip())
        i -= 1
    behind = re.search(r"  #:? (.*)$", lines[(node.end_lineno or node.lineno) - 1])
    return " ".join(above) or (behind[1] if behind else "")


def entry(home: str, name: str, root: Path = ROOT) -> Entry | None:
    """The entry of `name`, imported from `home`; None if that is no name of labkit's (a module, say)."""
    found = definition(home, name, root)
    if found is None:
        return None
    module, node, comment = found
    if isinstance(node, ast.FunctionDef):
        return Entry("function", name, home, module, call(node.args), doc(node), parameters(node.args))
    if isinstance(node, ast.ClassDef):
        return class_entry(home, name, module, node, root)
    return Entry("data", name, home, module, "", comment)


def class_entry(home: str, name: str, module: str, node: ast.ClassDef, root: Path = ROOT) -> Entry:
    bases = tuple(ast.unparse(b) for b in node.bases)
    signature, names = construction(module, node, root)
    members = tuple(
        Entry("property" if is_property(n) else "method", n.name, home, module,
              "" if is_property(n) else call(n.args, method=not is_static(n)), doc(n), parameters(n.args))
        for n in node.body
        if isinstance(n, ast.FunctionDef) and not n.name.startswith("_") and doc(n)
    )  # fmt: skip
    words = doc(node)
    if any(base.endswith("Enum") for base in bases):
        listed = [t for n in node.body if isinstance(n, ast.Assign) for t in targets(n)]
        words += "\n\nOne of " + ", ".join(f"``{t}``" for t in listed) + "."
    return Entry("class", name, home, module, signature, words, names, bases, members)


def construction(module: str, node: ast.ClassDef, root: Path) -> tuple[str, tuple[str, ...]]:
    """How an object is made, and the names of its parameters or, without any, of its fields; inherited if need be."""
    init = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if init is not None:
        return call(init.args, method=True), parameters(init.args)[1:]
    bases = [ast.unparse(b) for b in node.bases]
    fields = [n for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    fields = [n for n in fields if "ClassVar" not in ast.unparse(n.annotation) and not hidden(n)]
    names = tuple(ast.unparse(n.target) for n in fields)
    if "NamedTuple" in bases or any("dataclass" in ast.unparse(d) for d in node.decorator_list):
        shown = [
            name + (f"={default(n.value)}" if n.value else "") for name, n in zip(names, fields, strict=True)
        ]
        return f"({', '.join(shown)})", names
    if "Protocol" in bases or "ABC" in bases or any(base.endswith("Enum") for base in bases):
        return "", names
    for base in bases:
        found = definition(module, base, root)
        if found and isinstance(found[1], ast.ClassDef):
            return construction(found[0], found[1], root)
    return "", names


def hidden(node: ast.AnnAssign) -> bool:
    """Whether a dataclass's field is not an argument."""
    return isinstance(node.target, ast.Name) and (
        node.target.id.startswith("_") or "init=False" in (ast.unparse(node.value) if node.value else "")
    )


def decorators(node: ast.FunctionDef) -> list[str]:
    return [ast.unparse(d) for d in node.decorator_list]


def is_property(node: ast.FunctionDef) -> bool:
    return any(d in ("property", "cached_property", "functools.cached_property") for d in decorators(node))


def is_static(node: ast.FunctionDef) -> bool:
    return "staticmethod" in decorators(node)


def doc(node: ast.FunctionDef | ast.ClassDef | ast.Module) -> str:
    return ast.get_docstring(node) or ""


def parameters(args: ast.arguments) -> tuple[str, ...]:
    listed = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
    return tuple(a.arg for a in listed if a)


def call(args: ast.arguments, method: bool = False) -> str:
    """The call without annotations, which the docstring says better: shapes and units."""
    text = ast.unparse(bare(args))
    if method:
        text = re.sub(r"^(?:self|cls)(?:, )?", "", text)
    return f"({text})"


def bare(args: ast.arguments) -> ast.arguments:
    """The same arguments without annotations."""
    named = {
        name: [ast.arg(a.arg) for a in getattr(args, name)] for name in ("posonlyargs", "args", "kwonlyargs")
    }
    rest = {name: ast.arg(a.arg) if (a := getattr(args, name)) else None for name in ("vararg", "kwarg")}
    return ast.arguments(**named, **rest, kw_defaults=args.kw_defaults, defaults=args.defaults)


def default(node: ast.expr) -> str:
    """A dataclass field's default as a caller sees it."""
    text = ast.unparse(node)
    made = re.fullmatch(r"field\(default_factory=(\w+)\)", text)
    return f"{made[1]}()" if made else text


@cache
def room(name: str, root: Path = ROOT) -> tuple[Entry, ...]:
    """The entries of `labkit.<name>`, in the order of its modules and, in each, of its source."""
    home = f"labkit.{name}"
    wanted = {(home, n) for n in exported(home, root)}
    known = {n for _, n in wanted}
    for module, n in imported_by_notebooks(root):
        inside = module.startswith(home + ".") or module == home
        if inside and n not in known and not n.startswith("_"):
            wanted.add((module, n))
    found = [e for module, n in wanted if (e := entry(module, n, root)) is not None]
    order = {m: i for i, m in enumerate(modules(home, root))}
    return tuple(sorted(found, key=lambda e: (order.get(e.module, len(order)), e.module, line_of(e, root))))


def modules(home: str, root: Path) -> list[str]:
    """The modules of a room in the order in which its `__init__` imports them."""
    path = file_of(home, root)
    listed = [str(n.module) for n in tree(path).body if isinstance(n, ast.ImportFrom)] if path else []
    return [m for m in listed if m.startswith("labkit")]


def line_of(e: Entry, root: Path) -> int:
    found = definition(e.home, e.name, root)
    return found[1].lineno if found else 0


def module_doc(module: str, root: Path = ROOT) -> str:
    path = file_of(module, root)
    return doc(tree(path)) if path else ""
