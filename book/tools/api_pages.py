"""A Sphinx extension: the pages of the API reference, by Sphinx's autodoc from our docstrings.

A page of book/api/ is a few words of ours and the line `% names of labkit.ROOM` (or `labkit_book.ROOM`), in whose place
come the modules that the room shows, or that a lab or problem set imports, with all that they say of themselves. Our
docstrings are plain English with a convention (`x: what it is`, "Raises ...", ``code``, >>> examples), which becomes
reStructuredText.
"""

import contextlib
import enum
import importlib
import inspect
import itertools
import re
from functools import cache
from pathlib import Path
from typing import Any

import closure
import contents
from sphinx.pycode import ModuleAnalyzer

_OURS = ("comm", "collectives", "timing", "network", "learn", "compress", "train", "show")
ROOMS = [f"labkit.{room}" for room in _OURS]
ROOMS += [f"labkit_book.{room}" for room in ("problems", "planner", "zero", "why")]
PLACE = re.compile(r"^% names of (labkit(?:_book)?\.\w+)$", re.MULTILINE)
CODE = re.compile(r"(``.+?``|`[^`\n]+`)")
EMPHASIS = re.compile(r"(?<![\w*])\*([A-Za-z][^*\n]*[\w.?!])\*(?![\w*])")
SPECIAL = re.compile(r"([\\`*_|])")
LISTED = re.compile(r"^(?!:py:obj:)(?:(?:\w|\d+)[.)]|[-+:])(?= |\w+:)")  # RST would begin a list or a field


@cache
def modules(room: str) -> dict[str, ModuleAnalyzer]:
    """The files of a room, in the order in which its face imports them, then what notebooks import besides."""
    shown = closure.imports(Path(str(importlib.import_module(room).__file__)).read_text(encoding="utf-8"))
    texts = [md.read_text(encoding="utf-8") for md in contents.sources()]
    asked = {module for text in texts for module, _ in closure.asked(text)}
    ours = [m for m in [*(module for module, *_ in shown), *sorted(asked)] if m.startswith(f"{room}.")]
    found = {name: ModuleAnalyzer.for_module(name) for name in [room, *ours]}
    for read in found.values():
        read.analyze()
    return found


def names(module: str, read: ModuleAnalyzer) -> list[str]:
    """The public names that a module defines and says something about."""
    things = vars(importlib.import_module(module)).items()
    own = {name for name, thing in things if getattr(thing, "__module__", "") == module and thing.__doc__}
    own |= {name for scope, name in read.attr_docs if not scope}
    return sorted(name for name in own & read.tagorder.keys() if not name.startswith("_"))


@cache
def known() -> dict[str, list[str]]:
    """Every documented name, and where it is defined."""
    found: dict[str, list[str]] = {}
    for module, read in (pair for room in ROOMS for pair in modules(room).items()):
        for name in names(module, read):
            found.setdefault(name, []).append(f"{module}.{name}")
            thing = getattr(importlib.import_module(module), name)
            for member, value in vars(thing).items() if inspect.isclass(thing) else ():
                if not member.startswith("_") and getattr(value, "__doc__", None):
                    found.setdefault(f"{name}.{member}", []).append(f"{module}.{name}.{member}")
    return found


def code(text: str, room: str) -> str:
    """A piece of code in running text: a link where it is the name of something documented, in this room by preference."""
    places = known().get(text.removesuffix("()"), [])
    near = [p for p in places if p.startswith(f"{room}.")] or places
    return f":py:obj:`{text} <{near[0]}>`" if len(near) == 1 else f"``{text}``"


def inline(text: str, room: str) -> str:
    """Running text as RST: code stays code, *emphasis* stays, everything else means itself."""
    out = []
    for i, part in enumerate(CODE.split(text)):
        if i % 2:
            out.append(code(part.strip("`"), room))
            continue
        for n, word in enumerate(EMPHASIS.split(part)):
            plain = SPECIAL.sub(r"\\\1", word)
            out.append(f"*{plain}*" if n % 2 else plain)
    # between a word and what is marked, RST wants a space, which may be one that nobody sees
    whole = out[0]
    for before, after in itertools.pairwise(out):
        near = before[-1:].isalnum() or after[:1].isalnum()
        whole += (r"\ " if near and {before[-1:], after[:1]} & {"`", "*"} else "") + after
    return LISTED.sub(r"\\\g<0>", whole)


def body(doc: str, names: set[str], room: str) -> list[str]:
    """A docstring as lines of RST. names: parameters, which are listed where they are explained."""
    out: list[str] = []
    for text in re.split(r"\n\s*\n", doc.strip("\n")):
        block = text.splitlines()
        if block[0].lstrip().startswith(">>>"):
            out += inspect.cleandoc(text).splitlines()
        elif all(line.startswith("    ") for line in block):
            out += ["::", "", *block]
        elif re.match(r"\s*[-*] ", block[0]):
            items = re.split(r"^\s*[-*] ", text, flags=re.MULTILINE)[1:]
            out += [f"* {inline(' '.join(item.split()), room)}" for item in items]
        else:
            out += paragraph(block, names, room)
        out.append("")
    return out


def paragraph(block: list[str], names: set[str], room: str) -> list[str]:
    """Text, in which `name: ...` opens the description of a parameter and Returns, Raises a paragraph of their own."""
    text = ""
    for before, line in zip(["", *block], block, strict=False):
        # After an item, a line that begins with a capital at the margin is a sentence about the whole again.
        again = before.endswith(".") and line[:1].isupper() and not line.startswith(" ")
        text += ("\n" if again else " ") + line.strip()
    one = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)"
    item = re.compile(rf"(?:^|(?<=[.;:)\n]) ?)((?:{one})(?:(?:, | and )(?:{one}))*): ")
    opening, *pieces = item.split(text.strip())
    out = [inline(" ".join(opening.split()), room), ""]
    after: list[str] = []
    for name, words in zip(pieces[::2], pieces[1::2], strict=True):
        words, *rest = re.split(r"\n| (?=(?:Returns|Raises) )", words.strip(), maxsplit=1)
        shown = ", ".join(f"``{n}``" for n in re.split(r", | and ", name))
        out.append(f"* {shown}: {inline(words.strip().rstrip(';'), room)}")
        after += rest
    for rest in after:
        out += ["", inline(" ".join(rest.split()), room)]
    return out


def fill(app: Any, page: str, source: list[str]) -> None:
    """In the place of a room, its modules, each by autodoc."""

    def module_by_module(found: re.Match[str]) -> str:
        said = [module for module, read in modules(found[1]).items() if names(module, read)]
        shown = "## `{}`\n\n```{{eval-rst}}\n.. automodule:: {}\n```\n"
        return "\n".join(shown.format(module.partition(".")[2], module) for module in said)

    source[0] = PLACE.sub(module_by_module, source[0])


def translate(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """A docstring that autodoc has read, in place."""
    room = ".".join(name.split(".")[:2])
    names = set(getattr(thing, "__annotations__", ())) if what != "module" else set()
    with contextlib.suppress(TypeError, ValueError):  # a property, say, has none
        names |= set(inspect.signature(thing).parameters)
    said = body("\n".join(lines), names - {"self", "cls", "return"}, room)
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        said += [f"One of {', '.join(f'``{member.name}``' for member in thing)}."]
    lines[:] = said


def call(
    app: Any, what: str, name: str, thing: Any, options: Any, said: str | None, returns: str | None
) -> tuple[str, str] | None:
    """What nobody calls, or only Python itself, is shown without parameters; a default without a name as dots."""
    if said is None:  # a module, a value
        return None
    never = inspect.isclass(thing) and (issubclass(thing, enum.Enum) or getattr(thing, "_is_protocol", False))
    plain = inspect.isclass(thing) and issubclass(thing, Exception) and "__init__" not in vars(thing)
    return ("" if never or plain else re.sub(r"<factory>|<function \S*<lambda>>", "...", said)), ""


def skip(app: Any, what: str, name: str, thing: Any, left_out: bool, options: Any) -> bool | None:
    """A member is shown for its own words: a field of a NamedTuple has Python's."""
    return True if str(getattr(thing, "__doc__", "")).startswith("Alias for field number") else None


def setup(app: Any) -> dict[str, bool]:
    app.config.toc_object_entries_show_parents = "hide"
    app.config.add_function_parentheses = False
    app.config.autodoc_typehints = "none"
    app.config.autodoc_preserve_defaults = True
    app.config.nitpick_ignore_regex = [("py:class", r"(?:collections|numpy)\..*")]  # types of data
    app.config.autodoc_inherit_docstrings = False
    # A face shows what it defines, its modules the rest.
    options = ("members", "no-value", "ignore-module-all")
    app.config.autodoc_default_options = {"member-order": "bysource", **dict.fromkeys(options, True)}
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", translate)
    app.connect("autodoc-process-signature", call)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
