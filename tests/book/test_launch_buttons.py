"""Launch buttons, downloads and first cells come from one address; without one nothing is broken."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "book" / "tools"
HOME = "https://github.com/somebody/labs"
CONF = """\
extensions = ["myst_nb", "sphinx_book_theme", "launch_buttons"]
html_theme, nb_execution_mode, html_theme_options = "sphinx_book_theme", "off", {"use_download_button": False}
"""
BUILD = """\
import sys
from sphinx.cmd.build import build_main
sys.path.insert(0, sys.argv[1])
sys.exit(any([build_main(["-q", "-b", "html", root, root + "/html"]) for root in sys.argv[2:]]))
"""
ADDRESSES = (HOME, "https://gitlab.com/somebody/labs", "")


@pytest.fixture(scope="session")
def tools(notebooks: ModuleType) -> types.SimpleNamespace:
    """The modules of book/tools that know the address."""
    return types.SimpleNamespace(repository=notebooks.repository, first_cell=notebooks.first_cell)


@pytest.mark.parametrize(
    "remote",
    [
        HOME,
        HOME + ".git",
        HOME + "/",
        "git@github.com:somebody/labs.git",
        "ssh://git@github.com:22/somebody/labs.git",
        "https://secret-token@github.com/somebody/labs.git\n",
        "https://www.GitHub.com/somebody/labs",
    ],
)
def test_every_spelling_of_a_public_remote_is_one_address_without_credentials(
    tools: Any, remote: str
) -> None:
    assert tools.repository.public(remote) == HOME


@pytest.mark.parametrize(
    "remote",
    ["", "/srv/git/labs", "file:///labs.git", "git@example.org:somebody/labs.git", "https://github.com/somebody",
     "https://github.com.evil.org/a/b", "https://example.org/github.com/a/b", "not an address"],
)  # fmt: skip
def test_what_is_at_no_public_forge_is_no_address(tools: Any, remote: str) -> None:
    assert tools.repository.public(remote) == ""


def project(root: Path, url: str = "", origin: str = "") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "_config.yml").write_text(yaml.safe_dump({"repository": {"url": url, "branch": "trunk"}}))
    if origin:
        for command in (["init", "-q"], ["remote", "add", "origin", origin]):
            subprocess.run(["git", "-C", root, *command], check=True)
    return root


def test_the_setting_outranks_the_remote_and_either_may_be_missing(tools: Any, tmp_path: Path) -> None:
    address = tools.repository.address
    assert address(project(tmp_path / "neither")) == ""
    assert address(tmp_path / "nothing at all") == ""
    assert address(project(tmp_path / "remote", origin="git@gitlab.com:group/part/labs.git")) == (
        "https://gitlab.com/group/part/labs"
    )
    assert address(project(tmp_path / "both", url=HOME, origin="https://github.com/fork/labs")) == HOME
    assert tools.repository.branch(tmp_path / "both") == "trunk"
    with pytest.raises(
        ValueError, match=r"^repository\.url in _config\.yml must be .*got 'https://example.org/x/y'$"
    ):
        address(project(tmp_path / "wrong", url="https://example.org/x/y"))


def test_a_folder_inside_somebody_else_s_repository_has_no_address(tools: Any, tmp_path: Path) -> None:
    project(tmp_path, origin=HOME)
    assert tools.repository.address(project(tmp_path / "inside")) == ""


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
def books(tools: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each address the pages built with it: prose, a lab and a problem set that know it, a lab that doesn't."""
    roots = {address: project(tmp_path_factory.mktemp("book"), url=address) for address in ADDRESSES}
    for address, root in roots.items():
        (root / "conf.py").write_text(CONF)
        (root / "index.md").write_text(
            "# Prose\n\n```{toctree}\n:glob:\nnotebooks/*\nnotebooks/exercises/*\n```\n"
        )
        for name in ("lab", "exercises/set"):
            notebook(root / "notebooks" / f"{name}.ipynb", tools.first_cell, address)
        notebook(root / "notebooks" / "old.ipynb", tools.first_cell, "")
    command = [sys.executable, "-c", BUILD, str(TOOLS), *map(str, roots.values())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {address: root / "html" for address, root in roots.items()}


@pytest.fixture(params=ADDRESSES, ids=["GitHub", "GitLab", "none"])
def built(request: Any, books: dict[str, Path]) -> tuple[str, Path]:
    return request.param, books[request.param]


def buttons(html: Path, page: str) -> dict[str, str]:
    """What the buttons in the header of a page are called, and where they lead."""
    header = BeautifulSoup((html / f"{page}.html").read_text(), "html.parser").find(
        class_="bd-header-article"
    )
    assert header
    return {str(a.get("title")): str(a["href"]) for a in header.find_all("a", class_="btn")}


def test_buttons_lead_to_the_notebook_in_the_repository_and_none_is_broken(built: tuple[str, Path]) -> None:
    address, html = built
    for page in ("notebooks/lab", "notebooks/exercises/set", "notebooks/old"):
        name = Path(page).name
        wanted = {"Download this notebook": f"{name}.ipynb"}
        if "github" in address:
            wanted["Launch on Binder"] = (
                f"https://mybinder.org/v2/gh/somebody/labs/trunk?urlpath=lab/tree/{page}.ipynb"
            )
        elif address:
            wanted["Launch on Binder"] = (
                f"https://mybinder.org/v2/gl/somebody%2Flabs/trunk?urlpath=lab/tree/{page}.ipynb"
            )
        if "github" in address and name != "old":  # that one could not install labkit in Colab
            wanted["Launch on Colab"] = (
                f"https://colab.research.google.com/github/somebody/labs/blob/trunk/{page}.ipynb"
            )
        assert buttons(html, page) == wanted


def test_a_page_of_prose_has_no_such_button(built: tuple[str, Path]) -> None:
    assert buttons(built[1], "index") == {}


def test_a_download_is_a_notebook_that_knows_where_labkit_is(built: tuple[str, Path], tools: Any) -> None:
    address, html = built
    for page in ("lab", "exercises/set", "old"):
        nb = nbformat.read(html / "notebooks" / f"{page}.ipynb", as_version=4)
        nbformat.validate(nb)
        assert tools.first_cell.address_in(nb) == address


def test_the_page_leaves_the_first_cell_out(built: tuple[str, Path]) -> None:
    text = (built[1] / "notebooks" / "lab.html").read_text()
    assert "1" in text and "REPOSITORY" not in text


# -- the first cell itself, as a reader's Colab would run it ----------------------------------------------------


def run_first_cell(tools: Any, tmp_path: Path, address: str, there: bool, pip: int = 0) -> tuple[str, str]:
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
    (tmp_path / "cell.py").write_text(stub + tools.first_cell.source(address))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "cell.py"], cwd=tmp_path, capture_output=True, text=True
    )
    return done.stdout, (done.stderr.strip().splitlines() or [""])[-1]


def test_where_labkit_is_the_first_cell_does_nothing(tools: Any, tmp_path: Path) -> None:
    for address in (HOME, ""):
        assert run_first_cell(tools, tmp_path, address, there=True) == ("", "")


def test_where_labkit_is_missing_the_first_cell_installs_it_and_says_what_there_is(
    tools: Any, tmp_path: Path
) -> None:
    printed, raised = run_first_cell(tools, tmp_path, HOME, there=False)
    assert printed.splitlines() == [
        f"-m pip install -q labkit[labs] @ git+{HOME}",
        "labkit is installed; this machine offers a core",
    ]
    assert raised == ""


def test_without_an_address_or_if_pip_fails_the_first_cell_says_so_in_one_sentence(
    tools: Any, tmp_path: Path
) -> None:
    printed, raised = run_first_cell(tools, tmp_path, "", there=False)
    assert (
        printed == "" and "does not know where to get it: in the folder of its repository, run pip" in raised
    )
    printed, raised = run_first_cell(tools, tmp_path, HOME, there=False, pip=1)
    assert "pip could not install labkit[labs] @ git+" + HOME in raised and "offers" not in printed


def test_the_extra_that_the_first_cell_asks_for_has_all_that_notebooks_import_and_no_jupyter_of_its_own() -> (
    None
):
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labs = " ".join(project["optional-dependencies"]["labs"])
    assert "jupyterlab" not in labs and "ipykernel" not in labs
    assert "labkit[labs]" in project["optional-dependencies"]["notebooks"]


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
    notebooks: ModuleType, tools: Any, tmp_path: Path
) -> None:
    root = project(tmp_path, url=HOME)
    md, ipynb = root / "page.md", root / "page.ipynb"
    notebook(ipynb, tools.first_cell, "")
    md.write_text("# A page\n\n```{code-cell} ipython3\n1 + 1\n```\n")
    assert notebooks.readdress(md, root) and not notebooks.readdress(md, root)
    assert tools.first_cell.address_in(nbformat.read(ipynb, as_version=4)) == HOME
    project(root)  # the address is forgotten; the notebook keeps what it knew
    assert not notebooks.readdress(md, root)


def test_every_text_gets_the_cell_before_its_first_code_and_a_page_without_code_does_not(
    notebooks: ModuleType, tools: Any, tmp_path: Path
) -> None:
    md = tmp_path / "page.md"
    md.write_text("# A page\n\nWords.\n\n```{code-cell} ipython3\n1 + 1\n```\n")
    cells = notebooks.read_source(md, HOME).cells
    assert [c.cell_type for c in cells] == ["markdown", "code", "code"]
    assert tools.first_cell.address_in(notebooks.read_source(md, HOME)) == HOME
    md.write_text("# A page\n\nWords.\n")
    assert [c.cell_type for c in notebooks.read_source(md, HOME).cells] == ["markdown"]


def test_another_first_cell_than_the_template_s_is_noticed(
    notebooks: ModuleType, tools: Any, tmp_path: Path
) -> None:
    ipynb = tmp_path / "page.ipynb"
    notebook(ipynb, tools.first_cell, None)
    assert notebooks.stored_address(ipynb) is None
    notebook(ipynb, tools.first_cell, "")
    assert notebooks.stored_address(ipynb) == ""
