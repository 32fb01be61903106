"""The audit, book/claims.md: every claim that a lab checks, its verdict and where to see it, read from the labs themselves.

A lab states a claim in a box of class `check-claim` named `claim-...`; a code cell with an `assert` follows; under it stands
a box of class `verdict`, named `verdict-...` with the same ending, whose title is `Verdict: true`, `Verdict: true if ...`,
`Verdict: false` or `Verdict: not decided here`. Its first paragraph is the finding, its second what the finding rests on:
`*Evidence:*` and one or more of `proof`, `exact run`, `N seeds ...`, `measured ...`, `undecided ...`, with semicolons
between. What is written otherwise is refused, in one sentence.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import contents
import myst
import portable

FORMS = {"true": "simply true", "true if": "true under a condition", "false": "false"}
FORMS |= {"not decided here": "not decided here"}
IGNORED = "nbval-ignore-output"

_QUOTED = re.compile(r"[“\"]([^”\"]+)[”\"]")
_EVIDENCE = re.compile(r"(proof|exact run|[1-9]\d* seeds|measured|undecided)\b.*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Claim:
    """One claim of a lab. key: what follows `claim-` in its name; form: of FORMS; condition: of "true if"; evidence: what it
    rests on; cells: sources of the code cells with its asserts."""

    key: str
    text: str
    form: str
    condition: str
    finding: str
    evidence: str
    cells: tuple[str, ...]


def claims(source: str, outputs: str = "") -> list[Claim]:
    """All claims of a lab's text, in order. outputs: what its cells print, for the numbers of the findings.

    Raises ValueError, naming the box, where a claim has no name, no verdict, no evidence or no cell with an assert before
    its verdict, or where a finding holds a number that no cell computes (an assertion's bound is not computed).
    """
    boxes = list(myst.boxes(source))
    cells = list(myst.CELL.finditer(source))
    code = "\n".join(c["code"] for c in cells)
    computed = set(_NUMBER.findall(outputs + "\n" + re.sub(r"^\s*assert .*$", "", code, flags=re.M)))
    verdicts = {options.get("name"): box for box, options in boxes if options.get("class") == "verdict"}
    found = []
    for box, options in boxes:
        if options.get("class") != "check-claim":
            continue
        name, text = options.get("name", ""), _said(box)
        if not name.startswith("claim-"):
            raise ValueError(f"the box {text!r} must have a line ':name: claim-...'")
        key = name.removeprefix("claim-")
        verdict = verdicts.pop(f"verdict-{key}", None)
        if verdict is None or verdict.start() < box.end():
            raise ValueError(f"{name} must be followed by a box of class verdict named 'verdict-{key}'")
        between = [c["code"] for c in cells if box.end() < c.start() < verdict.start()]
        if not (asserting := [c for c in between if re.search(r"^\s*assert ", c, re.M)]):
            raise ValueError(f"{name} must be followed by a cell with an assert before its verdict")
        form, condition = _form(verdict["title"], name)
        finding, evidence = _paragraphs(verdict["body"], key)
        if odd := [n for n in _NUMBER.findall(finding) if n not in computed]:
            raise ValueError(f"verdict-{key} must hold no number that no cell computes, but holds {odd[0]}")
        found.append(Claim(key, text, form, condition, finding, evidence, tuple(asserting)))
    if verdicts:
        raise ValueError(f"{next(iter(verdicts))} must belong to a claim: there is no box with that ending")
    return found


def _said(box: re.Match[str]) -> str:
    """What is claimed: in the box's title after a colon, or what its text puts in quotation marks."""
    _, colon, in_title = box["title"].partition(":")
    quoted = _QUOTED.findall(" ".join((in_title if colon else box["body"]).split()))
    if not quoted:
        raise ValueError(f"the box {box['title']!r} must put its claim in quotation marks")
    said = [q[0].upper() + q[1:] for q in quoted]
    return " ".join(f"“{q}”" for q in said)


def _paragraphs(body: str, key: str) -> tuple[str, str]:
    """The finding, and the evidence without its heading."""
    found = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", body.strip())]
    if len(found) != 2 or not found[0] or not found[1].startswith("*Evidence:* "):
        raise ValueError(f"verdict-{key} must hold two paragraphs, the finding and '*Evidence:* ...'")
    finding, evidence = found[0], found[1].removeprefix("*Evidence:* ").rstrip(".")
    for part in evidence.split("; "):
        if not _EVIDENCE.fullmatch(part):
            wanted = "proof, exact run, N seeds ..., measured ... or undecided ..., with '; ' between"
            raise ValueError(f"the evidence of verdict-{key} must be {wanted}, got {part!r}")
    return finding, evidence


def _form(title: str, name: str) -> tuple[str, str]:
    said = re.fullmatch(r"Verdict: (true|false|not decided here|true if (.+))", title.strip())
    if not said:
        wanted = "'Verdict: true', 'Verdict: true if ...', 'Verdict: false' or 'Verdict: not decided here'"
        raise ValueError(f"the verdict on {name} must be titled {wanted}, got {title!r}")
    return ("true if", said[2]) if said[2] else (said[1], "")


def page(labs: list[tuple[str, str, list[Claim]]]) -> dict[str, str]:
    """What book/claims.md shows, by its places. labs: of each lab its file's name, its title and its claims."""
    forms = [c.form for _, _, found in labs for c in found]
    counts = ", ".join(f"{forms.count(form)} {said}" for form, said in FORMS.items() if form in forms)
    parts = []
    for name, title, found in labs:
        if found:
            parts.append(f"## {{doc}}`{title} <../notebooks/{name}>`\n")
            parts.extend(_entry(c) for c in found)
    return {"{{ how_many }}": str(len(forms)), "{{ counted }}": counts, "% all claims\n": "\n".join(parts)}


def _entry(c: Claim) -> str:
    verdict = f"**True if** {c.condition}." if c.condition else f"**{c.form.capitalize()}.**"
    links = f"{{ref}}`the claim <claim-{c.key}>`, {{ref}}`the cell <verdict-{c.key}>`"
    return f"{c.text}\n: {verdict} {c.finding} *Evidence:* {c.evidence}. ({links})\n"


def outputs(notebook: Path) -> str:
    """What a notebook's cells print, those left out whose output differs from run to run; "" without a notebook."""
    printed = []
    for cell in portable.read(notebook).cells if notebook.exists() else ():
        if IGNORED not in cell.metadata.get("tags", []):
            for output in cell.get("outputs", []):
                printed.append(output.get("text") or output.get("data", {}).get("text/plain", ""))
    return "\n".join(printed)


def audited(root: Path = contents.ROOT, only: str = "") -> list[tuple[str, str, list[Claim]]]:
    """Every lab in the book's order: its file's name, its title, its claims. only: labs whose text holds this."""
    found = []
    for path in (root / "notebooks" / f"{name}.md" for name in contents.labs(root)):
        source = path.read_text()
        if only not in source:
            continue
        try:
            of_lab = claims(source, outputs(path.with_suffix(".ipynb")))
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
        found.append((path.stem, myst.title(source, whole=True), of_lab))
    return found
