"""`make check` finds the tests that a change can break, and keeps to its time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import changed
import stages

ROOT = stages.ROOT


def reached(*names):
    files = {ROOT / name for name in names}
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return {t.relative_to(ROOT / "tests").as_posix() for t in tests if changed.reaches(t, files)}


def test_a_change_reaches_the_tests_that_import_it_by_however_many_steps():
    ring = reached("labkit/collectives/ring.py")
    assert {"collectives/test_allreduce.py", "planner/test_plan.py"} <= ring
    assert "show/test_palette.py" not in ring and "show/test_palette.py" in reached("labkit/show/palette.py")


def test_a_change_reaches_the_tests_that_name_it_or_stand_beside_it():
    assert "planner/test_plan_published.py" in reached("labkit_book/labs/published.toml")
    assert "grader/test_batch.py" in reached("tests/grader/grading_fakes.py")
    assert reached("tests/test_setup.py") == {"test_setup.py"}


def test_quick_tests_come_first_and_there_is_an_end():
    a, b, c = (ROOT / "tests" / f"test_{x}.py" for x in "abc")
    took = {"tests/test_a.py": 15.0, "tests/test_b.py": 1.0, "tests/test_c.py": 3.0}
    assert changed.chosen([a, b, c], 2.0, took) == ([b, c], [a])
    assert changed.chosen([a, b], 1.0, {}) == ([], [a, b])


def test_the_room_that_has_changed_comes_before_what_is_quicker():
    own, other = ROOT / "tests" / "timing" / "test_order.py", ROOT / "tests" / "planner" / "test_plan.py"
    took = {"tests/timing/test_order.py": 5.0, "tests/planner/test_plan.py": 1.0}
    assert changed.chosen([other, own], 2.6, took, {ROOT / "labkit" / "timing" / "order.py"}) == (
        [own],
        [other],
    )
    assert changed.chosen([other, own], 2.6, took, {other}) == ([other], [own])


def test_pages_are_those_that_the_book_has():
    files = {
        ROOT / name
        for name in ("notebooks/2_2_barriers.md", "book/map.md", "README.md", "book/tools/build.py")
    }
    assert changed.pages(files) == ["book/map", "notebooks/2_2_barriers"]
    assert changed.pages({ROOT / "notebooks/2_2_barriers.ipynb"}) == ["notebooks/2_2_barriers"]


@pytest.mark.parametrize("pages", [(), ("a", "sub/b")])
def test_a_changed_page_is_read_again_whatever_was_remembered_of_it(tmp_path, monkeypatch, pages):
    """Sphinx tells of a page's warnings when it reads it, and would not read twice what has not changed in between."""
    remembered = [tmp_path / "_build" / ".doctrees" / f"{page}.doctree" for page in ("a", "sub/b", "c")]
    for path in remembered:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    commands = []
    done = subprocess.CompletedProcess([], 1, "a warning")
    monkeypatch.setattr(
        changed.build.subprocess, "run", lambda command, **_: commands.append(command) or done
    )
    assert changed.build.build(tmp_path, pages) == 1
    assert [path.exists() for path in remembered] == [not pages, not pages, True]
    assert ("--all" in commands[0]) == (not pages) and "-W" in commands[0] and "-n" in commands[0]


@pytest.mark.parametrize("last", ["pass", "assert False"])
def test_what_still_runs_when_the_time_is_over_is_interrupted_and_what_has_failed_still_counts(
    tmp_path, last
):
    file, report = tmp_path / "test_slow.py", tmp_path / "report.xml"
    file.write_text(
        f"import time\ndef test_a(): {last}\ndef test_b(): open('b', 'w').close(); time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:nbval", "-p", "no:cacheprovider", str(file)]

    class Until(subprocess.Popen):
        """Its time is over when the second test runs."""

        def wait(self, timeout=None):
            if timeout is None:
                return super().wait()
            while not (tmp_path / "b").exists() and self.poll() is None:
                time.sleep(0.05)
            raise subprocess.TimeoutExpired(command, timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "ROOT", tmp_path)
        patch.setattr(stages.subprocess, "Popen", Until)
        status = stages.run("tests", command, report, until_s=1.0, stdout=subprocess.DEVNULL)
    assert status == (last != "pass") and stages.count(report)["failed"] == (last != "pass")
