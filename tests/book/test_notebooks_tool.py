"""The notebook tool: what is stale is seen, what is in step is left alone, and nothing is lost on the way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

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
def executed(notebooks: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    for path in executed.rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(executed)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return tmp_path / "notebooks" / "tiny.md"


def edit(md: Path, change: Callable[[Any], Any]) -> None:
    """Change the executed notebook beside `md` by hand."""
    ipynb = md.with_suffix(".ipynb")
    nb = nbformat.read(ipynb, as_version=4)
    change(nb)
    nbformat.write(nb, ipynb)


def test_an_executed_notebook_is_in_step_and_stores_what_it_printed(notebooks: ModuleType, md: Path) -> None:
    assert notebooks.stale(md, md.parents[1]) == ""
    assert notebooks.problems(md) == []
    nb = nbformat.read(md.with_suffix(".ipynb"), as_version=4)
    assert [c.execution_count for c in nb.cells if c.cell_type == "code"] == [1, 2, 3]
    assert nb.cells[-1].outputs[0].text == "42\n"
    assert nb.cells[2].metadata == {"tags": ["hide-input"], "jupyter": {"source_hidden": True}}


def test_file_times_play_no_part(notebooks: ModuleType, md: Path) -> None:
    os.utime(md, (2e9, 2e9))
    os.utime(md.with_suffix(".ipynb"), (1, 1))
    assert notebooks.stale(md, md.parents[1]) == ""
    assert notebooks.problems(md) == []


def test_a_notebook_made_twice_differs_in_nothing(notebooks: ModuleType, md: Path) -> None:
    before = md.with_suffix(".ipynb").read_bytes()
    notebooks.make(md, md.parents[1])
    assert md.with_suffix(".ipynb").read_bytes() == before
    stored = json.loads(before)
    assert "version" not in stored["metadata"]["language_info"]
    assert set(stored["metadata"]) == {"kernelspec", "labkit", "language_info"}
    assert not any("execution" in c["metadata"] for c in stored["cells"])


def test_an_edited_text_is_stale_and_out_of_step(notebooks: ModuleType, md: Path) -> None:
    md.write_text(TEXT.replace("x = 40", "x = 41"))
    assert "code has changed" in notebooks.stale(md, md.parents[1])
    found = " ".join(notebooks.problems(md))
    assert "has changed since" in found and "other than those of tiny.md" in found


def test_new_prose_is_out_of_step_and_needs_no_execution(notebooks: ModuleType, md: Path) -> None:
    md.write_text(TEXT.replace("Some words.", "Other words."))
    assert notebooks.stale(md, md.parents[1]) == "" and "has changed since" in notebooks.problems(md)[0]
    before = nbformat.read(md.with_suffix(".ipynb"), as_version=4)
    assert notebooks.refresh(md, md.parents[1]) and not notebooks.refresh(md, md.parents[1])
    assert notebooks.problems(md) == []
    after = nbformat.read(md.with_suffix(".ipynb"), as_version=4)
    assert "Other words." in [c.source for c in after.cells]
    assert [c.get("outputs") for c in after.cells] == [c.get("outputs") for c in before.cells]


def test_new_prose_does_not_hide_an_output_altered_by_hand(notebooks: ModuleType, md: Path) -> None:
    edit(md, lambda nb: nb.cells[-1].outputs[0].update(text="43\n"))
    md.write_text(TEXT.replace("Some words.", "Other words."))
    notebooks.refresh(md, md.parents[1])
    assert "outputs other than those" in " ".join(notebooks.problems(md))


def test_changed_labkit_code_makes_a_notebook_stale_but_not_out_of_step(
    notebooks: ModuleType, md: Path
) -> None:
    (md.parents[1] / "labkit" / "machine.py").write_text("one = 2\n")
    assert "labkit has changed" in notebooks.stale(md, md.parents[1])
    assert notebooks.problems(md) == []


def test_only_code_behind_a_notebook_s_imports_makes_it_stale(notebooks: ModuleType, tmp_path: Path) -> None:
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


def test_cells_keep_their_ids_when_others_come_and_go(notebooks: ModuleType, md: Path) -> None:
    old = {c.source: c.id for c in nbformat.read(md.with_suffix(".ipynb"), as_version=4).cells}
    md.write_text(TEXT.replace("Some words.", "```{code-cell} ipython3\ny = 1\n```\n\nSome words."))
    new = {c.source: c.id for c in notebooks.convert(md).cells}
    assert {source: new[source] for source in old} == old
    assert len(set(new.values())) == len(old) + 1


def test_a_covered_output_is_out_of_sight_and_still_known_by_its_hash(
    notebooks: ModuleType, md: Path
) -> None:
    ipynb = md.with_suffix(".ipynb")
    edit(md, lambda nb: nb.cells[-1].metadata.update(tags=["hide-output"]))
    md.write_text(TEXT.replace("ipython3\nprint", "ipython3\n:tags: [hide-output]\n\nprint"))
    assert any("shows an answer" in problem for problem in notebooks.problems(md))
    assert notebooks.refresh(md, md.parents[1]) and not notebooks.refresh(md, md.parents[1])
    assert notebooks.problems(md) == [] and nbformat.read(ipynb, as_version=4).cells[-1].outputs == []
    assert notebooks.stored(ipynb).cells[-1].outputs[0].text == "42\n"
    other = notebooks.stored(ipynb)
    other.cells[-1].outputs[0].text = "43\n"
    ipynb.write_text(notebooks.written(other))
    assert "outputs other than those" in " ".join(notebooks.problems(md))


def strip(nb: Any) -> None:
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def set_in(cell: int, **values: Any) -> Callable[[Any], None]:
    return lambda nb: nb.cells[cell].update(values)


@pytest.mark.parametrize(
    "change, sentence",
    [
        (strip, "no execution count in code cell 1"),
        (lambda nb: nb.cells[-1].outputs[0].update(text="43\n"), "outputs other than those its run stored"),
        (set_in(2, execution_count=7), "not executed from top to bottom"),
        (set_in(2, source="x = 41"), "other than those of tiny.md"),
        (lambda nb: nb.cells[2].metadata.update(tags=[]), "other than those of tiny.md"),
        (lambda nb: nb.metadata.pop("labkit"), "records no hashes"),
    ],
    ids=["stripped", "output altered", "counts altered", "source altered", "tags altered", "hashes gone"],
)
def test_what_was_done_by_hand_is_refused_in_one_sentence(
    notebooks: ModuleType, md: Path, change: Callable[[Any], Any], sentence: str
) -> None:
    edit(md, change)
    found = notebooks.problems(md)
    assert any(sentence in problem for problem in found)
    assert all(problem.endswith(".") and "\n" not in problem for problem in found)


def test_a_text_without_a_notebook_and_a_notebook_without_a_text_are_refused(
    notebooks: ModuleType, md: Path
) -> None:
    ipynb = md.with_suffix(".ipynb")
    kept = ipynb.read_bytes()
    ipynb.unlink()
    assert "has no tiny.ipynb" in notebooks.problems(md)[0]
    ipynb.write_bytes(kept)
    md.unlink()
    assert "has no text source" in notebooks.problems(md)[0]


def test_check_prints_the_problems_and_returns_1(
    notebooks: ModuleType, md: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert notebooks.main(["check", str(md)]) == 0
    edit(md, strip)
    assert notebooks.main(["check", str(md.with_suffix(".ipynb"))]) == 1
    assert "no execution count" in capsys.readouterr().out


@pytest.mark.parametrize(
    "cell, message",
    [
        ("1 / 0", "ZeroDivisionError"),
        ("x = 40;", "ends in a semicolon"),
        ("x = 40; import os; print(os.getcwd())", "the path of this working tree"),
    ],
)
def test_a_run_that_fails_leaves_the_previous_notebook_untouched(
    notebooks: ModuleType, md: Path, cell: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = md.with_suffix(".ipynb").read_bytes()
    md.write_text(TEXT.replace("x = 40", cell))
    assert notebooks.run([md], everything=False, root=md.parents[1]) == 1
    assert message in capsys.readouterr().err
    assert md.with_suffix(".ipynb").read_bytes() == before
    assert sorted(p.name for p in md.parent.iterdir() if p.is_file()) == ["tiny.ipynb", "tiny.md"]


def test_an_interrupted_write_leaves_the_previous_notebook_untouched(
    notebooks: ModuleType, md: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ipynb = md.with_suffix(".ipynb")
    before = ipynb.read_bytes()

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        notebooks.write_atomically("{}", ipynb)
    assert ipynb.read_bytes() == before
    assert sorted(p.name for p in md.parent.iterdir() if p.is_file()) == ["tiny.ipynb", "tiny.md"]


def test_how_long_a_run_took_is_noted_where_there_is_a_book(notebooks: ModuleType, tmp_path: Path) -> None:
    notebooks.record_time("tiny", 1.26, tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "book").mkdir()
    for name, seconds in (("tiny", 9.0), ("big", 2.0), ("tiny", 1.26)):
        notebooks.record_time(name, seconds, tmp_path)
    noted = json.loads((tmp_path / "book" / "run_times.json").read_text())
    assert {name: row["seconds"] for name, row in noted.items()} == {"big": 2.0, "tiny": 1.3}
    assert all("core" in row["where"] for row in noted.values())
