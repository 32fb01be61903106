"""What one or two labs need: stored sweeps, others' measurements and traces, and the modules that go with them."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def data_file(name: str) -> Path:
    """The file that came with the package, as in ``data_file("sweeps/10_7_steps.json")``. ValueError if there is none."""
    path = HERE / name
    if not path.is_file():
        names = (p.relative_to(HERE).as_posix() for p in HERE.rglob("*.*") if p.suffix != ".pyc")
        raise ValueError(f"name must be one of {', '.join(sorted(names))}, got {name!r}")
    return path
