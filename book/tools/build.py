"""Build the book, strictly, from the committed notebooks, and say where it is. `make book` calls this.

Jupyter Book 1 returns 0 for a broken reference unless warnings are errors (-W -n --keep-going), and
re-reads only changed pages, so that a second build would forget the first one's warnings (hence --all). `make check`
names the pages that have changed: they are read again in any case, others only if they are not what was built last.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import offered
import own_wheel

ROOT = Path(__file__).resolve().parents[2]


def build(root: Path = ROOT, pages: Sequence[str] = ()) -> int:
    """Build `root` into `root/_build/html`; the exit status. The log is shown only if something is wrong.

    pages: of these, as `_toc.yml` names them, and of what has changed since the last build; of none: all there are.
    """
    began = time.perf_counter()
    for page in pages:  # what Sphinx remembers of it
        (root / "_build" / ".doctrees" / f"{page}.doctree").unlink(missing_ok=True)
    whole = [] if pages else ["--all"]
    done = subprocess.run(
        [Path(sys.executable).with_name("jupyter-book"), "build", root, *whole, "-W", "-n", "--keep-going"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(done.stdout)
        return done.returncode
    own_wheel.make(root / "_build" / "html" / own_wheel.PLACE)
    offered.put(root)
    print(f"The book is at {root / '_build' / 'html' / 'index.html'} ({time.perf_counter() - began:.0f} s).")
    return 0


if __name__ == "__main__":
    sys.exit(build())
