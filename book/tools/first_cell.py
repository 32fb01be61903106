"""The cell that every notebook begins with: it installs labkit where it is missing, and elsewhere does nothing.

A notebook travels alone: Colab opens it from the repository, a reader downloads it from the book. So it brings the name
of the book's wheel (`build.make_wheel`) and the address from which labkit can be had (`repository.url` in _config.yml).
The cell installs the wheel if it lies beside the notebook, else from the address, or says what to do where neither is there.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import yaml

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: What pip knows labkit by, its wheel's file name, and where that lies in the built book.
DISTRIBUTION = PROJECT["name"]
WHEEL = f"{DISTRIBUTION.replace('-', '_')}-{PROJECT['version']}-py3-none-any.whl"
PLACE = "downloads"

ID = "labkit-setup"
METADATA = {
    "cellView": "form",  # Colab shows the title alone
    "jupyter": {"source_hidden": True},
    "tags": ["nbval-ignore-output", "remove-cell"],  # it speaks only where it installs
}
TEMPLATE = """\
# @title Run this first: it installs labkit where it is missing
import importlib.util, subprocess, sys
from pathlib import Path

REPOSITORY = "{address}"
WHEEL = "{wheel}"
if importlib.util.find_spec("labkit_book") is None:
    other = importlib.util.find_spec("labkit")
    if other and other.origin:
        raise ModuleNotFoundError(
            f"Another package of the name labkit is installed here ({{other.origin}})."
            " Remove it (pip uninstall labkit), restart the kernel, and run this cell again."
        )
    if Path(WHEEL).exists():
        wanted = f"./{{WHEEL}}[labs]"
    elif REPOSITORY:
        wanted = f"{distribution}[labs] @ git+{{REPOSITORY}}"
    else:
        raise ModuleNotFoundError(
            f"labkit is missing. Download {{WHEEL}} from the book (this notebook's page has it under"
            " the download button), put it beside this notebook (in Colab: upload it with the folder"
            " icon on the left), and run this cell again."
        )
    if subprocess.run([sys.executable, "-m", "pip", "install", "-q", wanted]).returncode:
        raise ModuleNotFoundError(f"pip could not install {{wanted}}: its own words are above")
    importlib.invalidate_caches()
    from labkit import machine

    print("labkit is installed; this machine offers", machine.describe((machine.device(),)))"""
_ADDRESS = re.compile(r'^REPOSITORY = "(.*)"$', re.MULTILINE)


def address(root: Path) -> str:
    """The repository's public address that _config.yml names; empty if none. ValueError for one that no button could use."""
    path = root / "_config.yml"
    config = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    url = str((config.get("repository") or {}).get("url") or "")
    if url and not re.fullmatch(r"https://(?:github|gitlab)\.com(?:/[\w.-]+){2,}", url):
        wanted = "empty or as https://github.com/owner/name"
        raise ValueError(f"repository.url in _config.yml must be {wanted}, got {url!r}")
    return url


def source(address: str) -> str:
    """The cell's code, with the address it installs from; empty for none."""
    return TEMPLATE.format(address=address, wheel=WHEEL, distribution=DISTRIBUTION)


def put_inplace(nb: Any, address: str) -> None:
    """Put the cell before the first code cell of `nb`; a notebook without code needs none."""
    places = [i for i, cell in enumerate(nb.cells) if cell.cell_type == "code"]
    if places:
        cell = nbformat.v4.new_code_cell(source(address), id=ID, metadata=nbformat.from_dict(METADATA))
        nb.cells.insert(places[0], cell)


def address_in(nb: Any) -> str | None:
    """The address that the first cell of `nb` installs from; None if it has no such cell."""
    found = _ADDRESS.search(next((cell.source for cell in nb.cells if is_first(cell)), ""))
    return found[1] if found else None


def is_first(cell: Any) -> bool:
    """Whether this is the cell that installs labkit, as some version of this file has it."""
    return cell.get("id") == ID
