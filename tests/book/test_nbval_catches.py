"""The notebooks' stage of `make test` catches a stored number that does not come out again."""

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import stages

import notebooks

ROOT = Path(__file__).resolve().parents[2]
TEXT = """\
# Sums

```{code-cell} ipython3
6 * 7
```

```{code-cell} ipython3
:tags: [hide-output]

print(f"{sum(range(10)) / 8:.6f}")
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
def nbval(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """What went wrong in each cell ("": nothing) of a notebook of this name, as `make test` runs it, in this kernel."""
    folder = tmp_path_factory.mktemp("notebooks")
    md, executed, report = (folder / name for name in ("sums.md", "sums.ipynb", "report.xml"))
    md.write_text(TEXT)
    notebooks.make(md, folder)
    nbformat.write(notebooks.portable.read(executed), executed)  # as the stage compares it
    for name, (old, new) in ALTERED.items():
        text = executed.read_text(encoding="utf-8")
        assert text.count(old) == 1
        (folder / f"{name}.ipynb").write_text(text.replace(old, new), encoding="utf-8")
    executed.unlink()  # nobody asks about it
    command = [*stages.NBVAL, "--nbval-current-env", f"--junitxml={report}", *folder.glob("*.ipynb")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stdout + done.stderr

    def said(name: str) -> list[str]:
        of = (c for c in ET.parse(report).iter() if c.get("classname", "").endswith(f"{name}.ipynb"))
        return ["".join(str(child.text) for child in cell) for cell in of]

    return said


ALTERED = {"covered": ("5.625000", "5.625001"), "result": ('"42"', '"43"')}


@pytest.mark.parametrize("what", ALTERED)
def test_one_altered_number_fails_but_not_times_images_and_ids_of_widgets(
    nbval: Callable[[str], list[str]], what: str
) -> None:
    failed = [said for said in nbval(what) if said]
    assert len(failed) == 1 and "Cell outputs differ" in failed[0]
