"""Launch buttons, downloads and first cells come from one address; without one nothing is broken."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
HOME = "https://github.com/somebody/labs"
ADDRESSES = (HOME, "https://gitlab.com/somebody/labs", "")


@pytest.fixture(scope="session")
def first_cell(notebooks: ModuleType) -> Any:
    return notebooks.first_cell


def project(root: Path, url: str = "") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "_config.yml").write_text(yaml.safe_dump({"repository": {"url": url}}))
    return root


@pytest.mark.parametrize(
    "wrong", ["https://example.org/x/y", "git@github.com:somebody/labs.git", "https://github.com/a"]
)
def test_an_address_that_no_button_could_use_is_refused(first_cell: Any, tmp_path: Path, wrong: str) -> None:
    assert first_cell.address(project(tmp_path, HOME)) == HOME
    assert first_cell.address(project(tmp_path)) == first_cell.address(tmp_path / "nothing") == ""
    with pytest.raises(ValueError, match=r"^repository\.url in _config\.yml must be .*got '"):
        first_cell.address(project(tmp_path, wrong))


def notebook(path: Path, first_cell: Any, address: str | None) -> None:
    """A page with one code cell, after a first cell that knows `address`; None: without that cell."""
    nb = nbformat.v4.new_notebook()
    nb.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nb.cells = [nbformat.v4.new_markdown_cell("# A page"), nbformat.v4.new_code_cell("1 + 1")]
    if address is not None:
        first_cell.put_inplace(nb, address)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)


@pytest.fixture(scope="module")
def books(first_cell: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The book's own settings with three addresses, over a page of prose and a lab."""
    roots = {address: tmp_path_factory.mktemp("book") for address in ADDRESSES}
    for address, root in roots.items():
        text = (ROOT / "_config.yml").read_text()
        config = yaml.safe_load(text)
        assert "repository" not in config, (
            "an address is set: this test would say nothing of a book without one"
        )
        marked = (
            re.search(r"^# repository:\n(?:#.*\n)+", text, re.M)[0].replace("\n# ", "\n").removeprefix("# ")
        )
        offered = yaml.safe_load(marked.replace("https://github.com/owner/name", address)) if address else {}
        copies = config["sphinx"]["config"]["html_copy_source"]
        kept = {"execute": config["execute"], "sphinx": {"config": {"html_copy_source": copies}}, **offered}
        (root / "_config.yml").write_text(yaml.safe_dump(kept))
        (root / "_toc.yml").write_text("format: jb-book\nroot: index\nchapters: [{file: notebooks/lab}]\n")
        (root / "index.md").write_text("# Prose\n")
        notebook(root / "notebooks" / "lab.ipynb", first_cell, address)
        command = [Path(sys.executable).with_name("jupyter-book"), "build", "-q", root]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return {address: root / "_build" / "html" for address, root in roots.items()}


@pytest.fixture(params=ADDRESSES, ids=["GitHub", "GitLab", "none"])
def built(request: Any, books: dict[str, Path]) -> tuple[str, Path]:
    return request.param, books[request.param]


def links(html: Path, page: str) -> set[str]:
    """Where the buttons in the header of a page lead."""
    soup = BeautifulSoup((html / f"{page}.html").read_text(), "html.parser")
    header = soup.find(class_="bd-header-article")
    assert header
    return {str(a["href"]) for a in header.find_all("a", class_="btn")}


def test_buttons_lead_to_the_notebook_in_the_repository_and_none_is_broken(built: tuple[str, Path]) -> None:
    address, html = built
    page = "notebooks/lab.ipynb"
    wanted = {f"../_sources/{page}"}
    if "github" in address:
        wanted.add(f"https://mybinder.org/v2/gh/somebody/labs/main?urlpath=lab/tree/{page}")
        wanted.add(f"https://colab.research.google.com/github/somebody/labs/blob/main/{page}")
    elif address:
        wanted.add(f"https://mybinder.org/v2/gl/somebody%2Flabs/main?urlpath=lab/tree/{page}")
    assert links(html, "notebooks/lab") == wanted
    assert first_address(html / "_sources" / page) == address
    assert not [to for to in links(html, "index") if "binder" in to or "colab" in to]


def first_address(ipynb: Path) -> str:
    nb = nbformat.read(ipynb, as_version=4)
    nbformat.validate(nb)
    return re.search(r'^REPOSITORY = "(.*)"$', "\n".join(c.source for c in nb.cells), re.M)[1]


def test_the_page_leaves_the_first_cell_out(built: tuple[str, Path]) -> None:
    text = (built[1] / "notebooks" / "lab.html").read_text()
    assert "1" in text and "REPOSITORY" not in text


# -- the first cell itself, as a reader's Colab would run it ----------------------------------------------------


def run_first_cell(
    first_cell: Any, tmp_path: Path, address: str, there: bool, pip: int = 0
) -> tuple[str, str]:
    """Run the cell in a fresh Python whose pip only says what it was asked; (printed, raised)."""
    stub = (
        "import importlib.util, subprocess, sys, types\n"
        f"importlib.util.find_spec = lambda name: {'object()' if there else 'None'}\n"
        "def pip(command):\n"
        "    print(*command[1:])\n"
        "    machine = types.SimpleNamespace(offers=lambda: 'a core')\n"
        "    sys.modules['labkit'] = types.SimpleNamespace(machine=machine)\n"
        f"    return types.SimpleNamespace(returncode={pip})\n"
        "subprocess.run = pip\n"
    )
    (tmp_path / "cell.py").write_text(stub + first_cell.source(address))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "cell.py"], cwd=tmp_path, capture_output=True, text=True
    )
    return done.stdout, (done.stderr.strip().splitlines() or [""])[-1]


def test_where_labkit_is_the_first_cell_does_nothing(first_cell: Any, tmp_path: Path) -> None:
    for address in (HOME, ""):
        assert run_first_cell(first_cell, tmp_path, address, there=True) == ("", "")


def test_where_labkit_is_missing_the_first_cell_installs_it_and_says_what_there_is(
    first_cell: Any, tmp_path: Path
) -> None:
    printed, raised = run_first_cell(first_cell, tmp_path, HOME, there=False)
    assert printed.splitlines() == [
        f"-m pip install -q distributed-optimisation-labkit[labs] @ git+{HOME}",
        "labkit is installed; this machine offers a core",
    ]
    assert raised == ""


def test_a_wheel_beside_the_notebook_is_installed_whatever_the_address(
    first_cell: Any, tmp_path: Path
) -> None:
    name = first_cell.own_wheel.NAME
    (tmp_path / name).touch()
    for address in (HOME, ""):
        printed, raised = run_first_cell(first_cell, tmp_path, address, there=False)
        assert printed.splitlines()[0] == f"-m pip install -q ./{name}[labs]" and raised == ""


def test_without_an_address_or_if_pip_fails_the_first_cell_says_so_in_one_sentence(
    first_cell: Any, tmp_path: Path
) -> None:
    printed, raised = run_first_cell(first_cell, tmp_path, "", there=False)
    assert printed == "" and "Download distributed_optimisation_labkit-" in raised
    printed, raised = run_first_cell(first_cell, tmp_path, HOME, there=False, pip=1)
    assert (
        "pip could not install distributed-optimisation-labkit[labs] @ git+" + HOME in raised
        and "offers" not in printed
    )


def test_the_extra_that_the_first_cell_asks_for_has_all_that_notebooks_import_and_no_jupyter_of_its_own() -> (
    None
):
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labs = " ".join(project["optional-dependencies"]["labs"])
    assert "jupyterlab" not in labs and "ipykernel" not in labs
    assert "distributed-optimisation-labkit[labs]" in project["optional-dependencies"]["notebooks"]


def test_what_a_machine_offers_is_one_phrase(monkeypatch: pytest.MonkeyPatch) -> None:
    from labkit import machine

    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 13e9)
    for gpus, said in [
        ([], "no GPU, which no lab needs"),
        (["Tesla T4"], "1 GPU (Tesla T4)"),
        (["A", "A"], "2 GPUs (A)"),
    ]:
        monkeypatch.setattr(machine, "gpus", lambda gpus=gpus: gpus)
        assert machine.offers() == f"2 cores, 13 GB of memory and {said}"
    monkeypatch.setattr(machine, "memory_bytes", lambda: None)
    assert machine.offers() == "2 cores and 2 GPUs (A)"


# -- the notebooks' tool gives it to every notebook ------------------------------------------------------------


def test_a_new_address_reaches_a_notebook_without_running_it(
    notebooks: ModuleType, first_cell: Any, tmp_path: Path
) -> None:
    root = project(tmp_path)
    md, ipynb = root / "page.md", root / "page.ipynb"
    md.write_text("# A page\n\n```{code-cell} ipython3\n1 + 1\n```\n")
    notebooks.make(md, root)
    project(root, url=HOME)
    assert not notebooks.stale(md, root)
    assert notebooks.refresh(md, root) and not notebooks.refresh(md, root)
    assert first_cell.address_in(nbformat.read(ipynb, as_version=4)) == HOME
    project(root)  # the address is forgotten; the notebook keeps what it knew
    assert not notebooks.refresh(md, root)


def test_every_text_gets_the_cell_before_its_first_code_and_a_page_without_code_does_not(
    notebooks: ModuleType, first_cell: Any, tmp_path: Path
) -> None:
    md = tmp_path / "page.md"
    md.write_text("# A page\n\nWords.\n\n```{code-cell} ipython3\n1 + 1\n```\n")
    cells = notebooks.read_source(md, HOME).cells
    assert [c.cell_type for c in cells] == ["markdown", "code", "code"]
    assert first_cell.address_in(notebooks.read_source(md, HOME)) == HOME
    md.write_text("# A page\n\nWords.\n")
    assert [c.cell_type for c in notebooks.read_source(md, HOME).cells] == ["markdown"]


def test_a_notebook_gets_today_s_first_cell_without_running_it(
    notebooks: ModuleType, first_cell: Any, tmp_path: Path
) -> None:
    md = tmp_path / "page.md"
    md.write_text("# A page\n\n```{code-cell} ipython3\n1 + 1\n```\n")
    notebook(md.with_suffix(".ipynb"), first_cell, None)
    assert notebooks.recoded(md)
    notebook(md.with_suffix(".ipynb"), first_cell, HOME)
    nb = nbformat.read(md.with_suffix(".ipynb"), as_version=4)
    nb.cells[1].source = nb.cells[1].source.replace("-0.1.0-", "-0.0.9-")
    nbformat.write(nb, md.with_suffix(".ipynb"))
    assert not notebooks.recoded(md)
