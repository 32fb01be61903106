"""JupyterLab as a student has it: no MyST in sight, hints and answers folded, and figures that outlive their kernel."""

import contextlib
import json
import os
import re
import shutil
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import contents
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
DAILY = ("notebooks/10_3_synchronous_sgd.ipynb", "notebooks/exercises/10_3_exercises.ipynb")
RAW = re.compile(r":::|\{[a-z:-]+\}`|^:(?:class|name):", re.M)
SETTINGS = {"windowingMode": "none"}  # every cell is drawn at once
OPENED = ("before_the_first_lab", "10_5_all_reduce", "b_failures")
FIGURES = [
    "from labkit.show import explorer\nfrom labkit_book.labs.figures import figure\nfigure('ring', K=4)",
    "import matplotlib.pyplot as plt\ndef draw(a):\n    plt.plot([0, a])\nexplorer(draw, a=(0, 5, 1, 2))",
]
WAIT_MS = 120_000  # a busy machine takes a minute to draw a lab
expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser


@contextlib.contextmanager
def jupyterlab(started: Callable[..., Any], home: Path, cwd: Path, *options: str) -> Iterator[str]:
    """The address of a JupyterLab of this environment, with settings and a runtime of its own in `home`."""
    own = {"PYTHONPATH": ROOT, "HOME": home, "JUPYTER_RUNTIME_DIR": home / "runtime"}
    own["JUPYTERLAB_SETTINGS_DIR"] = home / "settings"
    env = {**os.environ, **{name: str(path) for name, path in own.items()}}
    path = home / "settings" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(SETTINGS))
    options = ("--no-browser", "--allow-root", "--port=0", "--ip=127.0.0.1", *options)
    command = [sys.executable, "-m", "jupyter", "lab", *options]
    command += ["--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"]
    with started(command, cwd=cwd, env=env) as server:
        while not (notes := list((home / "runtime").glob("jpserver-*.json"))) or not notes[0].read_text():
            assert server.poll() is None, "JupyterLab did not start"
            time.sleep(0.1)
        yield json.loads(notes[0].read_text())["url"]  # by number: the browser may resolve no name


@pytest.fixture(scope="module")
def lab(started: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A JupyterLab over this tree."""
    with jupyterlab(started, tmp_path_factory.mktemp("home"), ROOT, f"--ServerApp.root_dir={ROOT}") as url:
        yield url


def look(window: Any, lab: str, path: str) -> Any:
    """The page with the notebook of this path, every text cell drawn, and nothing to be seen that should not be."""
    page = window(viewport={"width": 1200, "height": 1600})
    page.goto(f"{lab}lab/tree/{path}?reset", wait_until="load", timeout=WAIT_MS)
    texts = [c for c in nbformat.read(ROOT / path, as_version=4).cells if c.cell_type == "markdown"]
    shown = page.locator(".jp-Notebook .jp-MarkdownOutput")
    expect(shown).to_have_count(len(texts), timeout=WAIT_MS)
    drawn = "() => [...document.querySelectorAll('.jp-Notebook .jp-MarkdownOutput')].every((e) => e.innerText.trim())"
    page.wait_for_function(drawn, timeout=WAIT_MS)
    said = "\n".join(shown.all_inner_texts())
    assert len(said) > 100 and not RAW.search(said)
    assert all(hint.get_attribute("open") is None for hint in page.locator(".jp-Notebook details").all())
    previews = page.locator(".jp-Notebook .jp-OutputPlaceholder .jp-PlaceholderText").all_inner_texts()
    assert not any(previews) and page.locator(".jp-Notebook .labkit-reveal").count() == 0
    return page


@pytest.mark.parametrize("path", DAILY)
def test_a_student_sees_no_markup_no_hint_and_no_answer(window: Any, lab: str, path: str) -> None:
    page = look(window, lab, path)
    if "exercises" in path:
        expect(page.locator(".jp-Notebook summary").first).to_have_text("Hint 1")
    else:
        expect(page.locator(".jp-Notebook .alert-info").first).to_contain_text("Predict first")


@pytest.mark.weekly
def test_make_lab_opens_the_contents_hides_the_sources_calls_nothing_unsaved_and_keeps_figures(
    tmp_path: Path, window: Any, started: Callable[..., Any]
) -> None:
    here = tmp_path / "repository"
    shutil.copytree(ROOT / "book" / "lab", here / "book" / "lab")
    (here / "notebooks").mkdir()
    for name in (contents.FRONT, *OPENED):
        for file in (ROOT / "notebooks").glob(f"{name}.*"):
            shutil.copy(file, here / "notebooks")
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in FIGURES])
    nb.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    stored = here / "notebooks" / "figures.ipynb"
    nbformat.write(nb, stored)
    with jupyterlab(started, tmp_path / "home", here, "--config=book/lab/config.py") as url:
        page = window()
        page.goto(url)
        title = page.locator(".jp-NotebookPanel h1").first
        expect(title).to_contain_text("All labs, in reading order", timeout=WAIT_MS)
        files = page.locator(".jp-DirListing-itemText")
        expect(files).to_have_text([f"{name}.ipynb" for name in sorted([contents.FRONT, *OPENED, "figures"])])
        for name in OPENED:
            page.goto(f"{url}lab/tree/{name}.ipynb?reset")
            page.get_by_text("| Idle").wait_for(timeout=WAIT_MS)
            page.wait_for_timeout(500)  # what the kernel has said is in the notebook now
            expect(page.locator(".lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)
        page.close()
        page = window()
        page.goto(f"{url}lab/tree/figures.ipynb?reset")  # and no other, though the first was open
        page.get_by_text("| Idle").wait_for(timeout=WAIT_MS)
        for n in range(len(FIGURES)):
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
        page = window()
        page.goto(f"{url}lab/tree/figures.ipynb?reset")
        alive(page)
    saved = json.loads(stored.read_text())
    assert ["text/html" in cell["outputs"][0]["data"] for cell in saved["cells"]] == [True, False]
    assert "image/png" in saved["cells"][1]["outputs"][0]["data"]


def alive(page: Any) -> None:
    """Both figures are there, as the reader left them."""
    expect(page.locator(".jp-OutputArea .lk-svg")).to_be_visible(timeout=WAIT_MS)
    expect(page.locator(".jp-OutputArea .widget-vbox img")).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_text("model not found")).to_have_count(0)
