"""Variants: exercises whose answer is a constant or a label ask every student something else.

    python -m labkit.grade.variants B --secret SECRET --roster CLASS.csv --out DIR

writes a student's notebook into a folder each, with constants and labels that nobody else has; its own ``check`` knows them,
without a network. The grader finds out whose they are from the roster and the secret (``--variants SECRET``), and not from
what is handed in. A variant is drawn from a *token*, the HMAC (RFC 2104) of the student's number under the secret: who knows
some tokens learns no other. The secret is made where there is none; keep it out of the repository, and for the whole term.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from labkit.exercises.catalogue import exercise_set
from labkit.exercises.exercise import Case, Exercise, Wrong
from labkit.grade.roster import Roster
from labkit.grade.submission import released_path

OTHERS = "that would be right for other numbers or names than those in your own notebook"
RIGHT_FOR = "right for the variant of "  # so begins the log of such an answer
_BYTES = 16  # of a secret, at least: more than anybody can search
_SECTIONS = re.compile(r"^(?=## )", re.M)


@dataclass(frozen=True)
class Variants:
    """Who has which variant. secret: of the course, in no report."""

    roster: Roster
    secret: bytes = field(repr=False)

    @cached_property
    def tokens(self) -> dict[str, str]:
        """Of each student on the roster, by what ``Roster.who`` calls them."""
        names = map(self.roster.who, self.roster.students)
        return {who: hmac.new(self.secret, who.encode(), hashlib.sha256).hexdigest()[:32] for who in names}

    @property
    def digest(self) -> str:
        """What the variants of all students depend on, as one number."""
        return hashlib.sha256(json.dumps(self.tokens).encode()).hexdigest()

    def case(self, exercise: Exercise, student: str, whose: list[str]) -> Case | None:
        """The question of a student's own variant of an exercise that has them; None for somebody who is not on the roster.

        whose: gets the names of all whose variant the answer is right for, if it is wrong for this one.
        """
        line = self.roster.find(student)
        if line is None:
            return None
        me = self.roster.who(line)
        mine = exercise.varied(self.tokens[me])

        def as_if(answer: Any) -> None:
            for who, token in self.tokens.items():
                theirs = exercise.varied(token) if who != me else None
                with suppress(Exception):  # also a judge that stumbles: it expects another shape
                    if theirs:
                        theirs.case.judge(answer)
                        whose.append(who)
            if not whose:
                raise Wrong("right for nobody")

        return replace(mine.case, mistakes=((OTHERS, as_if), *mine.case.mistakes)) if mine else None


def read_secret(path: Path) -> bytes:
    """The secret in a file. Raises ValueError where there is none, or one that is too short."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the secret in {str(path)!r} cannot be read: {error}") from None
    if not re.fullmatch(rf"([0-9a-f]{{2}}){{{_BYTES},}}", text):
        raise ValueError(f"{str(path)!r} must hold {2 * _BYTES} digits 0-9a-f at least, and nothing else")
    return bytes.fromhex(text)


def make_secret(path: Path) -> None:
    """Write a new secret, for nobody else to read. Raises FileExistsError rather than replace one."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(secrets.token_hex(2 * _BYTES) + "\n")


def varied(notebook: Mapping[str, Any], name: str, token: str) -> dict[str, Any]:
    """The released notebook of set ``name`` as one student gets it. Raises ValueError where a text is not there."""
    new: dict[str, Mapping[str, str]] = {"": {}}
    for number, exercise in enumerate(exercise_set(name).values(), 1):
        variant = exercise.varied(token)
        check = {f'check("{exercise.id}", ': f'check("{exercise.id}", variant="{token}", answer='}
        new[str(number)] = {**variant.texts, **check} if variant else {}
    cells, at, met = [], "", {number: set[str]() for number in new}
    for cell in notebook["cells"]:
        parts = []
        for part in _SECTIONS.split("".join(cell["source"])):
            if part.startswith("## "):
                at = part[3:].partition(". ")[0]
            parts.append(_replaced(part, new.get(at, {}), met.setdefault(at, set())))
        run: dict[str, Any] = (
            {"outputs": [], "execution_count": None} if cell["cell_type"] == "code" and new.get(at) else {}
        )
        cells.append({**cell, "source": "".join(parts), **run})
    for section, texts in new.items():
        if lacking := set(texts) - met[section]:
            raise ValueError(f"section {section} of the notebook must say {min(lacking)!r}, and does not")
    return {**notebook, "cells": cells}


def _replaced(text: str, new: Mapping[str, str], met: set[str]) -> str:
    """The text with others in it, all at once, whole words only. met: gets what was replaced."""
    for_words = (
        rf"(?<!\w){re.escape(old)}" + r"(?!\w)" * old[-1].isalnum()
        for old in sorted(new, key=len, reverse=True)
    )
    pattern = re.compile("|".join(for_words) or r"(?!)")
    met.update(pattern.findall(text))
    return pattern.sub(lambda found: new[found[0]], text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    said = "Write a problem set for each student of a class, with constants and labels of their own."
    parser = argparse.ArgumentParser(prog="python -m labkit.grade.variants", description=said)
    add = parser.add_argument
    add("name", metavar="SET", help="the problem set, as 10.3")
    add(
        "--secret",
        type=Path,
        required=True,
        metavar="FILE",
        help="made if it is not there; the grader needs it, too",
    )
    add(
        "--roster",
        type=Path,
        required=True,
        metavar="CSV",
        help="Moodle's, Canvas' or Gradescope's own export",
    )
    add("--out", type=Path, required=True, metavar="DIR", help="where a folder for each student goes")
    add("--notebooks", default="notebooks/exercises", metavar="DIR", help="the released problem sets")
    args = parser.parse_args(argv)
    try:
        roster, path = Roster.read(args.roster), released_path(args.name, args.notebooks)
        if not any(e.variant for e in exercise_set(args.name).values()):
            raise ValueError(f"set {args.name} has no exercise with variants: hand it out as it is")
        if not args.secret.exists():
            make_secret(args.secret)
        notebook = json.loads(path.read_text(encoding="utf-8"))
        tokens = Variants(roster, read_secret(args.secret)).tokens
        for who, token in tokens.items():
            folder = args.out / re.sub(r"[^\w@.-]", "_", who)
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(varied(notebook, args.name, token), indent=1, ensure_ascii=False)
            (folder / path.name).write_text(text + "\n", encoding="utf-8")
    except (ValueError, OSError) as error:
        print(f"labkit.grade.variants: {error}", file=sys.stderr)
        return 2
    print(f"{len(tokens)} notebooks in {args.out}; grade them with --roster and --variants {args.secret}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
