"""Run those cells of the labs that start processes or ask for a device: python tests/gpu/cells.py DEVICE [LAB ...]

DEVICE: cpu, cuda, or pretend, which gives them eight pretended GPUs with a pretended nccl. The cells are run as they stand,
after those that make what they take. Says of each lab on standard error, as JSON, its seconds and what went wrong, "" if its
own assertions held.
"""

import ast
import json
import os
import subprocess
import symtable
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "book" / "tools"), str(Path(__file__).parent)]

import myst  # noqa: E402
import pretended  # noqa: E402

DEVICES = 8  # pretended, so that every worker of every lab has one of its own


def names(code: str) -> tuple[set[str], set[str]]:
    """The names that a cell's code makes, and those that it takes from cells before it."""
    made, taken = set(), set()
    tables = [symtable.symtable(code, "cell", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        outermost = table.get_type() == "module"
        made |= {
            s.get_name() for s in table.get_symbols() if outermost and (s.is_assigned() or s.is_imported())
        }
        taken |= {s.get_name() for s in table.get_symbols() if outermost or s.is_global()}
    return made, taken - made


def touching(cells: list[str]) -> set[int]:
    """Which cells start processes or ask for a device, themselves or by a world or a function that such a cell has made."""
    found, made = set(), {"Processes"}
    for i, code in enumerate(cells):
        for statement in ast.parse(code).body:
            if isinstance(statement, ast.Import | ast.ImportFrom) or not _touches(statement, made):
                continue
            found.add(i)
            used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            if isinstance(statement, ast.FunctionDef) or ("Processes" in used and "launch" not in used):
                made |= names(ast.unparse(statement))[0]
    return found


def _touches(statement: ast.stmt, made: set[str]) -> bool:
    return any(
        (isinstance(node, ast.Name) and node.id in made)
        or (isinstance(node, ast.Constant) and node.value == "processes")
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "machine.device")
        for node in ast.walk(statement)
    )


def needed(cells: list[str], chosen: set[int]) -> list[str]:
    """The chosen cells, and before them those that make what they take, in order."""
    known, pending = [names(code) for code in cells], sorted(chosen)
    while pending:
        i = pending.pop()
        for name in known[i][1]:
            makers = [j for j, (made, _) in enumerate(known) if j != i and name in made]
            # the last one before it; for what a function calls, the first one after it
            maker = max((j for j in makers if j < i), default=min(makers, default=i))
            if maker not in chosen:
                chosen.add(maker)
                pending.append(maker)
    return [cells[i] for i in sorted(chosen)]


def labs() -> list[str]:
    return sorted(path.stem for path in (ROOT / "notebooks").glob("*.md"))


def run(lab: str) -> None:
    """Run the lab's cells here; whatever they raise is raised."""
    cells = list(myst.codes((ROOT / "notebooks" / f"{lab}.md").read_text(encoding="utf-8")))
    space: dict[str, Any] = {"__name__": "__main__"}
    for code in needed(cells, touching(cells)):
        exec(compile(code, lab, "exec"), space)


def main(device: str, asked: list[str]) -> None:
    if device == "pretend" and pretended.DEVICES not in os.environ:
        with pretended.there(DEVICES) as env:
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=env).returncode)
    import matplotlib

    from labkit import machine

    matplotlib.use("agg")
    if not machine.device().startswith(device):
        sys.exit(f"DEVICE is {device}, but labs compute on {machine.device()} here")
    os.chdir(ROOT / "notebooks")
    for lab in asked or labs():
        began, wrong = time.perf_counter(), ""
        try:
            run(lab)
        except Exception:
            wrong = traceback.format_exc()
        done = {"lab": lab, "seconds": round(time.perf_counter() - began, 1), "wrong": wrong}
        print(json.dumps(done), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
