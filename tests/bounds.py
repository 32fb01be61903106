"""Constraints for pip: the oldest version that pyproject.toml allows of whatever the labs need, or none.

    python tests/bounds.py lowest > bounds.txt
    python tests/bounds.py newest > bounds.txt

The weekly workflow installs with the one and with the other. Needs nothing but Python.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def requirements(extra: str | None = None) -> list[str]:
    """What labkit needs, with `extra` and what that refers to."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = list(project["dependencies"]) if extra is None else []
    for line in project["optional-dependencies"][extra] if extra else ():
        own = re.fullmatch(r"labkit\[(.+)\]", line)
        found += [r for name in own[1].split(",") for r in requirements(name.strip())] if own else [line]
    return found


def constraints(versions: str) -> list[str]:
    """Lines of a constraints file. ValueError unless `versions` is lowest or newest."""
    if versions not in ("lowest", "newest"):
        raise ValueError(f"versions must be lowest or newest, got {versions!r}")
    if versions == "newest":
        return []
    wanted = [*requirements(), *requirements("labs")]
    return sorted({re.sub(r">=([\w.]+).*", r"==\1", line) for line in wanted if ">=" in line})


if __name__ == "__main__":
    print("\n".join(constraints(*sys.argv[1:2])))
