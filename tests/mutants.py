"""Faults planted at random, each met by the tests of `make test`. Does one survive: is a test missing, or is it no fault?

    python tests/mutants.py [HOW_MANY [SEED]]

cosmic-ray changes one place at a time (an operator, a comparison, a constant, a loop) in a clone of what is committed, which
has an environment of its own, both in `_build/mutants`. Tests of the place's room come first, and the first that fails ends
it. A place counts once, however many ways there are to change it.
"""

from __future__ import annotations

import ast
import os
import random
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import stages

HOME = stages.ROOT / "_build" / "mutants"
PACKAGES = ("labkit", "labkit_book")
LONGEST_S = 1800.0  # for all tests with one fault


def prepare() -> Path:
    """Clone what is committed; make an environment with the clone, what this one has, and cosmic-ray. Its Python."""
    shutil.rmtree(HOME, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", stages.ROOT, HOME / "source"], check=True)
    venv.create(HOME / "venv", with_pip=True)
    python = HOME / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "cosmic-ray"], check=True)
    (packages,) = (HOME / "venv").glob("lib/python*/site-packages")
    paths = [str(HOME / "source"), sysconfig.get_path("purelib")]
    (packages / "first.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    return python


def meaning(source: str) -> str:
    """What Python reads in this text, without annotations, which it does not evaluate here. Raises SyntaxError."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field in {"annotation", "returns"} & set(node._fields):
            setattr(node, field, None)
    return ast.dump(tree)


def places(path: Path) -> list[list[Any]]:
    """The mutations of a file, those of a place together."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names
    from cosmic_ray.work_item import MutationSpec

    found, nodes = defaultdict(list), list(ast_nodes(get_ast_from_path(path)))
    for name in sorted(operator_names()):
        operator = get_operator(name)
        if not operator.arguments():
            at = (place for node in nodes for place in operator().mutation_positions(node))
            for occurrence, (start, end) in enumerate(at):
                found[start].append(MutationSpec(path, name, occurrence, start, end))
    return [found[start] for start in sorted(found)]


def drawn(how_many: int, seed: int) -> Iterator[Any]:
    """Yield so many mutations that Python can read and that change something, of files drawn by their length."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    rng = random.Random(seed)
    files = sorted(path for package in PACKAGES for path in Path(package).rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    asked = Counter(rng.choices(files, [text.count("\n") for text in texts.values()], k=how_many))
    for path, n in asked.items():
        there = places(path)
        for m in map(rng.choice, rng.sample(there, len(there))):
            with suppress(SyntaxError, AttributeError):  # nobody can read it, or cosmic-ray can't make it
                changed = mutate_code(texts[path], get_operator(m.operator_name)(), m.occurrence)
                if n and changed and meaning(changed) != meaning(texts[path]):
                    n -= 1
                    yield m


def tests_for(path: Path) -> str:
    """The command that meets a fault in this file of a package: the tests of its room, and then the others."""
    room = path.with_suffix("").parts[1]
    files = sorted(stages.long_first(), key=lambda f: f"/{room}/" not in f and f"test_{room}" not in f)
    command = [*stages.PYTEST, *stages.WITHOUT, *stages.TWO, "loadfile", "-x", *files, "-m", stages.UNMARKED]
    return shlex.join([sys.executable, *command[1:]])


def plant(how_many: int, seed: int) -> None:
    """Plant them one by one, and say what becomes of each."""
    from cosmic_ray.mutating import mutate_and_test

    print(
        "without a fault",
        mutate_and_test([], tests_for(Path("labkit/sgd.py")), LONGEST_S).test_outcome,
        flush=True,
    )
    caught = 0
    for n, m in enumerate(drawn(how_many, seed), 1):
        began = time.monotonic()
        result = mutate_and_test([m], tests_for(m.module_path), LONGEST_S)
        caught += result.is_killed
        where = f"{m.module_path}:{m.start_pos[0]} {m.operator_name.removeprefix('core/')}"
        print(f"{n:3} {result.test_outcome:8} {time.monotonic() - began:5.0f} s  {where}", flush=True)
        print("" if result.is_killed else result.diff, end="\n" * (not result.is_killed), flush=True)
    print(f"{caught} of {how_many} caught")


if __name__ == "__main__":
    numbers = [int(given) for given in sys.argv[1:]] or [40]
    if Path.cwd() == HOME / "source":
        plant(numbers[0], *numbers[1:] or [0])
    else:
        again = [prepare(), Path(__file__), *map(str, numbers)]
        sys.exit(
            subprocess.run(again, cwd=HOME / "source", env={**os.environ, "MPLBACKEND": "agg"}).returncode
        )
