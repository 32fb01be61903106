"""Notebooks as a student opens them: in JupyterLab nothing of MyST is in sight, hints and answers are folded."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = [str(p.relative_to(ROOT)) for p in sorted((ROOT / "notebooks").rglob("*.ipynb"))]
DAILY = ("notebooks/10_3_synchronous_sgd.ipynb", "notebooks/exercises/10_3_exercises.ipynb")
RAW = re.compile(r":::|\{[a-z:-]+\}`|^:(?:class|name):", re.M)
SETTINGS = {  # every cell is drawn at once, and nobody is asked whether they want news
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lab(started: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab of this environment over this tree, with settings and a runtime of its own."""
    home = tmp_path_factory.mktemp("jupyter")
    for name, values in SETTINGS.items():
        path = home / "lab" / "user-settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    own = {f"JUPYTER_{kind}_DIR": str(home / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"JUPYTERLAB_SETTINGS_DIR": str(home / "lab" / "user-settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(home / "lab" / "workspaces")}  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", f"--port={port}",
               "--ServerApp.port_retries=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={ROOT}"]  # fmt: skip
    log = home / "log"
    with log.open("w") as file, started(command, env={**os.environ, **own}, stderr=file) as server:
        while f":{port}/lab" not in log.read_text():
            assert server.poll() is None, f"JupyterLab did not start:\n{log.read_text()}"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/lab"


def opened(window: Any, lab: str, path: str) -> Any:
    """The page with the notebook of this path, every text cell drawn."""
    page = window(viewport={"width": 1200, "height": 1600})
    page.goto(f"{lab}/tree/{path}?reset", wait_until="load", timeout=120_000)
    cells = nbformat.read(ROOT / path, as_version=4).cells
    texts = [c for c in cells if c.cell_type == "markdown"]
    expect(page.locator(".jp-Notebook .jp-MarkdownOutput")).to_have_count(len(texts), timeout=120_000)
    return page


def look(page: Any) -> None:
    said = "\n".join(page.locator(".jp-Notebook .jp-MarkdownOutput").all_inner_texts())
    assert len(said) > 500 and not RAW.search(said)
    for hint in page.locator(".jp-Notebook details").all():
        assert hint.get_attribute("open") is None
    answers = page.locator(".jp-Notebook .labkit-reveal")
    assert [e for e in answers.all() if e.is_visible()] == []


@pytest.mark.parametrize("path", DAILY)
def test_a_student_sees_no_markup_no_hint_and_no_answer(window: Any, lab: str, path: str) -> None:
    page = opened(window, lab, path)
    look(page)
    if "exercises" in path:
        expect(page.locator(".jp-Notebook summary").first).to_have_text("Hint 1")
    else:
        expect(page.locator(".jp-Notebook .alert-info").first).to_contain_text("Predict first")


@pytest.mark.weekly
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path not in DAILY])
def test_no_notebook_shows_markup_a_hint_or_an_answer(window: Any, lab: str, path: str) -> None:
    look(opened(window, lab, path))
