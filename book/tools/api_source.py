"""What labkit offers, read off its source by griffe, without importing it: names, signatures, docstrings.

Public is what a room's `__all__` lists and, beside that, whatever a lab or problem set imports from one of the
room's modules: a reader of the labs finds every name of theirs in the reference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import closure
import griffe

ROOT = Path(__file__).resolve().parents[2]
MADE = re.compile(r"\(lambda: (.*)\)\(\)")


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
    line: int = 0

    @property
    def full(self) -> str:
        return f"{self.home}.{self.name}"


@cache
def packages() -> Any:
    """labkit and its companion as griffe reads them."""
    loader = griffe.GriffeLoader(search_paths=[ROOT])
    for name in closure.PACKAGES:
        loader.load(name)
    return loader.modules_collection


@cache
def imported_by_notebooks() -> set[tuple[str, str]]:
    """(module, name) of everything that a lab or problem set imports from labkit."""
    texts = [md.read_text(encoding="utf-8") for md in sorted((ROOT / "notebooks").rglob("*.md"))]
    return {
        (module, name)
        for text in texts
        for module, name in closure.asked(text)
        if name and module.startswith("labkit")
    }


def definition(module: str, name: str) -> Any:
    """What griffe has under this name, imports followed; None where it is a module or not ours."""
    try:
        found = packages()[f"{module}.{name}"]
        if found.is_module and name in found.members:  # the file `fit.py` has the function `fit`
            found = found.members[name]
        found = found.final_target if found.is_alias else found
    except (KeyError, griffe.AliasResolutionError):
        return None
    return None if found.is_module or found.package.name not in closure.PACKAGES else found


def entry(home: str, name: str) -> Entry | None:
    """The entry of `name`, imported from `home`; None if that is no name of labkit's (a module, say)."""
    found = definition(home, name)
    if found is None:
        return None
    module, place = found.module.path, found.lineno or 0
    if found.is_function:
        return Entry("function", name, home, module, call(found), doc(found), names(found), line=place)
    if found.is_attribute:
        return Entry("data", name, home, module, "", comment(found), line=place)
    words = doc(found)
    bases = tuple(str(base) for base in found.bases)
    if any(base.endswith("Enum") for base in bases):
        listed = [n for n, member in found.members.items() if member.is_attribute]
        words += "\n\nOne of " + ", ".join(f"``{n}``" for n in listed) + "."
    members = tuple(
        Entry("property", m.name, home, module, "", doc(m))
        if m.is_attribute
        else Entry("method", m.name, home, module, call(m), doc(m), names(m))
        for m in found.members.values()
        if not m.name.startswith("_") and doc(m) and (m.is_function or "property" in m.labels)
    )
    how, parameters = construction(found)
    return Entry("class", name, home, module, how, words, parameters, bases, members, place)


def construction(found: Any) -> tuple[str, tuple[str, ...]]:
    """How an object is made, and the names of its parameters or, without any, of its fields; inherited if need be."""
    init = found.members.get("__init__")
    if init is not None:
        return call(init), names(init)
    fields = [
        m for m in found.members.values() if m.is_attribute and m.annotation and "property" not in m.labels
    ]
    fields = [m for m in fields if "ClassVar" not in str(m.annotation) and not m.name.startswith("_")]
    own = tuple(m.name for m in fields)
    bases = [str(base) for base in found.bases]
    if "NamedTuple" in bases:
        return f"({', '.join(m.name + (f'={m.value}' if m.value else '') for m in fields)})", own
    if any(base in ("Protocol", "ABC") or base.endswith("Enum") for base in bases):
        return "", own
    for base in found.resolved_bases:
        return construction(base.final_target if base.is_alias else base)
    return "", own


def parameters(function: Any) -> list[Any]:
    """A function's parameters, without the object or class that Python puts in by itself."""
    method = function.parent.is_class and "staticmethod" not in function.labels
    return list(function.parameters)[method:]


def names(function: Any) -> tuple[str, ...]:
    return tuple(p.name for p in parameters(function))


def call(function: Any) -> str:
    """The call without annotations, which the docstring says better: shapes and units."""
    shown: list[str] = []
    before = None
    for p in parameters(function):
        if before == "positional-only" and p.kind.value != before:
            shown.append("/")
        if p.kind.value == "keyword-only" and before not in ("keyword-only", "variadic positional"):
            shown.append("*")
        before = p.kind.value
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(p.kind.value, "")
        shown.append(stars + p.name)
        if not stars and p.default is not None:
            shown[-1] += "=" + MADE.sub(r"\1", str(p.default))
    if before == "positional-only":
        shown.append("/")
    return f"({', '.join(shown)})"


def doc(found: Any) -> str:
    return found.docstring.value if found.docstring else ""


def comment(found: Any) -> str:
    """What `#:` says above a constant, or behind it."""
    lines, above, i = found.module.source.splitlines(), [], found.lineno - 2
    while i >= 0 and lines[i].startswith("#:"):
        above.insert(0, lines[i][2:].strip())
        i -= 1
    behind = re.search(r"  #:? (.*)$", lines[found.endlineno - 1])
    return " ".join(above) or (behind[1] if behind else "")


@cache
def room(home: str) -> tuple[Entry, ...]:
    """The entries of a room, as `labkit.comm`, in the order of its modules and, in each, of its source."""
    wanted = dict.fromkeys(packages()[home].exports or ())
    listed = {(home, str(n)) for n in wanted}
    listed |= {
        (module, n)
        for module, n in imported_by_notebooks()
        if f"{module}.".startswith(f"{home}.") and n not in wanted and not n.startswith("_")
    }
    found = [e for module, n in listed if (e := entry(module, n)) is not None]
    order = {m: i for i, m in enumerate(modules(home))}
    return tuple(sorted(found, key=lambda e: (order.get(e.module, len(order)), e.module, e.line)))


def modules(home: str) -> list[str]:
    """The modules of a room in the order in which its `__init__` imports them."""
    members = sorted(
        (m for m in packages()[home].members.values() if m.is_alias), key=lambda m: m.alias_lineno or 0
    )
    return [m.target_path.rpartition(".")[0] for m in members]


def module_doc(module: str) -> str:
    return doc(packages()[module])
