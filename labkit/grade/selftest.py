"""The grader tests itself before it grades: every reference gets full points, and every plausible mistake fewer.

References and mistakes go the way that answers go: as source, into processes behind the same walls. A key's file is the
setup there, without its imports from ``labkit.grade`` (judges and hidden cases, which no answer's process ever sees).
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from labkit.grade.asking import PASS
from labkit.grade.exercise import Case, Exercise, exercise_set
from labkit.grade.grading import Outcome, grade_one
from labkit.grade.zygote import Zygote


def selftest(key_folder: str | Path, sets: Iterable[str], zygote: Zygote, *, seed: int = 0) -> list[str]:
    """Grade every reference and every mistake of the keys, and say what came out otherwise than it must.

    key_folder: holds ``key_10_3.py`` and so on, with SOLUTIONS, MUTANTS and perhaps HIDDEN. sets: as in ``["10.3"]``.
    Returns sentences; none means that the grader can be trusted with these sets. Raises GraderFailure.
    """
    problems = []
    for name in sets:
        path = key_path(key_folder, name)
        try:
            key = load_key(path)
        except Exception as error:
            problems.append(f"the key {path} can't be read: {type(error).__name__}: {error}")
            continue
        setup = key_setup(path.read_text())
        for exercise in exercise_set(name).values():
            if not exercise.rubric:
                problems += _exercise(exercise, key, setup, zygote, seed)
    return problems


def _exercise(exercise: Exercise, key: ModuleType, setup: str, zygote: Zygote, seed: int) -> Iterator[str]:
    id = exercise.id
    solutions, mutants = getattr(key, "SOLUTIONS", {}), getattr(key, "MUTANTS", {})
    if id not in solutions:
        yield f"the key has no solution of {id}"
        return
    outcome = grade_key(exercise, key, f"SOLUTIONS[{id!r}]", setup, zygote, seed)
    if outcome.status != PASS:
        yield f"the solution of {id} gets {outcome.status}: {outcome.message}"
    for i in range(len(mutants.get(id, ()))):
        outcome = grade_key(exercise, key, f"MUTANTS[{id!r}][{i}]", setup, zygote, seed)
        if outcome.status == PASS:
            yield f"mistake {i} of {id} gets full points"
    if not mutants.get(id):
        yield f"the key has no mistakes of {id} to test the grader with"


def grade_key(
    exercise: Exercise, key: ModuleType, which: str, setup: str, zygote: Zygote, seed: int = 0
) -> Outcome:
    """Grade one entry of a key, on the cases of several seeds and the hidden ones. which: as in ``MUTANTS['10.3-1'][4]``."""
    cases = [case for s in (seed, seed + 1, seed + 20) for case in exercise.cases(np.random.default_rng(s))]
    cases += hidden_cases(key, exercise.id, seed + 3)
    return grade_one(
        exercise, f"answer_ = {which}", cases, setup=setup, name="answer_", zygote=zygote, seed=seed
    )


def hidden_cases(key: ModuleType, id: str, seed: int) -> list[Case]:
    """The hidden cases of an exercise, drawn from ``seed``."""
    hidden = getattr(key, "HIDDEN", {}).get(id)
    return [] if hidden is None else list(hidden(np.random.default_rng(seed)))


def key_path(key_folder: str | Path, name: str) -> Path:
    """Where the key of a set is."""
    return Path(key_folder) / f"key_{name.replace('.', '_')}.py"


def load_key(path: Path) -> ModuleType:
    """The key of a set, as a module of the grader's own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no key at {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def key_setup(text: str) -> str:
    """A key's source for an answer's process: blank lines where it imports from ``labkit.grade``."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit.grade"):
            for i in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[i] = ""
    return "\n".join(lines)
