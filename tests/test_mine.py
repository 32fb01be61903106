"""A student's own answers are taken up again where they are right, with what they need, and only then."""

import json
import shutil
from pathlib import Path

import pytest

from labkit_book.mine import mine

ROOT = Path(__file__).parents[1]
CHAIN = [[(k, k + 1, r - k) for k in range(3) if 0 <= r - k < 6] for r in range(8)]
RIGHT = """
def newest(comm, written, mine):
    counts = np.zeros(len(ORDER))
    whole = [(s, p) for s, parts in sorted(written) for p in range(parts)]
    there = comm_sum(comm, np.array([float(part in set(map(tuple, mine))) for part in whole]))
    lacking = {s for (s, _), n in zip(whole, there) if not n}
    return max((s for s, _ in written if s not in lacking), default=-1)
"""


@pytest.fixture
def handed_in(tmp_path):
    """Write answers into the cells of set B: {tag or "new": source}."""
    name = "b_exercises.ipynb"

    def write(**answers):
        nb = json.loads((ROOT / "notebooks" / "exercises" / name).read_text(encoding="utf-8"))
        for cell in nb["cells"]:
            for number, source in answers.items():
                if f"exercise-B-{number[1:]}" in cell["metadata"].get("tags", []):
                    cell["source"] = source
        helper = {"cell_type": "code", "metadata": {}, "source": HELPER}
        helper |= {"outputs": [], "execution_count": None}
        nb["cells"].insert(2, helper)
        (tmp_path / name).write_text(json.dumps(nb), encoding="utf-8")
        return tmp_path

    return write


HELPER = """ORDER = [0]
from labkit.collectives import ring
def comm_sum(comm, x):
    return ring.allreduce(comm, x)
"""


def test_a_right_answer_comes_with_what_it_needs_and_any_other_does_not(handed_in):
    folder = handed_in(_3=RIGHT, _5="rounds = [[(0, 1, 0)]]", _1="def upload(*a): return {}")
    newest = mine("B-3", folder=folder)
    assert newest.__name__ == "newest"
    assert mine("B-3", "newest", "ORDER", folder=folder)[1] == [0]
    for id in ("B-5", "B-1", "B-2"):  # wrong, wrong, as handed out
        assert mine(id, folder=folder) is None
    assert mine("A-2", folder=folder) is None  # no such notebook here


def test_what_does_not_run_or_is_only_valid_is_not_taken(handed_in, tmp_path):
    folder = handed_in(_5=f"rounds = {CHAIN!r}", _3="1 / 0")
    assert mine("B-5", folder=folder) is None and mine("B-3", folder=folder) is None
    shutil.copy(ROOT / "README.md", tmp_path / "b_exercises.ipynb")
    assert mine("B-5", folder=tmp_path) is None
