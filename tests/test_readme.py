"""The README's snippet prints what the README says it prints."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n((?:(?!```).)*)```\n\nprints\n\n```\n(.*?)```", TEXT, re.S)


@pytest.mark.processes
@pytest.mark.parametrize("code,said", SNIPPETS, ids=["step", "stragglers", "ring"])
def test_a_snippet_prints_what_stands_below_it(ran, code, said, tmp_path):
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    (tmp_path / "snippet.py").write_text(code)
    done = ran([sys.executable, "snippet.py"], timeout=120, cwd=tmp_path)
    assert done.stdout == said, done.stdout + done.stderr


def test_the_step_it_shows_is_the_package_s():
    def bodies(text):
        """What each function does, without docstring and imports."""
        functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
        skip = (ast.Expr, ast.Import)
        return {f.name: [ast.unparse(n) for n in f.body if not isinstance(n, skip)] for f in functions}

    shown = bodies(re.search(r"```python\n(def .*?)```", TEXT, re.S).group(1))
    assert shown == bodies((ROOT / "labkit" / "sgd.py").read_text(encoding="utf-8"))
    assert all(shown.values())


def test_every_file_the_readme_links_to_exists():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_the_cover_s_algorithm_sums_in_both_worlds():
    import numpy as np

    from labkit import launch

    text = (ROOT / "book" / "index.md").read_text()
    scope = {"np": np}
    exec(re.search(r"```python\n(def .*?)```", text, re.S).group(1), scope)
    for world in ("simulated", "processes"):
        summed = lambda comm: scope["sum_around_the_ring"](comm, np.full(3, 2.0**comm.rank))  # noqa: E731
        run = launch(summed, 4, world=world)
        assert all(total.tolist() == [15.0] * 3 for total in run.results)
