"""JupyterLab as `make lab` opens it: the first notebook, no text sources, and figures that outlive their kernel."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
CELLS = [
    "from labkit.show import explorer, figure\nfigure('ring', K=4)",
    "import matplotlib.pyplot as plt\ndef draw(a):\n    plt.plot([0, a])\nexplorer(draw, a=(0, 5, 1, 2))",
]


def address(runtime: Path, seconds: float = 60) -> str:
    """Where the server that keeps its notes in `runtime` listens, once it does."""
    for _ in range(int(10 * seconds)):
        for note in runtime.glob("jpserver-*.json"):
            if text := note.read_text():
                return str(json.loads(text)["url"])
        time.sleep(0.1)
    raise AssertionError(f"no server within {seconds} s")


@pytest.mark.browser
def test_it_opens_the_first_notebook_hides_the_sources_and_keeps_figures(
    tmp_path: Path, started: Any
) -> None:
    path = os.environ.get("LABKIT_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(
            f"no browser: none of {', '.join(BROWSERS)} is on the path and LABKIT_CHROMIUM is not set"
        )
    here = tmp_path / "repository"
    shutil.copytree(ROOT / "book" / "lab", here / "book" / "lab")
    (here / "notebooks").mkdir()
    for first in (ROOT / "notebooks").glob("before_the_first_lab.*"):
        shutil.copy(first, here / "notebooks")
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    nb.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nb, here / "notebooks" / "figures.ipynb")
    runtime = tmp_path / "runtime"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(runtime)}
    lab = ["-m", "jupyter", "lab", "--no-browser", "--allow-root", "--port=0", "--IdentityProvider.token="]
    lab += ["--ServerApp.disable_check_xsrf=True", "--config=book/lab/config.py"]
    with started([sys.executable, *lab], cwd=here, env=env):
        url = address(runtime)
        with ThreadPoolExecutor(
            1
        ) as alone:  # other tests of this process may have a browser, one in each thread
            alone.submit(visit, path, url, here / "notebooks" / "figures.ipynb").result()
    saved = json.loads((here / "notebooks" / "figures.ipynb").read_text())
    assert ["text/html" in cell["outputs"][0]["data"] for cell in saved["cells"]] == [True, False]
    assert "image/png" in saved["cells"][1]["outputs"][0]["data"]


def visit(path: str, url: str, stored: Path) -> None:
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=QUIET)
        page = chromium.new_page()
        page.goto(url)
        expect(page.locator(".jp-NotebookPanel h1").first).to_contain_text(
            "Before the first lab", timeout=60_000
        )
        files = page.locator(".jp-DirListing-itemText")
        expect(files).to_have_text(["before_the_first_lab.ipynb", "figures.ipynb"])
        page.close()
        page = chromium.new_page()
        page.goto(f"{url}lab/tree/figures.ipynb?reset")  # and no other, though the first was open
        page.get_by_text("| Idle").wait_for(timeout=60_000)
        for n in range(len(CELLS)):
            page.locator(".jp-CodeCell .cm-content").nth(n).click()
            page.keyboard.press("Control+Enter")
        alive(page)
        page.keyboard.press("Control+s")
        while "image/png" not in stored.read_text():
            page.wait_for_timeout(100)
        page.close()
        with urllib.request.urlopen(f"{url}api/sessions") as answer:
            sessions = json.loads(answer.read())
        for session in sessions:
            gone = urllib.request.Request(f"{url}api/sessions/{session['id']}", method="DELETE")
            urllib.request.urlopen(gone).close()
        page = chromium.new_page()
        page.goto(f"{url}lab/tree/figures.ipynb?reset")
        alive(page)


def alive(page: Any) -> None:
    """Both figures are there, as the reader left them."""
    from playwright.sync_api import expect

    expect(page.locator(".jp-OutputArea .lk-svg")).to_be_visible(timeout=60_000)
    expect(page.locator(".jp-OutputArea .widget-vbox img")).to_be_visible(timeout=60_000)
    expect(page.get_by_text("model not found")).to_have_count(0)
