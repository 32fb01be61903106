"""From the cells of a notebook to a student's answers, one for each exercise of the set.

A problem set marks each answer cell with a tag, ``exercise-10.5-1``. A cell that was split has its mark in both halves,
which are taken together, in order. Where the marks are lost, the one cell that defines the name is taken. What cannot be
decided is for a human: nothing found, or several definitions that differ. An answer may count on the imports of the
notebook *as it was released*, and runs after those other cells that give a value to a name it reads, or change what such a
name stands for; and those that these need, in turn.
"""

import ast
import builtins
import re
import symtable
import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from labkit_book.grader.collect import Cell, read_cells
from labkit_book.problems.catalogue import exercise_set
from labkit_book.problems.exercise import Exercise

_MARK = "exercise-"
_CHECK = re.compile(r"""\bcheck\(\s*["']([\w.]+-\d+)["'](?:\s*,\s*(\w+))?""")
_LONGEST = 50_000  # characters
_KNOWN = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "display", "get_ipython"}
_ONLY_LOOK = ("print", "display", "check", "summary")
_DEFINE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class _Answer(NamedTuple):
    source: str  # the student's code, or text where the exercise wants words
    name: str  # of the function or variable
    setup: str = ""  # the released notebook's own imports
    cells: tuple[tuple[int, str], ...] = ()  # others of the notebook that it needs: number and source
    blank: bool = False  # whether the cell is as it was handed out
    note: str = ""  # or why a human has to decide, in a sentence for the student and whoever reads on


class Released(NamedTuple):
    """A problem set as it was handed out."""

    name: str
    exercises: Mapping[str, Exercise]
    stubs: Mapping[str, _Answer]  # for each exercise the answer to which nothing was done
    sources: frozenset[str]  # of all cells

    @classmethod
    def load(cls, of: str, folder: Path | str) -> "Released":
        """The released notebook of set ``of`` in ``folder``. Raises ValueError if it lacks an exercise's cell."""
        cells, exercises, stubs = read_cells(released_path(of, folder)), exercise_set(of), {}
        code = _code(cells)
        names = {id: given for c in code for id, given in _CHECK.findall(c.source)}
        for id, exercise in exercises.items():
            (own,) = [c for c in cells if _MARK + id in c.tags]
            above = [c for c in code if c.number < own.number and not any(_MARK in t for t in c.tags)]
            nodes = [node for c in above if (tree := _parsed(c.source)) for node in tree.body]
            setup = [ast.unparse(node) for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
            name = exercise.function or names.get(id, "")
            stubs[id] = _Answer(own.plain, name, "\n".join(dict.fromkeys(setup)), blank=True)
        return cls(of, exercises, stubs, frozenset(c.plain for c in (*cells, *code)))

    @property
    def setup(self) -> str:
        """Every import of the notebook."""
        setups = [stub.setup for stub in self.stubs.values() if stub.setup]
        return "\n".join(dict.fromkeys("\n".join(setups).splitlines()))

    def answer(self, cells: Sequence[Cell], id: str) -> _Answer:
        """The student's answer to exercise ``id``."""
        if self.exercises[id].rubric:
            return self._words(cells, id)
        stub, code = self.stubs[id], _code(cells)
        taken, note = self._taken(code, id)
        source = "\n\n".join(c.source for c in taken)
        needed = tuple(_needed(source, [c for c in code if c not in taken]))
        blank = bool(taken) and all(c.plain == stub.source for c in taken)
        return stub._replace(source=source, cells=needed, blank=blank, note=note)

    def _taken(self, code: Sequence[Cell], id: str) -> tuple[Sequence[Cell], str]:
        """The cells that make the answer, in order, and why a human has to decide, or ""."""
        name, stub = self.stubs[id].name, self.stubs[id].source
        marked = [c for c in code if _MARK + id in c.tags and c.plain]
        changed = [c for c in marked if c.plain != stub]
        own = _distinct(c for c in changed if _defines(c.source, name))
        if len(own) == 1:  # with what was split off it, and without a copy of the stub
            return [c for c in changed if c in own or not _defines(c.source, name)], ""
        new = [c for c in code if c.plain not in self.sources and not any(_MARK in tag for tag in c.tags)]
        elsewhere = _distinct(c for c in new if _defines(c.source, name, filled=True))
        candidates = own or elsewhere
        if len(candidates) > 1 or (candidates and marked != changed):
            numbers = ", ".join(str(c.number) for c in candidates)
            return candidates, f"cells {numbers} define {name}: which one counts?"
        # The stub, and what was added to it; or the one cell that lost its mark.
        if marked != changed or elsewhere:
            return [*marked, *elsewhere], ""
        if lost := [c for c in code if c.plain == stub]:
            return lost, ""
        if not marked:
            return [], f"there is no cell marked {_MARK}{id}, and none that defines {name}"
        if not all(_parsed(c.source) for c in marked):
            return marked, ""  # not Python: the grader says where
        return marked, f"the marked cell should define {name}, and does not: was it given another name?"

    def _words(self, cells: Sequence[Cell], id: str) -> _Answer:
        marked = [c for c in cells if _MARK + id in c.tags]
        if not marked:
            return _Answer("", "", note=f"no cell is marked {_MARK}{id}: look for the answer in the notebook")
        below = cells[marked[-1].number :]  # where an answer may stand in new cells
        marked += takewhile(lambda c: c.kind != "code" and c.plain not in self.sources, below)
        text = "\n\n".join(c.plain for c in marked if c.plain not in ("", self.stubs[id].source))
        return _Answer(text, "", blank=not text, note=text and "an answer in words, which a person reads")


def released_path(name: str, folder: Path | str) -> Path:
    """Where the released notebook of set ``name`` is, if it is there."""
    return Path(folder) / f"{name.replace('.', '_').lower()}_exercises.ipynb"


def sets_of(cells: Sequence[Cell], names: Collection[str]) -> list[str]:
    """Which problem sets these cells belong to, by marks and checks; a stray mark makes no second one."""
    ids = [t.removeprefix(_MARK) for c in cells for t in c.tags if t.startswith(_MARK)]
    ids += [id for c in cells if c.kind == "code" for id, _ in _CHECK.findall(c.source)]
    counts = Counter(id.rpartition("-")[0] for id in ids)
    most = max((counts[name] for name in names), default=0)
    return [name for name in names if 0 < most <= counts[name] * 3]


def _distinct(cells: Iterable[Cell]) -> list[Cell]:
    """Of cells with the same text the first."""
    return list({c.plain: c for c in reversed([*cells])}.values())[::-1]


def _code(cells: Iterable[Cell]) -> list[Cell]:
    """The cells of code, as Python."""
    return [c._replace(source=_without_magics(c.source)) for c in cells if c.kind == "code"]


@lru_cache(maxsize=64)
def _parsed(source: str) -> ast.Module | None:
    """The syntax tree; None if this is not Python."""
    if len(source) > _LONGEST:  # no one wrote that by hand, and parsing it could take the grader down
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            symtable.symtable(source, "<cell>", "exec")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=4096)
def _without_magics(source: str) -> str:
    """``source`` with IPython's own lines (``%time``, ``!ls``, ``f?``) as comments, if that helps; no line moves."""
    if _parsed(source) or re.match(r"\s*%%(?!(time|timeit|capture|prun)\b)", source):
        return source
    plain = re.sub(r"^(?=[%!?]|[\w.]+\?{1,2}\s*$)", "# ", source, flags=re.M)
    return plain if _parsed(plain) else source


class _Names(NamedTuple):
    gives: set[str]  # a value
    imports: set[str]  # of these
    changes: set[str]  # whose objects it may change
    needs: set[str]  # from outside


@lru_cache(maxsize=4096)  # asked for every name of every problem set
def _names_of(source: str) -> _Names | None:
    """The names of a cell; None if it is not Python."""
    if (tree := _parsed(source)) is None:
        return None
    top = symtable.symtable(source, "<cell>", "exec")
    symbols, inner = top.get_symbols(), top.get_children()
    while inner:
        scope = inner.pop()
        inner += scope.get_children()
        symbols += [s for s in scope.get_symbols() if s.is_global()]
    imports = {s.get_name() for s in symbols if s.is_imported()}
    gives = {s.get_name() for s in symbols if s.is_assigned()} | imports
    needs = {s.get_name() for s in symbols if s.is_referenced()} - gives - _KNOWN
    changes = {name for node in tree.body if not isinstance(node, _DEFINE) for name in _changed(node)}
    return _Names(gives, imports, changes, needs)


def _changed(statement: ast.stmt) -> Iterator[str]:
    """The names whose objects this may change, by an item, an attribute, a method; or as arguments of a call by itself."""
    for node in ast.walk(statement):
        changed: list[ast.expr] = []
        if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            changed = [node]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changed = [node.func]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            look = isinstance(node.value.func, ast.Name) and node.value.func.id in _ONLY_LOOK
            changed = [] if look else [*node.value.args, *(word.value for word in node.value.keywords)]
        for holder in changed:
            while isinstance(holder, (ast.Attribute, ast.Subscript)):
                holder = holder.value
            if isinstance(holder, ast.Name):
                yield holder.id


def _defines(source: str, name: str, filled: bool = False) -> bool:
    """Whether running ``source`` gives ``name`` a value. filled: by items too, as in ``name["a"] = 1``; not by imports."""
    names = _names_of(source)
    if filled and re.search(rf"^\s*{re.escape(name)}\[.*\] *=(?!=)", source, re.M):
        return True
    return names is not None and name in (names.gives - names.imports if filled else names.gives)


def _needed(source: str, others: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    """Those of the ``others`` that an answer needs, in their order: number and source."""
    known = {i: names for i, c in enumerate(others) if (names := _names_of(c.source))}
    modules = set[str]().union(*(names.imports for names in known.values()))
    makers: dict[str, set[int]] = defaultdict(set)
    for i, names in known.items():
        for name in names.gives | (names.changes - modules):
            makers[name].add(i)
    stars = {i for i in known if re.search(r"import +\*", others[i].source)}
    own = _names_of(source)
    waiting, taken = list(own.needs if own else ()), set[int]()
    while waiting:
        for i in makers.get(waiting.pop(), stars) - taken:
            taken.add(i)
            waiting += known[i].needs
    yield from ((others[i].number, others[i].source) for i in sorted(taken))
