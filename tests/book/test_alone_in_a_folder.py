"""A notebook alone in an empty folder runs from its first cell on, with labkit from the wheel and none of the checkout."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contents
import first_cell
import nbformat
import pytest

ROOT = contents.ROOT
NOTEBOOKS = {p.stem: p for p in sorted((ROOT / "notebooks").rglob("*.ipynb")) if "checkpoint" not in p.name}
#: Those that read what labkit brings with it, as far as two cores run them in three minutes, and two quick ones.
DAILY = {
    "10_1_empirical_risk",
    "10_1_exercises",
    "10_3_synchronous_sgd",
    "10_5_network",
    "10_7_fewer_bytes",
    "10_8_large_batches",
    "b_failures",
    "project_twice_as_fast",
}
FROM_THE_WHEEL = """
import labkit, labkit_book, sys
assert all(m.__file__.startswith(sys.prefix) for m in (labkit, labkit_book)), (labkit.__file__, sys.prefix)
"""


@pytest.fixture(scope="session")
def installed(without_labkit: Any, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An environment in which a first cell has installed labkit from the wheel beside it."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copy(wheel, folder)
    (folder / "cell.py").write_text(first_cell.source(""), encoding="utf-8")
    environment = without_labkit(folder / "environment")
    done = environment.run("cell.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "labkit is installed; this machine offers" in done.stdout
    yield environment
    shutil.rmtree(folder)


def marked(name: str) -> Any:
    return pytest.param(name, marks=() if name in DAILY else pytest.mark.weekly)


@pytest.mark.processes
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [marked(name) for name in NOTEBOOKS])
def test_a_notebook_alone_in_an_empty_folder_runs_from_top_to_bottom(
    name: str, installed: Any, tmp_path: Path
) -> None:
    nb = nbformat.read(NOTEBOOKS[name], as_version=4)
    nb.cells.append(nbformat.v4.new_code_cell(FROM_THE_WHEEL))
    nbformat.write(nb, tmp_path / f"{name}.ipynb")
    done = installed.run(ROOT / "tests" / "bounds.py", "lab", tmp_path / f"{name}.ipynb", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
