"""From the cells of a notebook to a student's answers, one for each exercise of the set.

A problem set marks each answer cell with a tag, ``exercise-10.5-1``. Only marked cells are taken. A cell that was split has
its mark in both halves: they are taken together, in order. Where the marks are lost, the one cell that defines the name is
taken. What cannot be decided is for a human: nothing found, or several definitions that differ.

The imports that an answer may count on come from the notebook *as it was released*, never from the student's.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from labkit.grade.exercise import Exercise, exercise_set
from labkit.grade.notebook import Cell, Unreadable, read_cells

_MARK = "exercise-"
_LONGEST = 50_000  # characters
_CHECK = re.compile(r"""\bcheck\(\s*["']([\w.]+-\d+)["'](?:\s*,\s*(\w+))?""")


@dataclass(frozen=True)
class Answer:
    """What was found for one exercise.

    source: the student's code, or text where the exercise wants words. name: of the function or variable.
    setup: the released notebook's own imports. blank: the cell is as it was handed out.
    note: "" or why a human has to decide, in a sentence for the student and for whoever reads on.
    """

    source: str
    name: str
    setup: str = ""
    blank: bool = False
    note: str = ""


@dataclass(frozen=True)
class Released:
    """A problem set as it was handed out: its exercises, and for each the answer to which nothing was done."""

    name: str
    exercises: Mapping[str, Exercise]
    stubs: Mapping[str, Answer]
    sources: frozenset[str]


def released_path(name: str, folder: Path | str) -> Path:
    """Where the released notebook of set ``name`` is, if it is there."""
    return Path(folder) / f"{name.replace('.', '_')}_exercises.ipynb"


def released(name: str, folder: Path | str) -> Released:
    """The released notebook of set ``name`` in ``folder``.

    Raises ValueError, with one sentence, if it is not there or lacks the cell of an exercise.
    """
    path = released_path(name, folder)
    exercises = exercise_set(name)
    try:
        cells = read_cells(path)
    except Unreadable as error:
        raise ValueError(f"the released notebook of set {name}, {str(path)!r}: {error}") from None
    names = {id: given for c in _code(cells) for id, given in _CHECK.findall(c.source)}
    stubs = {}
    for id, exercise in exercises.items():
        answer = exercise.function or names.get(id, "")
        own = [c for c in cells if _MARK + id in c.tags]
        if not own and not exercise.rubric:
            own = [c for c in _code(cells) if answer and defines(c.source, answer)]
        if len(own) != 1:
            raise ValueError(f"{str(path)!r} must have one cell marked {_MARK}{id}, but has {len(own)}")
        stubs[id] = Answer(own[0].source, answer, _imports_before(cells, own[0], exercises), blank=True)
    return Released(name, exercises, stubs, frozenset(_normal(c.source) for c in cells))


def sets_of(cells: Sequence[Cell], known: Iterable[Released]) -> list[str]:
    """Which problem sets these cells belong to: by marks and checks; where there are none, by the names they define."""
    sets = {r.name: r for r in known}
    ids = [t.removeprefix(_MARK) for c in cells for t in c.tags if t.startswith(_MARK)]
    ids += [id for c in _code(cells) for id, _ in _CHECK.findall(c.source)]
    counts = Counter(id.rsplit("-", 1)[0] for id in ids)
    counts = Counter({name: n for name, n in counts.items() if name in sets})
    if counts:
        most = max(counts.values())  # a stray mark makes no second problem set
        return [name for name in sets if counts[name] * 3 >= most]
    for name, r in sets.items():
        counts[name] = sum(
            any(defines(c.source, a.name) for c in _code(cells)) for a in r.stubs.values() if a.name
        )
    best = [name for name, n in counts.items() if n and n == max(counts.values())]
    return best if len(best) == 1 else []


def find_answer(cells: Sequence[Cell], id: str, released: Released) -> Answer:
    """The student's answer to exercise ``id``."""
    if released.exercises[id].rubric:
        return _words(cells, id, released)
    stub = released.stubs[id]
    marked = [c for c in _code(cells) if _MARK + id in c.tags and c.source.strip()]
    theirs = [c for c in marked if defines(c.source, stub.name)]
    others = [
        c
        for c in _code(cells)
        if not any(t.startswith(_MARK) for t in c.tags)
        and _normal(c.source) not in released.sources - {_normal(stub.source)}
        and (defines(c.source, stub.name, imports=False) or _amends(c.source, stub.name))
    ]
    touched, elsewhere = _touched(theirs, stub), _touched(others, stub)

    def answer(taken: Sequence[Cell], note: str = "", blank: bool = False) -> Answer:
        source = "\n\n".join(without_magics(c.source) for c in sorted(taken, key=lambda c: c.number))
        return Answer(source, stub.name, stub.setup, blank, note)

    if len(touched) > 1:
        return answer(touched, f"{_places(touched)} each define {stub.name}, and differ: which one counts?")
    if touched:
        return answer([c for c in marked if c not in theirs or c.number <= touched[0].number])
    if theirs and elsewhere:
        where = f"but {_places(elsewhere)} {'define' if len(elsewhere) > 1 else 'defines'} {stub.name}, too"
        return answer(
            elsewhere, f"the cell for the answer is as it was handed out, {where}: which one counts?"
        )
    if len(elsewhere) > 1:
        return answer(
            elsewhere, f"{_places(elsewhere)} each define {stub.name}, and none is marked: which one counts?"
        )
    if elsewhere:
        return answer([*marked, *elsewhere])
    if theirs and len(marked) > len(theirs):
        return answer(marked)  # the stub, and what was added to it in a cell of the same mark
    if theirs or others:
        return answer(theirs or others, blank=True)
    if marked and not all(_tree(without_magics(c.source)) for c in marked):
        return answer(marked)  # not Python: the grader says where
    if marked:
        return answer(
            marked, f"{_places(marked)} should define {stub.name}, and does not: was it given another name?"
        )
    return answer([], f"there is no cell marked {_MARK}{id}, and none that defines {stub.name}")


def defines(source: str, name: str, imports: bool = True) -> bool:
    """Whether running ``source`` gives ``name`` a value: by def, class or assignment and, if ``imports``, by an import."""
    defined = _defined(source, imports)
    if defined is None:
        return bool(
            re.search(
                rf"^(async +)?(def|class) +{re.escape(name)}\b|^{re.escape(name)} *=(?!=)", source, re.M
            )
        )
    return name in defined


@lru_cache(maxsize=4096)  # asked once for every name of every problem set
def _defined(source: str, imports: bool) -> frozenset[str] | None:
    """All names to which running ``source`` gives a value; None if it is not Python."""
    tree = _tree(without_magics(source))
    return None if tree is None else frozenset().union(*(_names(node, imports) for node in _outer(tree)))


def _amends(source: str, name: str) -> bool:
    """Whether ``source`` sets items of ``name``, as in ``axes["pace"] = ...``."""
    tree = _tree(without_magics(source))
    items = (
        (n for n in _outer(tree) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
        if tree
        else ()
    )
    return any(isinstance(n.value, ast.Name) and n.value.id == name for n in items)


def without_magics(source: str) -> str:
    """``source`` with IPython's own lines (``%time``, ``!ls``, ``f?``) as comments, if that helps; no line moves."""
    if _tree(source) or re.match(r"\s*%%(?!(time|timeit|capture|prun)\b)", source):
        return source
    lines = [
        f"# {line}" if re.match(r"[%!?]|[\w.]+\?{1,2}\s*$", line) else line for line in source.split("\n")
    ]
    return "\n".join(lines) if _tree("\n".join(lines)) else source


def where_defined(cells: Sequence[Cell], name: str) -> int | None:
    """The number of the first cell that defines ``name``, if any does."""
    return next((c.number for c in _code(cells) if defines(c.source, name)), None)


def _words(cells: Sequence[Cell], id: str, released: Released) -> Answer:
    stub = released.stubs[id]
    marked = [c for c in cells if _MARK + id in c.tags]
    if not marked:
        return Answer(
            "", "", note=f"there is no cell marked {_MARK}{id}: look for the answer in the notebook"
        )
    after = marked[-1].number  # an answer in new cells below the marked one
    following = []
    for c in cells:
        if c.number == after + 1 and c.kind != "code" and _normal(c.source) not in released.sources:
            following.append(c)
            after += 1
    texts = [c.source.strip() for c in (*marked, *following) if _normal(c.source) != _normal(stub.source)]
    text = "\n\n".join(t for t in texts if t)
    return Answer(
        text, "", blank=not text, note="" if not text else "an answer in words, which a person reads"
    )


def _touched(cells: Sequence[Cell], stub: Answer) -> list[Cell]:
    """Those that are not as they were handed out, equal ones once."""
    first = {_normal(c.source): c for c in reversed(cells)}
    return sorted((c for s, c in first.items() if s != _normal(stub.source)), key=lambda c: c.number)


def _imports_before(cells: Sequence[Cell], own: Cell, exercises: Mapping[str, Exercise]) -> str:
    marks = {_MARK + id for id in exercises}
    lines: dict[str, None] = {}
    for c in _code(cells):
        tree = _tree(without_magics(c.source))
        if c.number >= own.number or marks & set(c.tags) or tree is None:
            continue
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                lines[ast.unparse(node)] = None
    return "\n".join(lines)


def _names(node: ast.AST, imports: bool) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.id}
    if imports and isinstance(node, (ast.Import, ast.ImportFrom)):
        return {a.asname or a.name.split(".")[0] for a in node.names}
    return set()


def _outer(tree: ast.AST) -> list[ast.AST]:
    """Every node that is not inside a function, class, lambda or comprehension: what is named there stays there."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp, ast.ListComp,
              ast.SetComp, ast.DictComp)  # fmt: skip
    out, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        out.append(node)
        if not isinstance(node, scopes):
            waiting.extend(ast.iter_child_nodes(node))
    return out


@lru_cache(maxsize=64)
def _tree(source: str) -> ast.Module | None:
    if len(source) > _LONGEST:  # no one wrote that by hand, and parsing it could take the grader down
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _code(cells: Iterable[Cell]) -> list[Cell]:
    return [c for c in cells if c.kind == "code"]


def _normal(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def _places(cells: Sequence[Cell]) -> str:
    numbers = [str(c.number) for c in cells]
    return f"cell {numbers[0]}" if len(numbers) == 1 else f"cells {', '.join(numbers[:-1])} and {numbers[-1]}"
