"""A Sphinx extension: the pages of the API reference, written from labkit's docstrings when the book is built.

A page of book/api/ is a few words of ours and the line `% names of labkit.ROOM` (or `labkit_book.ROOM`), in whose place
come the room's names. Our docstrings are plain English with a convention (`x: what it is`, "Raises ...", ``code``, >>>
examples); here that becomes paragraphs, lists and links.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import api_source
from api_source import Entry

ROOMS = (
    "labkit.comm", "labkit.collectives", "labkit.timing", "labkit.network", "labkit.learn", "labkit.compress",
    "labkit.train", "labkit.show", "labkit_book.problems", "labkit_book.planner", "labkit_book.zero",
)  # fmt: skip
PLACE = re.compile(r"^% names of (labkit(?:_book)?\.\w+)$", re.MULTILINE)
CODE = re.compile(r"(``.+?``|`[^`\n]+`)")
EMPHASIS = re.compile(r"(?<![\w*])\*([A-Za-z][^*\n]*[\w.?!])\*(?![\w*])")
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|$~^&!])")


@cache
def known() -> dict[str, list[str]]:
    """Every documented name, and where it can be imported from."""
    found: dict[str, list[str]] = {}
    for room in ROOMS:
        for e in api_source.room(room):
            found.setdefault(e.name, []).append(e.full)
            for m in e.members:
                found.setdefault(f"{e.name}.{m.name}", []).append(f"{e.full}.{m.name}")
    return found


def code(text: str, room: str) -> str:
    """A piece of code in running text: a link where it is the name of something documented, in this room by preference."""
    places = known().get(text.removesuffix("()"), [])
    near = [p for p in places if p.startswith(f"{room}.")] or places
    if len(near) == 1:
        return f"{{py:obj}}`{text} <{near[0]}>`"
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def plain(text: str) -> str:
    """Text whose every sign means itself in Markdown."""
    return SPECIAL.sub(r"\\\1", text)


def inline(text: str, room: str) -> str:
    """Running text as Markdown: code stays code, *emphasis* stays, everything else means itself."""
    out = []
    for i, part in enumerate(CODE.split(text)):
        if i % 2:
            out.append(code(part.strip("`"), room))
            continue
        ends, done = 0, ""
        for found in EMPHASIS.finditer(part):
            done += f"{plain(part[ends : found.start()])}*{plain(found[1])}*"
            ends = found.end()
        out.append(done + plain(part[ends:]))
    whole = "".join(out)
    return re.sub(r"^(\d+)([.)])(?= )|^([-+=])", lambda m: rf"{m[1]}\{m[2]}" if m[1] else rf"\{m[3]}", whole)


def blocks(doc: str) -> list[list[str]]:
    """The docstring cut at its blank lines."""
    return [b.splitlines() for b in re.split(r"\n\s*\n", doc.strip("\n")) if b.strip()]


def body(doc: str, names: tuple[str, ...], room: str) -> list[str]:
    """A docstring as lines of Markdown. names: parameters, which are listed where they are explained."""
    out: list[str] = []
    for block in blocks(doc):
        if block[0].lstrip().startswith(">>>"):
            out += [
                "```{code-block} pycon",
                *(line.removeprefix("    ") if block[0][0] == " " else line for line in block),
                "```",
            ]
        elif all(line.startswith("    ") for line in block):
            out += ["```{code-block} text", *(line[4:] for line in block), "```"]
        elif re.match(r"\s*[-*] ", block[0]):
            last = next((line for line in reversed(out) if line), "")
            inside = last.startswith("- ") and last.endswith((",", ":"))  # what one parameter may be
            out += [("  " if inside else "") + line for line in bullets(block, room)]
        else:
            out += paragraph(block, names, room)
        out.append("")
    return out


def bullets(block: list[str], room: str) -> list[str]:
    items: list[str] = []
    for line in block:
        if re.match(r"\s*[-*] ", line):
            items.append(line.strip()[2:])
        else:
            items[-1] += " " + line.strip()
    return [f"- {inline(item, room)}" for item in items]


def paragraph(block: list[str], names: tuple[str, ...], room: str) -> list[str]:
    """Text, in which `name: ...` opens the description of a parameter and Returns, Raises a paragraph of their own."""
    text = ""
    for before, line in zip(["", *block], block, strict=False):
        # After an item, a line that begins with a capital at the margin is a sentence about the whole again.
        again = before.endswith(".") and line[:1].isupper() and not line.startswith(" ")
        text += ("\n" if again else " ") + line.strip()
    one = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)"
    item = re.compile(rf"(?:^|(?<=[.;:)\n]) ?)((?:{one})(?:(?:, | and )(?:{one}))*): ")
    pieces = item.split(text.strip())
    out = [inline(pieces[0].replace("\n", " ").strip(), room), ""] if pieces[0].strip() else []
    after: list[str] = []
    for name, words in zip(pieces[1::2], pieces[2::2], strict=True):
        words, *rest = re.split(r"\n| (?=(?:Returns|Raises) )", words.strip(), maxsplit=1)
        shown = ", ".join(f"`{n}`" for n in re.split(r", | and ", name))
        out.append(f"- {shown}: {inline(words.strip().rstrip(';'), room)}")
        after += rest
    for rest in after:
        out += ["", inline(rest.replace("\n", " ").strip(), room)]
    return out


def written(e: Entry, room: str, depth: int = 0) -> list[str]:
    """One entry as a directive of the Python domain, with its methods inside."""
    fence = "`" * (6 - depth) if e.kind != "data" else "`" * 4
    kind = "attribute" if e.kind == "data" and depth else e.kind
    lines = [f"{fence}{{py:{kind}}} {e.name}{e.call}", ""]
    if e.bases and (base := [b for b in e.bases if b in known()]):
        lines += [f"A kind of {', '.join(code(b, room) for b in base)}.", ""]
    lines += body(e.doc, e.parameters, room)
    for member in e.members:
        lines += written(member, room, depth + 1)
    return [*lines, fence, ""]


def names_of(room: str) -> str:
    """All of a room, module by module, as Markdown."""
    lines, module, home = [], "", ""
    for e in api_source.room(room):
        if e.module != module:
            module, home = e.module, ""
            lines += [
                f"## `{module.partition('.')[2]}`",
                "",
                *body(api_source.module_doc(module), (), room),
            ]
        if e.home != home:
            home = e.home
            lines += [f"```{{py:currentmodule}} {home}", "```", ""]
        lines += written(e, room)
    return "\n".join(lines)


def fill(app: Any, page: str, source: list[str]) -> None:
    source[0] = PLACE.sub(lambda found: names_of(found[1]), source[0])


def setup(app: Any) -> dict[str, bool]:
    app.config.toc_object_entries_show_parents = "hide"
    app.config.add_function_parentheses = False
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
