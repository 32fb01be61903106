"""The labs of the book: which there are, in what order, how they are numbered, and where each leads.

A lab's file begins with its number, `10_5_all_reduce`, or, for an appendix, its letter, `a_sharded_training`; a page of
cells that begins with neither is no lab.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import myst
import yaml

ROOT = Path(__file__).resolve().parents[2]
FRONT = "00_contents"  # the notebook of `page`
_QUESTION = re.compile(r"^\|[^|]*\| (.+?) \| \{doc\}`[^<`]*</notebooks/(\w+)>`", re.M)


def number(name: str) -> str:
    """10_5_all_reduce: 10.5; a_sharded_training: A; "" for what is no lab."""
    found = re.match(r"(?:\d+_\d+|[a-z])(?=_)", name)
    return found[0].replace("_", ".").upper() if found else ""


def label(name: str, labs: Sequence[str]) -> str:
    """The lab's number, and the rest of its name if an earlier one of `labs` has that number: 10.7 finale."""
    first = next(other for other in labs if number(other) == number(name))
    words = name.removeprefix(number(name).lower().replace(".", "_")).replace("_", " ")
    return number(name) + words * (first != name)


def notebooks(root: Path = ROOT) -> list[str]:
    """The labs that the table of contents lists, in its order, and the page before the first."""
    parts = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    files = [chapter["file"] for part in parts for chapter in part["chapters"]]
    return [Path(f).name for f in files if re.fullmatch(r"notebooks/\w+", f)]


def labs(root: Path = ROOT) -> list[str]:
    """The labs that the table of contents lists, in its order."""
    return [name for name in notebooks(root) if number(name)]


def sources(root: Path = ROOT) -> list[Path]:
    """Every text with cells, in reading order; not the copies that JupyterLab leaves."""
    folders = root / "notebooks", root / "notebooks" / "exercises"
    return sorted(md for folder in folders for md in folder.glob("*.md") if md.stem != "README")


def texts(root: Path = ROOT) -> dict[str, str]:
    """The text of every lab, by its name, in order."""
    return {name: (root / "notebooks" / f"{name}.md").read_text(encoding="utf-8") for name in labs(root)}


def link(name: str, whole: bool = True) -> str:
    """A notebook beside the labs as a Markdown link, its title up to the colon, or whole."""
    title = myst.title((ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8"), whole)
    return f"[{title}]({name}.ipynb)"


def problems(name: str) -> str:
    """The problem set of a lab as a Markdown link; "" for what is no lab."""
    of = number(name)
    return f"[Problem set {of}](exercises/{of.replace('.', '_').lower()}_exercises.ipynb)" if of else ""


def leads(name: str) -> str:
    """Where a lab's notebook leads at its end, in Markdown: the next in order, its problem set, all labs; "" for others."""
    if name not in (order := notebooks()):
        return ""
    after = order[order.index(name) + 1 :][:1]
    links = [*(f"Next: {link(other)}" for other in after), problems(name), f"[All labs]({FRONT}.ipynb)"]
    return " · ".join(filter(None, links))


def page() -> str:
    """All labs in reading order, with the question that book/index.md says each answers, in Markdown."""
    index = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    asked = {name: question for question, name in _QUESTION.findall(index)}
    lines = [f"- {link(name)}" for name in notebooks() if not number(name)]
    last = {number(x): x for x in labs()}.values()  # of each section, beside which its problem set stands
    lines += [f"- **{link(x, whole=False)}** {asked[x]} {problems(x) * (x in last)}".rstrip() for x in labs()]
    return "# All labs, in reading order\n\n" + "\n".join(lines)
