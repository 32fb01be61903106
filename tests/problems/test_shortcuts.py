"""No exercise is solved by one call: of a public function of labkit, or of a function that its labs define."""

import ast
import copy
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import jupytext
import numpy as np
import pytest

import labkit
from labkit.collectives import ring
from labkit_book.problems import Case, Exercise, judge, same_array
from labkit_book.problems.catalogue import all_exercises

ROOT = Path(__file__).parents[2]
FUNCTIONS = [e for e in all_exercises() if e.function]
SECONDS = 0.5  # for one shortcut on one question: who calls and waits has not answered


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def of_labkit() -> dict[str, Callable[..., Any]]:
    """Every function and class that a room shows, and every method of an object that it shows, by its name."""
    found: dict[str, Callable[..., Any]] = {}
    rooms = {m.name for m in pkgutil.iter_modules(labkit.__path__, "labkit.")}
    for name in sorted(rooms - {"labkit.doctor", "labkit.__main__"} | {"labkit_book.planner"}):
        for shown, value in vars(importlib.import_module(name)).items():
            if shown.startswith("_"):
                continue
            if callable(value) and str(getattr(value, "__module__", "")).startswith("labkit"):
                found[f"{name}.{shown}"] = _as_written(name, shown, value)
            elif type(value).__module__.startswith("labkit"):  # an object such as `ring`
                for method, f in inspect.getmembers(value, inspect.ismethod):
                    if not method.startswith("_"):
                        found[f"{name}.{shown}.{method}"] = _as_written(name, f"{shown}.{method}", f)
    return found


def _as_written(module: str, name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    """A call by name, as a student writes it, so that what is withheld is withheld here, too."""

    @functools.wraps(f)
    def called(*args: Any) -> Any:
        return pkgutil.resolve_name(f"{module}:{name}")(*args)

    return called


@functools.cache
def of_labs(set_name: str) -> dict[str, Callable[..., Any]]:
    """Every function that the set's labs write out, with what they import and the plain values they name."""
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted((ROOT / "notebooks").glob(f"{set_name.replace('.', '_').lower()}_*.md")):
        space: dict[str, Any] = {"__name__": "__lab__"}
        for cell in jupytext.read(path).cells:
            try:
                body = ast.parse(cell.source).body if cell.cell_type == "code" else []
            except SyntaxError:
                continue
            for node in body:
                kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
                if isinstance(node, kinds) or (isinstance(node, ast.Assign) and not _calls(node.value)):
                    try:
                        exec(compile(ast.Module([node], []), path.name, "exec"), space)
                    except Exception:  # it needs what only a run of the lab has
                        continue
        own = {k: f for k, f in space.items() if inspect.isfunction(f) and f.__module__ == "__lab__"}
        found |= {f"{path.stem}: {k}": f for k, f in own.items()}
    return found


def _calls(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) for n in ast.walk(node))


def fits(f: Callable[..., Any], arity: int) -> bool:
    try:
        inspect.signature(f).bind(*range(arity))
    except (TypeError, ValueError):
        return False
    return True


def answers(f: Callable[..., Any], args: tuple) -> Iterator[Callable[..., Any]]:
    """``f`` itself, and what it returns looked at once: an attribute of the result, or its first element."""
    yield f
    try:
        with no_longer_than(SECONDS), np.errstate(all="ignore"):
            result = f(*args)
    except BaseException:
        return
    names = [x.name for x in dataclasses.fields(result)] if dataclasses.is_dataclass(result) else []
    names += [n for n, v in inspect.getmembers(type(result)) if isinstance(v, property)]
    for name in names:
        if type(result).__module__.startswith("labkit"):
            yield lambda *a, name=name: getattr(f(*a), name)


LABKIT = of_labkit()


def test_the_shortcuts_that_are_tried_are_many():
    of_all_labs = {name for s in {e.id.split("-")[0] for e in FUNCTIONS} for name in of_labs(s)}
    assert len(LABKIT) > 150 and len(of_all_labs) > 300


def shortcuts(exercise: Exercise) -> list[str]:
    """The names of what gets points when it is handed in as the answer."""
    cases = list(exercise.cases(np.random.default_rng(0)))
    first = cases[0]
    arity = 1 + len(first.args[0]) if first.K else len(first.args)
    scored = []
    for name, f in (LABKIT | of_labs(exercise.id.split("-")[0])).items():
        if not fits(f, arity):
            continue
        for answer in [f] if first.K else answers(f, copy.deepcopy(first.args)):
            asked = (dataclasses.replace(c, args=copy.deepcopy(c.args)) for c in cases)  # it may change them
            try:
                with no_longer_than(10 * SECONDS), np.errstate(all="ignore"), redirect_stdout(StringIO()):
                    verdict = judge(exercise, answer, asked)
            except TimeoutError:
                continue
            if verdict.points:
                scored.append(name)
    return scored


@pytest.mark.weekly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda e: e.id)
def test_no_single_call_solves_an_exercise(exercise):
    assert not shortcuts(exercise)


def test_an_exercise_that_one_call_solves_is_found():
    def cases(rng):
        for K, n in ((4, 1000), (7, 70)):
            right = list(ring.bytes(K, n, 8))
            yield Case((K, n, 8), lambda given, right=right: same_array(given, right))

    found = shortcuts(Exercise("10.5-0", "Bytes", "build", 1, "f", cases))
    assert "labkit.collectives.ring.bytes" in " ".join(found)
