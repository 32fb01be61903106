"""The README's snippet prints what the README says it prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.processes
def test_the_snippet_prints_the_numbers_below_it(tmp_path):
    text = (ROOT / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    said = re.search(r"prints\n\n```\n(.*?)```", text, re.S).group(1)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    (tmp_path / "snippet.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "snippet.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )
    assert done.stdout == said, done.stdout + done.stderr


def test_every_file_the_readme_links_to_exists():
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_cover_s_algorithm_sums_in_both_worlds():
    import numpy as np

    from labkit import launch

    text = (ROOT / "book" / "index.md").read_text()
    scope = {"np": np}
    exec(re.search(r"```python\n(def .*?)```", text, re.S).group(1), scope)
    for world in ("simulated", "processes"):
        run = launch(
            lambda comm: scope["sum_around_the_ring"](comm, np.full(3, 2.0**comm.rank)), 4, world=world
        )
        assert all(total.tolist() == [15.0] * 3 for total in run.results)
