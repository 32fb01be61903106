"""Faults planted at random, each met by the tests of `make test`. Does one survive: is a test missing, or is it no fault?

    python tests/mutants.py [HOW_MANY [SEED [FIRST]]]

cosmic-ray changes one place at a time (an operator, a comparison, a constant, a loop) in a clone of what is committed, which
has an environment of its own, in `_build/mutants`. Tests of the place's room, and those that name its file, come first, and
the first that fails ends it. A place counts once, however many ways there are to change it; files are drawn by their
length. FIRST: the first of them to plant, if others have been planted before.
"""

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import changed
import stages

HOME = stages.ROOT / "_build" / "mutants"
PACKAGES = ("labkit", "labkit_book")
LONGEST_S = 1800.0  # for all tests with one fault


def prepare() -> Path:
    """Clone what is committed, and make the environment that `make test` would make there, with cosmic-ray. Its Python."""
    shutil.rmtree(HOME, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", stages.ROOT, HOME], check=True)
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    subprocess.run(["make", "-s", ".venv/.ready"], cwd=HOME, env=env, check=True)
    python = HOME / ".venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "cosmic-ray"], check=True)
    return python


def places(path: Path) -> list[list[Any]]:
    """The mutations of a file, those of a place together; without those of types, which nothing evaluates."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names
    from cosmic_ray.work_item import MutationSpec

    found, nodes = defaultdict(list), list(ast_nodes(get_ast_from_path(path)))
    for name in sorted(operator_names()):
        operator = get_operator(name)
        if not operator.arguments() and "Operator_BitOr" not in name:
            at = (place for node in nodes for place in operator().mutation_positions(node))
            for occurrence, (start, end) in enumerate(at):
                found[start].append(MutationSpec(path, name, occurrence, start, end))
    return [found[start] for start in sorted(found)]


def drawn(how_many: int, seed: int) -> Iterator[Any]:
    """Yield so many mutations that Python can read."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    rng = random.Random(seed)
    files = sorted(path for package in PACKAGES for path in Path(package).rglob("*.py"))
    lengths = [path.read_text(encoding="utf-8").count("\n") for path in files]
    n = 0
    for path, more in Counter(rng.choices(files, lengths, k=how_many)).items():
        n += more  # and those that a smaller file drawn before has no place for
        there, source = places(path), path.read_text(encoding="utf-8")
        for m in map(rng.choice, rng.sample(there, len(there))):
            with suppress(SyntaxError, AttributeError):  # nobody can read it, or cosmic-ray can't make it
                operator = get_operator(m.operator_name)()
                if n and compile(mutate_code(source, operator, m.occurrence), path, "exec"):
                    n -= 1
                    yield m


def tested(path: Path, *mutations: Any) -> Any:
    """What becomes of a fault in this file of a package, as cosmic-ray says it."""
    from cosmic_ray.mutating import mutate_and_test

    room, files = path.with_suffix("").parts[1], stages.long_first()
    names = lambda f: changed.reaches(stages.ROOT / f, {stages.ROOT / path})  # noqa: E731
    near = [f for f in files if f"/{room}/" in f or f"test_{room}" in f or names(f)]
    far = [f for f in files if f not in near]
    pytest = [*stages.PYTEST, *stages.WITHOUT, *stages.SEVERAL, "-x", "-m", stages.UNMARKED]
    first, then = (shlex.join([*pytest, *some]) for some in (near, far))
    # Of 5 no test was chosen.
    both = f"{first}; (($? % 5 == 0)) && {then}" if near else then
    return mutate_and_test(mutations, shlex.join(["bash", "-c", both]), LONGEST_S)


def plant(how_many: int, seed: int = 0, first: int = 1) -> None:
    """Plant them one by one, from the first on, and say what becomes of each."""
    if (unharmed := tested(Path("labkit/sgd.py"))).is_killed:
        sys.exit(f"{unharmed.output}\nThe tests fail without any fault.")
    caught = 0
    for n, m in islice(enumerate(drawn(how_many, seed), 1), first - 1, None):
        began, result = time.monotonic(), tested(m.module_path, m)
        caught += result.is_killed
        where = f"{m.module_path}:{m.start_pos[0]} {m.operator_name.removeprefix('core/')}"
        by = re.search(r"^(?:FAILED|ERROR) (\S+)", result.output, re.M)
        said = f"caught by {by and by[1]}" if result.is_killed else f"SURVIVES\n{result.diff}\n"
        print(f"{n:3} {time.monotonic() - began:5.0f} s  {where}  {said}", flush=True)
    print(f"{caught} of {how_many + 1 - first} caught")


if __name__ == "__main__":
    numbers = [int(given) for given in sys.argv[1:]] or [40]
    if stages.ROOT.name == HOME.name:  # the clone's own copy, which knows the clone's own tests
        plant(*numbers)
    else:
        again = [prepare(), HOME / "tests" / "mutants.py", *map(str, numbers)]
        sys.exit(subprocess.run(again, cwd=HOME, env={**os.environ, "MPLBACKEND": "agg"}).returncode)
