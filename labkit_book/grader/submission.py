"""From the cells of a notebook to a student's answers, one for each exercise of the set.

A problem set marks each answer cell with a tag, ``exercise-10.5-1``. Only marked cells are taken. A cell that was split has
its mark in both halves: they are taken together, in order. Where the marks are lost, the one cell that defines the name is
taken. What cannot be decided is for a human: nothing found, or several definitions that differ.

An answer may count on the imports of the notebook *as it was released*, and on what its own notebook defines elsewhere: a
helper may stand in any cell that has run. So what is taken from the student's other cells is every statement that gives a
value to a name which the answer reads and does not make; and what those statements read, in turn.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import symtable
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from labkit_book.grader.notebook import Cell, Unreadable, read_cells
from labkit_book.problems.catalogue import exercise_set
from labkit_book.problems.exercise import Exercise

_MARK = "exercise-"
_LONGEST = 50_000  # characters
_KNOWN = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "display", "get_ipython"}
_CHECK = re.compile(r"""\bcheck\(\s*["']([\w.]+-\d+)["'](?:\s*,\s*(\w+))?""")


@dataclass(frozen=True)
class Answer:
    """What was found for one exercise.

    source: the student's code, or text where the exercise wants words. name: of the function or variable.
    setup: the released notebook's own imports. helpers: what it uses from other cells of its notebook. blank: the cell is as
    it was handed out.
    note: "" or why a human has to decide, in a sentence for the student and for whoever reads on.
    """

    source: str
    name: str
    setup: str = ""
    helpers: str = ""
    blank: bool = False
    note: str = ""


@dataclass(frozen=True)
class Released:
    """A problem set as it was handed out: its exercises, and for each the answer to which nothing was done."""

    name: str
    exercises: Mapping[str, Exercise]
    stubs: Mapping[str, Answer]
    sources: frozenset[str]

    @classmethod
    def load(cls, name: str, folder: Path | str) -> Released:
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
                own = [c for c in _code(cells) if answer and _defines(c.source, answer)]
            if len(own) != 1:
                raise ValueError(f"{str(path)!r} must have one cell marked {_MARK}{id}, but has {len(own)}")
            stubs[id] = Answer(own[0].source, answer, _imports_before(cells, own[0], exercises), blank=True)
        return cls(name, exercises, stubs, frozenset(_normal(c.source) for c in (*cells, *_code(cells))))

    def answer(self, cells: Sequence[Cell], id: str) -> Answer:
        """The student's answer to exercise ``id``."""
        if self.exercises[id].rubric:
            return self._words(cells, id)
        stub, code = self.stubs[id], _code(cells)
        taken, note = self._taken(code, id)
        source = "\n\n".join(c.source for c in sorted(taken, key=lambda c: c.number))
        rest = [c.source for c in code if c not in taken and _tree(c.source)]
        needs = _helpers(source, rest) if _tree(source) else ""
        blank = bool(taken) and not _touched(taken, stub)
        return Answer(source, stub.name, stub.setup, needs, blank, note)

    def _taken(self, code: Sequence[Cell], id: str) -> tuple[Sequence[Cell], str]:
        """The cells that make the answer, and why a human has to decide, or ""."""
        stub = self.stubs[id]
        marked = [c for c in code if _MARK + id in c.tags and c.source.strip()]
        theirs = [c for c in marked if _defines(c.source, stub.name)]
        touched = _touched(theirs, stub)
        if len(touched) > 1:
            return touched, f"{_places(touched)} each define {stub.name}, and differ: which one counts?"
        if touched:  # with what was split off it, and without a copy of the stub below
            return [c for c in marked if c not in theirs or c.number <= touched[0].number], ""
        others = self._unmarked(code, stub)
        if elsewhere := _touched(others, stub):
            return self._elsewhere(elsewhere, marked, theirs, stub.name)
        if theirs:  # the stub, and what was added to it in a cell of the same mark
            return marked, ""
        if others:  # the stub, whose mark was lost
            return others, ""
        if not marked:
            return [], f"there is no cell marked {_MARK}{id}, and none that defines {stub.name}"
        if not all(_tree(c.source) for c in marked):
            return marked, ""  # not Python: the grader says where
        said = f"{_places(marked)} should define {stub.name}, and does not: was it given another name?"
        return marked, said

    def _unmarked(self, code: Sequence[Cell], stub: Answer) -> list[Cell]:
        """The cells without a mark that define the answer's name; of those handed out, only the stub itself."""
        handed_out = self.sources - {_normal(stub.source)}
        unmarked = [c for c in code if not any(t.startswith(_MARK) for t in c.tags)]
        new = [c for c in unmarked if _normal(c.source) not in handed_out]
        return [c for c in new if _defines(c.source, stub.name, "items")]

    def _elsewhere(
        self, elsewhere: Sequence[Cell], marked: Sequence[Cell], theirs: Sequence[Cell], name: str
    ) -> tuple[Sequence[Cell], str]:
        """The same, where only cells without a mark have changed: these are ``elsewhere``."""
        if theirs:
            where = f"{_places(elsewhere)} {'define' if len(elsewhere) > 1 else 'defines'} {name}, too"
            said = f"the cell for the answer is as it was handed out, but {where}: which one counts?"
            return elsewhere, said
        if len(elsewhere) > 1:
            said = f"{_places(elsewhere)} each define {name}, and none is marked: which one counts?"
            return elsewhere, said
        return [*marked, *elsewhere], ""

    def _words(self, cells: Sequence[Cell], id: str) -> Answer:
        stub = self.stubs[id]
        marked = [c for c in cells if _MARK + id in c.tags]
        if not marked:
            said = f"there is no cell marked {_MARK}{id}: look for the answer in the notebook"
            return Answer("", "", note=said)
        after = marked[-1].number  # an answer in new cells below the marked one
        following = []
        for c in cells:
            if c.number == after + 1 and c.kind != "code" and _normal(c.source) not in self.sources:
                following.append(c)
                after += 1
        texts = [c.source.strip() for c in (*marked, *following) if _normal(c.source) != _normal(stub.source)]
        text = "\n\n".join(t for t in texts if t)
        return Answer(text, "", blank=not text, note=text and "an answer in words, which a person reads")


def released_path(name: str, folder: Path | str) -> Path:
    """Where the released notebook of set ``name`` is, if it is there."""
    return Path(folder) / f"{name.replace('.', '_').lower()}_exercises.ipynb"


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
            any(_defines(c.source, a.name) for c in _code(cells)) for a in r.stubs.values() if a.name
        )
    best = [name for name, n in counts.items() if n and n == max(counts.values())]
    return best if len(best) == 1 else []


def lab_of(cells: Sequence[Cell], folder: Path) -> str:
    """The lab in ``folder`` of which these cells are a copy, more or less, by its file's name; "" if of none."""
    mine = {_normal(c.source) for c in _code(cells)}
    return next((name for name, code in _labs(folder).items() if len(mine & code) > len(code) / 2), "")


@lru_cache(maxsize=2)
def _labs(folder: Path) -> dict[str, frozenset[str]]:
    """The code of each lab in a folder, by its file's name."""
    found = {}
    for path in sorted(folder.glob("*.ipynb")):
        with suppress(Unreadable):
            found[path.stem] = frozenset(_normal(c.source) for c in _code(read_cells(path)))
    return {name: code for name, code in found.items() if code}


def _defines(source: str, name: str, also: str = "imports") -> bool:
    """Whether running ``source`` gives ``name`` a value: by def, class or assignment, or by what is ``also`` counted."""
    given = _given(source, also)
    if given is not None:
        return name in given
    n = re.escape(name)
    return bool(re.search(rf"^(async +)?(def|class) +{n}\b|^{n} *=(?!=)", source, re.M))


@lru_cache(maxsize=4096)  # asked once for every name of every problem set
def _given(source: str, also: str) -> frozenset[str] | None:
    """All names to which running ``source`` gives a value; None if it is not Python."""
    tree = _tree(source)
    return None if tree is None else frozenset(_names(tree, also))


def _names(tree: ast.AST, also: str) -> set[str]:
    """The names to which ``tree`` gives a value; ``also`` may say "imports", and "items", as in ``axes["pace"] = ...``."""
    found: set[str] = set()
    for node in _outer(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and "imports" in also:
            found.update(a.asname or a.name.split(".")[0] for a in node.names)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and "items" in also:
            found.update({node.value.id} if isinstance(node.value, ast.Name) else ())
    return found


def _missing(source: str) -> frozenset[str]:
    """The names that running ``source`` reads from outside; none if it is not Python."""
    try:
        top = symtable.symtable(source, "<answer>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    made = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    read: set[str] = set()
    waiting = [top]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        outer = table is top
        read |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (outer or s.is_global())}
        made |= {s.get_name() for s in table.get_symbols() if s.is_declared_global() and s.is_assigned()}
    return frozenset(read - made - _KNOWN)


def _helpers(source: str, others: Iterable[str]) -> str:
    """The statements of ``others`` (Python, cell by cell) that ``source`` needs, in their order; "" if it needs none.

    Where several statements define a name, all are taken, so that the last one counts, as in a notebook run downwards.
    """
    statements = [s for text in others for s in _statements(text)]
    wanted, taken = set(_missing(source)), set[int]()
    while more := {i for i, (_, names) in enumerate(statements) if names & wanted} - taken:
        taken |= more
        wanted = wanted.union(*(_missing(statements[i][0]) for i in more))
    return "\n".join(statements[i][0] for i in sorted(taken))


@lru_cache(maxsize=256)  # of a notebook's cells, for each of its answers
def _statements(source: str) -> list[tuple[str, frozenset[str]]]:
    """Each statement of a cell, decorators included, with the names to which it gives a value."""
    lines = [line.encode() for line in io.StringIO(source, newline=None)]
    found = []
    for node in ast.parse(source).body:
        own = lines[node.lineno - 1 : node.end_lineno]
        own[-1] = own[-1][: node.end_col_offset]
        own[0] = own[0][node.col_offset :]
        decorators = [f"@{ast.unparse(d)}\n" for d in getattr(node, "decorator_list", [])]
        text = "".join(decorators) + b"".join(own).decode()
        found.append((text, frozenset(_names(node, "imports, items"))))
    return found


@lru_cache(maxsize=4096)
def _without_magics(source: str) -> str:
    """``source`` with IPython's own lines (``%time``, ``!ls``, ``f?``) as comments, if that helps; no line moves."""
    if _tree(source) or re.match(r"\s*%%(?!(time|timeit|capture|prun)\b)", source):
        return source
    lines = [
        f"# {line}" if re.match(r"[%!?]|[\w.]+\?{1,2}\s*$", line) else line for line in source.split("\n")
    ]
    return "\n".join(lines) if _tree("\n".join(lines)) else source


def _touched(cells: Sequence[Cell], stub: Answer) -> list[Cell]:
    """Those that are not as they were handed out, equal ones once."""
    first = {_normal(c.source): c for c in reversed(cells)}
    return sorted((c for s, c in first.items() if s != _normal(stub.source)), key=lambda c: c.number)


def _imports_before(cells: Sequence[Cell], own: Cell, exercises: Mapping[str, Exercise]) -> str:
    marks = {_MARK + id for id in exercises}
    before = [c for c in _code(cells) if c.number < own.number and not marks & set(c.tags)]
    nodes = [node for c in before if (tree := _tree(c.source)) for node in tree.body]
    lines = [ast.unparse(node) for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    return "\n".join(dict.fromkeys(lines))


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
    """The cells of code, as Python."""
    return [replace(c, source=_without_magics(c.source)) for c in cells if c.kind == "code"]


def _normal(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def _places(cells: Sequence[Cell]) -> str:
    numbers = [str(c.number) for c in cells]
    return f"cell {numbers[0]}" if len(numbers) == 1 else f"cells {', '.join(numbers[:-1])} and {numbers[-1]}"
