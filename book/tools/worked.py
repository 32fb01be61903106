"""The worked solutions that travel with the package, made of the instructor's keys: `python book/tools/worked.py`.

A key (tests/exercises/key_*.py) writes each solution once, with arguments that turn it into the mistakes which the judge is
shown to catch. Here those arguments get the values that they have in a solution, what can then not happen is left out, and
what the solution calls comes along; for an answer in words the key's LOOK_FOR. It goes into labkit/exercises/worked.txt,
which `labkit.exercises.worked` opens.

`--without 10.5 B` leaves sets out, for a wheel that is handed to a class whose answers count.
"""

from __future__ import annotations

import argparse
import ast
import base64
import json
import lzma
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labkit.exercises.catalogue import all_exercises
from labkit.exercises.exercise import Exercise
from labkit.exercises.worked import SEALED
from labkit.grade.key import Key
from labkit.grade.submission import Released

ROOT = Path(__file__).resolve().parents[2]
KEYS = ROOT / "tests" / "exercises"
WIDTH = 88
EMPTY = ast.Dict([], [])


def solutions(without: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Of each exercise its solution: one piece of Python, or a text for each criterion."""
    made = {}
    for exercise in all_exercises():
        name = exercise.id.rpartition("-")[0]
        if name in without:
            continue
        if exercise.rubric:
            made[exercise.id] = list(Key.load(KEYS, name).look_for[exercise.id])
        else:
            made[exercise.id] = [written(exercise)]
    return made


def written(exercise: Exercise) -> str:
    """The solution of one exercise as a student might write it, before it is formatted."""
    name = exercise.id.rpartition("-")[0].replace(".", "_")
    source = (KEYS / f"key_{name}.py").read_text(encoding="utf-8")
    arity = 0
    if exercise.function:
        book = Released.load(exercise.id.rpartition("-")[0], ROOT / "notebooks" / "exercises")
        body = ast.parse(book.stubs[exercise.id].source).body
        arity = next(len(n.args.args) for n in body if getattr(n, "name", "") == exercise.function)
    return Excerpt(source).solution(exercise, arity)


class Excerpt:
    """What of a key one solution needs."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()
        self.module = ast.parse(source)
        self.homes: dict[str, list[ast.stmt]] = {}
        for node in self.module.body:
            for name in defined(node):
                self.homes.setdefault(name, []).append(node)

    def solution(self, exercise: Exercise, arity: int) -> str:
        """Imports, what is called, and the answer under the name that the notebook has for it."""
        (table,) = self.homes["SOLUTIONS"]
        assert isinstance(table, ast.Assign) and isinstance(table.value, ast.Dict)
        entry = next(
            v for k, v in zip(table.value.keys, table.value.values, strict=True)
            if isinstance(k, ast.Constant) and k.value == exercise.id
        )  # fmt: skip
        own = exercise.function or "answer"
        last: list[ast.stmt] = []
        if isinstance(entry, ast.Name) and isinstance(f := self.homes[entry.id][0], ast.FunctionDef):
            last = [specialised(f, arity, own)]
        elif isinstance(entry, ast.Call) and isinstance(entry.func, ast.Name) and not entry.args:
            (f,) = self.homes[entry.func.id]
            assert isinstance(f, ast.FunctionDef) and not entry.keywords
            last = [specialised(f, 0, f.name), assigned(own, entry)]
            if isinstance(f.body[-1], ast.Return) and exercise.function:
                last = inlined(last[0], own) or last
        else:
            last = [assigned(own, entry)]
        return "\n\n".join([*self.needed(last), *map(unparsed, last)]) + "\n"

    def needed(self, last: list[ast.stmt]) -> Iterator[str]:
        """The statements of the key that these need, in its order: as written, with the comment above."""
        own = {name for node in last for name in defined(node)}
        found: set[int] = set()
        waiting = list(last)
        while waiting:
            for name in used(waiting.pop()) - own:
                for home in self.homes.get(name, ()):
                    if id(home) not in found:
                        found.add(id(home))
                        waiting.append(home)
        names = set().union(*map(used, [n for n in self.module.body if id(n) in found] + last))
        imports = []
        for node in self.module.body:
            if id(node) not in found:
                continue
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                kept = [a for a in node.names if (a.asname or a.name).partition(".")[0] in names]
                again = (
                    ast.Import(kept)
                    if isinstance(node, ast.Import)
                    else ast.ImportFrom(node.module, kept, node.level)
                )
                imports.append(ast.unparse(again))
        if imports:
            yield "\n".join(imports)
        for node in self.module.body:
            if id(node) in found and not isinstance(node, (ast.Import, ast.ImportFrom)):
                text = "\n".join(self.lines[node.lineno - 1 : node.end_lineno])
                yield re.sub(r"  # noqa.*", "", text)


def defined(node: ast.stmt) -> set[str]:
    """The names that a statement of a module gives a meaning, or changes."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(a.asname or a.name).partition(".")[0] for a in node.names}
    if isinstance(node, (ast.For, ast.If, ast.With)):
        return set().union(*map(defined, node.body))
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def used(node: ast.AST) -> set[str]:
    """The names that it takes from around it."""
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    local = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    local |= (
        {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        if isinstance(node, ast.FunctionDef)
        else set()
    )
    return {n.id for n in names if isinstance(n.ctx, ast.Load)} - local


def unparsed(node: ast.AST) -> str:
    """As Python, without the brackets that `ast` puts around any tuple."""
    lines = ast.unparse(node).splitlines()
    for i, line in enumerate(lines):
        bare = re.sub(r"^(\s*(?:return|[^=()]+ =)) \((.*)\)$", r"\1 \2", line)
        try:
            if ast.dump(ast.parse(f"def f():\n {bare.strip()}")) == ast.dump(
                ast.parse(f"def f():\n {line.strip()}")
            ):
                lines[i] = bare
        except SyntaxError:
            continue
    return "\n".join(lines)


def assigned(name: str, value: ast.expr) -> ast.stmt:
    return ast.fix_missing_locations(ast.Assign([ast.Name(name, ast.Store())], value))


def specialised(f: ast.FunctionDef, arity: int, name: str) -> ast.FunctionDef:
    """The function with so many arguments; the others have their defaults, and what these rule out is gone."""
    f = ast.parse(ast.unparse(f)).body[0]  # type: ignore[assignment]
    a = f.args
    values: dict[str, ast.expr] = {}
    for arg, value in zip(a.args[len(a.args) - len(a.defaults) :], a.defaults, strict=True):
        if a.args.index(arg) >= arity:
            values[arg.arg] = value
    values |= {arg.arg: v for arg, v in zip(a.kwonlyargs, a.kw_defaults, strict=True) if v is not None}
    if a.kwarg:
        values[a.kwarg.arg] = EMPTY
    stored = {n.id for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    first = [assigned(n, v) for n, v in values.items() if n in stored]
    kept = [arg for arg in a.args if arg.arg not in values]
    defaults = (
        a.defaults[len(a.defaults) - sum(arg in a.args[-len(a.defaults) :] for arg in kept) :]
        if a.defaults
        else []
    )
    f.args = ast.arguments(
        a.posonlyargs, kept, a.vararg, [], [], None, defaults if len(defaults) <= len(kept) else []
    )
    fold = Folded({n: v for n, v in values.items() if n not in stored} | {f.name: ast.Name(name, ast.Load())})
    if values and ast.get_docstring(f):  # it is about these
        f.body = f.body[1:]
    f.body = [*first, *fold.block(f.body)]
    f.name = name
    return ast.fix_missing_locations(f)


def inlined(maker: ast.stmt, own: str) -> list[ast.stmt]:
    """Of a function that defines one and returns it, that one, under its own name; nothing if it does more."""
    assert isinstance(maker, ast.FunctionDef)
    *rest, inner, back = maker.body
    if not (
        isinstance(inner, ast.FunctionDef)
        and isinstance(back, ast.Return)
        and isinstance(back.value, ast.Name)
    ):
        return []
    if back.value.id != inner.name or any(not isinstance(n, (ast.FunctionDef, ast.Expr)) for n in rest):
        return []
    inner.name = own
    return [*(n for n in rest if isinstance(n, ast.FunctionDef)), inner]


class Folded(ast.NodeTransformer):
    """Puts values for names, and works out what they decide."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for node in body:
            got = self.visit(node)
            out += got if isinstance(got, list) else [] if got is None else [got]
        return out

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return ast.parse(ast.unparse(self.values[node.id]), mode="eval").body
        return node

    def visit_If(self, node: ast.If) -> Any:
        return self.branch(node, self.block)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        return self.branch(node, self.visit)

    def branch(self, node: Any, each: Callable[[Any], Any]) -> Any:
        """The branch that is taken, if that is known; else both. each: what becomes of a branch."""
        node.test = self.visit(node.test)
        decided = known(node.test)
        if decided is not None:
            return each(node.body if decided[0] else node.orelse)
        node.body, node.orelse = each(node.body), each(node.orelse)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        ends = isinstance(node.op, ast.Or)
        values: list[ast.expr] = []
        for value in map(self.visit, node.values):
            decided = known(value)
            if decided is None or bool(decided[0]) == ends:
                values.append(value)
                if decided is not None:
                    break
        if not values:
            return ast.Constant(not ends)
        return values[0] if len(values) == 1 else ast.BoolOp(node.op, values)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        return constant(self.generic_visit(node))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return (
            constant(self.generic_visit(node)) if isinstance(node.op, ast.Not) else self.generic_visit(node)
        )

    def visit_Assign(self, node: ast.Assign) -> Any:
        node = self.generic_visit(node)  # type: ignore[assignment]
        return None if ast.unparse(node.targets[0]) == ast.unparse(node.value) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        node = self.generic_visit(node)  # type: ignore[assignment]
        at = node.slice
        if isinstance(node.value, ast.Dict) and isinstance(at, ast.Constant):
            entries = zip(node.value.keys, node.value.values, strict=True)
            return next(v for k, v in entries if isinstance(k, ast.Constant) and k.value == at.value)
        parts = at.elts if isinstance(at, ast.Tuple) else [at]
        parts = [sliced(part) for part in parts]
        node.slice = ast.Tuple(parts, ast.Load()) if isinstance(at, ast.Tuple) else parts[0]
        return node

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        node = self.generic_visit(node)  # type: ignore[assignment]
        over = ast.unparse(node.generators[0].iter)
        return EMPTY if over in ("{}.items()", "{}") else node

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        node = self.generic_visit(node)  # type: ignore[assignment]
        pairs = [(k, v) for k, v in zip(node.keys, node.values, strict=True) if k or ast.unparse(v) != "{}"]
        return ast.Dict([k for k, _ in pairs], [v for _, v in pairs])

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node = self.generic_visit(node)  # type: ignore[assignment]
        right, left = ast.unparse(node.right), ast.unparse(node.left)
        if isinstance(node.op, ast.BitOr) and right == "{}":
            return node.left
        if isinstance(node.op, (ast.Add, ast.Sub)) and right in ("0", "0.0"):
            return node.left
        if isinstance(node.op, ast.Mult) and "False" in (left, right):
            return ast.Constant(0)
        if isinstance(node.op, (ast.Mult, ast.Div, ast.Pow)) and right in ("1", "1.0", "True"):
            return node.left
        if isinstance(node.op, ast.Mult) and left in ("1", "1.0", "True"):
            return node.right
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        node = self.generic_visit(node)  # type: ignore[assignment]
        nothing = isinstance(node.op, (ast.Mult, ast.Div)) and ast.unparse(node.value) in ("1", "1.0")
        return None if nothing else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node = self.generic_visit(node)  # type: ignore[assignment]
        node.keywords = [k for k in node.keywords if k.arg or ast.unparse(k.value) != "{}"]
        f = node.func
        if isinstance(f, ast.Lambda) and not node.keywords and len(f.args.args) == len(node.args):
            given = dict(zip((a.arg for a in f.args.args), node.args, strict=True))
            return Folded(given).visit(f.body)
        if isinstance(f, ast.Attribute) and f.attr == "get" and ast.unparse(f.value) == "{}":
            return node.args[1] if len(node.args) > 1 else ast.Constant(None)
        return node


def sliced(at: ast.expr) -> ast.expr:
    """``slice(3)`` between brackets, as ``:3``."""
    if not (isinstance(at, ast.Call) and isinstance(at.func, ast.Name) and at.func.id == "slice"):
        return at
    ends = [None if isinstance(a, ast.Constant) and a.value is None else a for a in at.args]
    return ast.Slice(*([None, *ends] if len(ends) == 1 else ends))


def constant(node: Any) -> ast.expr:
    """True or False where that is decided."""
    decided = known(node)
    return node if decided is None else ast.Constant(bool(decided[0]))


def known(test: ast.expr) -> tuple[Any] | None:
    """The value of a condition without names, calls and the like, in a tuple; None if it has any."""
    harmless = (
        ast.Constant, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In,
        ast.NotIn, ast.Tuple, ast.Dict, ast.List, ast.Load, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
    )  # fmt: skip
    if isinstance(test, ast.Lambda):
        return (True,)
    if isinstance(test, ast.BoolOp):  # as one value decides it
        ends = isinstance(test.op, ast.Or)
        return (ends,) if any(v and bool(v[0]) == ends for v in map(known, test.values)) else None
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Lambda):
        return (isinstance(test.ops[0], ast.IsNot),)  # with None, that is
    if all(isinstance(n, harmless) for n in ast.walk(test)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # that a text is never None
            return (eval(compile(ast.Expression(ast.fix_missing_locations(test)), "<test>", "eval")),)
    return None


def write(made: dict[str, list[str]]) -> None:
    text = base64.b85encode(lzma.compress(json.dumps(made).encode(), preset=9)).decode()
    SEALED.write_text("".join(text[i : i + 120] + "\n" for i in range(0, len(text), 120)), encoding="ascii")


def formatted(source: str) -> str:
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", f"--line-length={WIDTH}", "-"]
    return subprocess.run(ruff, input=source, capture_output=True, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the worked solutions of the package from the keys.")
    parser.add_argument("--without", nargs="*", default=[], metavar="SET", help="sets to leave out, as 10.5")
    made = solutions(tuple(parser.parse_args().without))
    for exercise in all_exercises():
        if exercise.id in made and not exercise.rubric:
            made[exercise.id] = [formatted(made[exercise.id][0])]
    write(made)
    print(f"{SEALED.relative_to(ROOT)}: {len(made)} worked solutions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
