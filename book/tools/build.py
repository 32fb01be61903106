"""Build the book, strictly, from the committed notebooks, and say where it is. `make book` calls this.

Jupyter Book 1 returns 0 for a broken reference unless warnings are errors (-W -n --keep-going), and
re-reads only changed pages, so that a second build would forget the first one's warnings (hence --all). `make check`
names the pages that have changed: they are read again in any case, others only if they are not what was built last.

Slides, PDF and EPUB are linked where they are (`offer`; `make slides`, `pdf` and `epub` end so, too): slides while their
notebook has not changed since, the others as long as the book has not been built again.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import closure
from first_cell import PLACE, WHEEL

ROOT = Path(__file__).resolve().parents[2]
OFFERED = re.compile(r'<span class="labkit-offered">.*?</span>', re.S)  # see book/_templates/about.html


def build(root: Path = ROOT, pages: Sequence[str] = ()) -> int:
    """Build `root` into `root/_build/html`; the exit status. The log is shown only if something is wrong.

    pages: of these, as `_toc.yml` names them, and of what has changed since the last build; of none: all there are.
    """
    began = time.perf_counter()
    for page in pages:  # what Sphinx remembers of it
        (root / "_build" / ".doctrees" / f"{page}.doctree").unlink(missing_ok=True)
    # Sphinx makes objects by the million and little garbage: looking for it as often as usual takes a fifth of the build.
    boot = "import gc; gc.set_threshold(100_000, 50, 1000); from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-P", "-c", boot, "build", root, "-W", "-n", "--keep-going"]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command + ["--all"] * (not pages), text=True, **streams)
    if done.returncode:
        print(done.stdout)
        return done.returncode
    make_wheel(root / "_build" / "html" / PLACE)
    offer(root)
    print(f"The book is at {root / '_build' / 'html' / 'index.html'} ({time.perf_counter() - began:.0f} s).")
    return 0


def make_wheel(folder: Path) -> Path:
    """Make the wheel in `folder`, from a copy (setuptools leaves its traces in the source) and offline; its path.

    Raises subprocess.CalledProcessError, after pip's own words on stderr.
    """
    skip = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "*.pyc")
    with tempfile.TemporaryDirectory() as source:
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        for package in closure.PACKAGES:
            shutil.copytree(ROOT / package, Path(source, package), ignore=skip)
        offline = ["--no-build-isolation", "--no-deps", "--no-index"]
        command = [sys.executable, "-m", "pip", "wheel", "-q", *offline, "-w", folder.resolve(), "."]
        subprocess.run(command, cwd=source, check=True, stdin=subprocess.DEVNULL)
    return folder / WHEEL


def offer(root: Path = ROOT) -> int:
    """Copy what there is into the built book and link it; how many pages lead to something."""
    built = root / "_build"
    html, slides = built / "html", built / "slides"
    if not (index := html / "searchindex.js").exists():
        return 0
    there = [p for p in slides.glob("*.html") if _newer(p, root / "notebooks" / f"{p.stem}.ipynb")]
    if there:
        shutil.copytree(slides, html / "slides", dirs_exist_ok=True)
    whole = {"a PDF": built / "book.pdf", "an EPUB": built / "epub" / "book.epub"}
    whole = {kind: shutil.copy(made, html / made.name) for kind, made in whole.items() if _newer(made, index)}
    leading = 0
    for page in html.rglob("*.html"):
        if not OFFERED.search(text := page.read_text(encoding="utf-8")):
            continue
        has_slides = html / "notebooks" == page.parent and slides / page.name in there
        links = [(html / "slides" / page.name, "slides")] * has_slides
        for kind, made in whole.items():
            links.append((made, f"the whole book as {kind} ({made.stat().st_size / 1e6:.0f} MB)"))
        said = "".join(f' · <a href="{os.path.relpath(to, page.parent)}">{what}</a>' for to, what in links)
        new = OFFERED.sub(lambda _, said=said: f'<span class="labkit-offered">{said}</span>', text)
        page.write_text(new, encoding="utf-8")
        leading += bool(links)
    return leading


def _newer(made: Path, of: Path) -> bool:
    return made.exists() and of.exists() and made.stat().st_mtime >= of.stat().st_mtime


if __name__ == "__main__":
    sys.exit(build())
