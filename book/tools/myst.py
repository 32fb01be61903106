"""What our tools find in a page's text (MyST Markdown): its code cells and its boxes.

A cell's `head` is its options, YAML between two lines of `---` or lines `:key: value`; `code` is what it runs. A box is an
admonition with three colons; its options are the lines `:key: value` under its title. `plain` serves other pages.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

CELL = re.compile(r"(?ms)^```\{code-cell\}[^\n]*\n(?P<head>---\n.*?^---\n|(?::[^\n]*\n)*)(?P<code>.*?)^```")
BOX = re.compile(
    r"^:::\{admonition\} (?P<title>.*)\n(?P<options>(?::\w+:.*\n)*)(?P<body>(?:.*\n)*?):::$", re.M
)

FOLDED = re.compile(r"hide-input|remove-input|hide-cell|remove-cell")  # in the options of a cell


def codes(text: str) -> list[str]:
    """What the code cells of a text run, in order."""
    return [cell["code"] for cell in CELL.finditer(text)]


def options(box: re.Match[str]) -> dict[str, str]:
    """The options of a box, by their names."""
    return dict(re.findall(r":(\w+): *(.*)", box["options"]))


def boxes(text: str) -> Iterator[tuple[re.Match[str], dict[str, str]]]:
    """Every box of a text, in order, and its options by their names."""
    for box in BOX.finditer(text):
        yield box, options(box)


def title(text: str, whole: bool = False) -> str:
    """A page's title up to its colon, or the whole of it; "" without one."""
    found = re.search(r"^# (.+)" if whole else r"^# ([^:\n]+)", text, re.M)
    return found[1] if found else ""


def plain(
    text: str, titles: Mapping[str, str], works: Mapping[str, Any],
    address: Callable[[str, str], str] = lambda role, target: "",
) -> str:  # fmt: skip
    """Text without roles, targets, comments and bibliographies: what a page would show for them.

    titles: of pages, by the names of their files. works: pybtex's entries, by their keys. address: where a role leads
    that names a place, "" for nowhere: then its words stay.
    """

    def role(found: re.Match[str]) -> str:
        name, inside = found.groups()
        if name.startswith("cite"):
            form = "{} ({})" if name == "cite:t" else "{}, {}"
            said = "; ".join(form.format(*_work(works[key.strip()])) for key in inside.split(","))
            return said if name == "cite:t" else f"({said})"
        shown, _, target = inside.partition("<")
        shown = shown.strip() if target else titles.get(inside.rpartition("/")[2], inside)
        place = address(name, target.rstrip("> ") or inside)
        return f"[{shown}]({place})" if place else shown

    text = re.sub(r"^\([\w-]+\)=\n|^% .*\n|^```\{bibliography\}[\s\S]*?^```$", "", text, flags=re.M)
    return re.sub(r"\{([\w:]+)\}`([^`]+)`", role, text)


def _work(entry: Any) -> tuple[str, str]:
    who = [" ".join(map(str, person.rich_last_names)) for person in entry.persons.get("author", [])]
    said = " and ".join(who) if len(who) < 3 else f"{who[0]} et al."
    return said or entry.fields["title"], entry.fields["year"]
