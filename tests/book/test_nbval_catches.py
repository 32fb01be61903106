"""The notebooks' stage of `make test` catches a stored number that does not come out again."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = """\
# Sums

```{code-cell} ipython3
print(f"{sum(range(10)) / 7:.6f}")
```

```{code-cell} ipython3
6 * 7
```

```{code-cell} ipython3
:tags: [nbval-ignore-output]

import time

print(time.perf_counter())
```

```{code-cell} ipython3
import ipywidgets

ipywidgets.IntSlider()
```

```{code-cell} ipython3
import matplotlib.pyplot as plt
import numpy as np

plt.plot(np.random.default_rng().random(3))
plt.show()
```
"""


@pytest.fixture(scope="module")
def executed(notebooks: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebooks")
    md = folder / "sums.md"
    md.write_text(TEXT)
    notebooks.make(md, folder)
    return md.with_suffix(".ipynb")


def nbval(ipynb: Path) -> tuple[int, str]:
    """Exit status and output of exactly the command `make test` runs, on one notebook."""
    spec = importlib.util.spec_from_file_location("stages", ROOT / "tests" / "stages.py")
    assert spec and spec.loader
    stages: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stages)
    done = subprocess.run([*stages.NBVAL, str(ipynb)], cwd=ROOT, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout + done.stderr


def altered(ipynb: Path, folder: Path, old: str, new: str) -> Path:
    text = ipynb.read_text(encoding="utf-8")
    assert text.count(old) == 1
    copy = folder / ipynb.name
    copy.write_text(text.replace(old, new), encoding="utf-8")
    return copy


def test_an_untouched_notebook_passes_though_times_images_and_widget_ids_differ(executed: Path) -> None:
    status, output = nbval(executed)
    assert status == 0, output
    assert "6 passed" in output  # with the first cell, which installs nothing here


@pytest.mark.parametrize("old, new", [("6.428571", "6.428572"), ('"42"', '"43"')], ids=["printed", "result"])
def test_one_altered_number_fails(executed: Path, tmp_path: Path, old: str, new: str) -> None:
    status, output = nbval(altered(executed, tmp_path, old, new))
    assert status == 1
    assert "Cell outputs differ" in output and "1 failed" in output


def test_a_stripped_notebook_which_nbval_cannot_see_is_refused_by_the_pair_check(
    notebooks: ModuleType, executed: Path, tmp_path: Path
) -> None:
    nb = nbformat.read(executed, as_version=4)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    stripped = tmp_path / executed.name
    nbformat.write(nb, stripped)
    stripped.with_suffix(".md").write_text(TEXT)
    assert nbval(stripped)[0] == 0  # the trap this project's pair check is for
    assert any("no execution count" in problem for problem in notebooks.problems(stripped.with_suffix(".md")))
