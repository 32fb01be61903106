"""A notebook alone in an empty folder runs from its first cell on, with labkit from the wheel and none of the checkout."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contents
import first_cell
import nbformat
import pytest

ROOT = contents.ROOT
NOTEBOOKS = {p.stem: p.with_suffix(".ipynb") for p in contents.sources()}
FROM_THE_WHEEL = """
import labkit, labkit_book, sys
assert all(m.__file__.startswith(sys.prefix) for m in (labkit, labkit_book)), (labkit.__file__, sys.prefix)
"""


@pytest.fixture(scope="session")
def installed(without_labkit: Any, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An environment in which a first cell has said which file to fetch, and has installed labkit when it lay beside it."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "cell.py").write_text(first_cell.source(""), encoding="utf-8")
    environment = without_labkit(folder / "environment")
    asked = environment.run("cell.py", cwd=folder).stderr.splitlines()[-1]
    assert f"Download {first_cell.WHEEL} from the book" in asked
    shutil.copy(wheel, folder / first_cell.WHEEL)
    done = environment.run("cell.py", cwd=folder)
    assert "labkit is installed; this machine offers" in done.stdout, done.stderr
    assert environment.run("cell.py", cwd=folder).stdout == ""
    yield environment
    shutil.rmtree(folder)


@pytest.mark.processes
@pytest.mark.timeout(900)
@pytest.mark.weekly
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_alone_in_an_empty_folder_runs_from_top_to_bottom(
    name: str, installed: Any, tmp_path: Path
) -> None:
    nb = nbformat.read(NOTEBOOKS[name], as_version=4)
    nb.cells.append(nbformat.v4.new_code_cell(FROM_THE_WHEEL))
    nbformat.write(nb, tmp_path / f"{name}.ipynb")
    done = installed.run(ROOT / "tests" / "bounds.py", "lab", tmp_path / f"{name}.ipynb", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
