"""The notebook tool: what is stale is seen, what is in step is left alone, and nothing is lost on the way."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

import notebooks

TEXT = """\
---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A tiny notebook

```{code-cell} ipython3
:tags: [hide-input]

from labkit import machine

x = 40
```

Some words.

```{code-cell} ipython3
print(x + 2)
```
"""


@pytest.fixture(scope="session")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one executed notebook. Tests take copies: an execution takes seconds."""
    root = tmp_path_factory.mktemp("project")
    (root / "labkit").mkdir()
    (root / "labkit" / "machine.py").write_text("one = 1\n")
    (root / "notebooks" / "exercises").mkdir(parents=True)
    (root / "notebooks" / "tiny.md").write_text(TEXT)
    notebooks.make(root / "notebooks" / "tiny.md", root)
    return root


@pytest.fixture
def md(executed: Path, tmp_path: Path) -> Path:
    shutil.copytree(executed, tmp_path, dirs_exist_ok=True)
    return tmp_path / "notebooks" / "tiny.md"


def test_an_executed_notebook_is_in_step_and_stores_what_it_printed(md: Path) -> None:
    assert notebooks.stale(md, md.parents[1]) == ""
    assert notebooks.problems(md) == []
    nb = nbformat.read(md.with_suffix(".ipynb"), as_version=4)
    assert [c.execution_count for c in nb.cells if c.cell_type == "code"] == [1, 2, 3]
    assert nb.cells[-1].outputs[0].text == "42\n"
    assert nb.cells[2].metadata == {"tags": ["hide-input"], "jupyter": {"source_hidden": True}}


def test_an_edited_text_is_stale_and_out_of_step(md: Path) -> None:
    md.write_text(TEXT.replace("x = 40", "x = 41"))
    assert "code has changed" in notebooks.stale(md, md.parents[1])
    found = " ".join(notebooks.problems(md))
    assert "has changed since" in found and "other than those of tiny.md" in found


def test_new_prose_is_out_of_step_and_needs_no_execution(md: Path) -> None:
    md.write_text(TEXT.replace("Some words.", "Other words."))
    assert notebooks.stale(md, md.parents[1]) == "" and "has changed since" in notebooks.problems(md)[0]
    before = nbformat.read(md.with_suffix(".ipynb"), as_version=4)
    assert notebooks.refresh(md, md.parents[1]) and not notebooks.refresh(md, md.parents[1])
    assert notebooks.problems(md) == []
    after = nbformat.read(md.with_suffix(".ipynb"), as_version=4)
    assert "Other words." in [c.source for c in after.cells]
    assert [c.get("outputs") for c in after.cells] == [c.get("outputs") for c in before.cells]


def test_changed_labkit_code_makes_a_notebook_stale_but_not_out_of_step(md: Path) -> None:
    (md.parents[1] / "labkit" / "machine.py").write_text("one = 2\n")
    assert "labkit has changed" in notebooks.stale(md, md.parents[1])
    assert notebooks.problems(md) == []


def test_only_code_behind_a_notebook_s_imports_makes_it_stale(tmp_path: Path) -> None:
    tree = {
        "labkit/__init__.py": "from labkit.comm.run import launch, Run\nimport importlib\n",
        "labkit/other.py": "", "labkit/comm/__init__.py": "from labkit.comm.base import Comm\n",
        "labkit/comm/run.py": "def f():\n    from labkit.comm import Comm\n",
        "labkit/comm/base.py": "", "labkit/comm/far.py": "",
        "labkit/show/__init__.py": "def figure(name): importlib.import_module(f\"labkit.show.{name}\")\n",
        "labkit/show/ring.py": "", "labkit/show/ring.js": "",
        "labkit_book/__init__.py": "", "labkit_book/labs/__init__.py": "def data_file(name): return name\n",
        "labkit_book/labs/jobs.py": "from labkit import other\n", "labkit_book/labs/sweeps/race.json": "",
    }  # fmt: skip
    for name, text in tree.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    behind = {
        "from labkit import launch": {"labkit/comm/run.py", "labkit/comm/base.py"},
        "from labkit.show import figure": {name for name in tree if "show" in name},
        "from labkit import other": {"labkit/other.py"},
        "import labkit": {name for name in tree if name.startswith("labkit/")},
        "from labkit_book.labs import data_file": {"labkit_book/labs/__init__.py", "labkit_book/labs/sweeps/race.json"},
        "from labkit_book.labs.jobs import job": {
            "labkit/other.py", "labkit_book/labs/jobs.py", "labkit_book/labs/sweeps/race.json",
        },
        "import numpy": set(),
    }  # fmt: skip
    for line, wanted in behind.items():
        (md := tmp_path / "a.md").write_text(f"```{{code-cell}} ipython3\n:tags: [x]\n\n{line}\n```\n")
        before = notebooks.code_digest(md, tmp_path)
        for name, text in tree.items():
            (tmp_path / name).write_text(text + "# changed\n")
            assert (notebooks.code_digest(md, tmp_path) != before) == (name in wanted), (line, name)
            (tmp_path / name).write_text(text)


def strip(nb: Any) -> None:
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


@pytest.mark.parametrize("change, sentence", [
    (strip, "was stripped"),
    (lambda nb: nb.cells[-1].outputs[0].update(text="43\n"), "outputs other than those its run stored"),
    (lambda nb: nb.cells[2].update(execution_count=7), "outputs other than those its run stored"),
    (lambda nb: nb.cells[2].update(source="x = 41"), "other than those of tiny.md"),
    (lambda nb: nb.cells[2].metadata.update(tags=[]), "other than those of tiny.md"),
    (lambda nb: nb.metadata.pop("labkit"), "records no hashes"),
], ids=["stripped", "output", "counts", "source", "tags", "hashes"])  # fmt: skip
def test_what_was_done_by_hand_is_refused(md: Path, change: Callable[[Any], Any], sentence: str) -> None:
    ipynb = md.with_suffix(".ipynb")
    nb = nbformat.read(ipynb, as_version=4)
    change(nb)
    nbformat.write(nb, ipynb)
    assert any(sentence in problem for problem in notebooks.problems(md))


@pytest.mark.parametrize("cell, message", [
    ("1 / 0", "ZeroDivisionError"),
    ("x = 40;", "ends in a semicolon"),
    ("x = 40; import os; print(os.getcwd())", "the path of this working tree"),
])  # fmt: skip
def test_a_run_that_fails_leaves_the_previous_notebook_untouched(
    md: Path, cell: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = md.with_suffix(".ipynb").read_bytes()
    md.write_text(TEXT.replace("x = 40", cell))
    assert notebooks.run([md], everything=False, root=md.parents[1], busy=True) == 1
    assert message in capsys.readouterr().err
    assert md.with_suffix(".ipynb").read_bytes() == before
    assert sorted(p.name for p in md.parent.iterdir() if p.is_file()) == ["tiny.ipynb", "tiny.md"]
