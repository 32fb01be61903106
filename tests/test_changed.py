"""`make check` finds the tests and pages that a change can break."""

import subprocess

import changed
import pytest
import stages

ROOT = stages.ROOT


def test_a_change_reaches_the_tests_of_its_room_and_those_that_name_it():
    def reached(name):
        return {t for t in stages.files() if changed.reaches(ROOT / t, {ROOT / name})}

    ring = reached("labkit/collectives/ring.py")
    assert {"tests/collectives/test_prices.py", "tests/planner/test_plan.py"} <= ring
    assert "tests/show/test_palette.py" not in ring
    assert "tests/grader/test_batch.py" in reached("tests/grader/grading_fakes.py")


def test_pages_are_those_that_the_book_has():
    names = ("notebooks/2_2_barriers.md", "book/map.md", "README.md", "book/tools/build.py")
    assert changed.pages({ROOT / name for name in names}) == ["book/map", "notebooks/2_2_barriers"]


@pytest.mark.parametrize("pages", [(), ("a", "sub/b")])
def test_a_changed_page_is_read_again_whatever_was_remembered_of_it(tmp_path, monkeypatch, pages):
    """Sphinx tells of a page's warnings when it reads it, and would not read twice what has not changed in between."""
    remembered = [tmp_path / "_build" / ".doctrees" / f"{page}.doctree" for page in ("a", "sub/b", "c")]
    for path in remembered:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    commands, done = [], subprocess.CompletedProcess([], 1, "a warning")
    monkeypatch.setattr(
        changed.build.subprocess, "run", lambda command, **_: commands.append(command) or done
    )
    assert changed.build.build(tmp_path, pages) == 1
    assert [path.exists() for path in remembered] == [not pages, not pages, True]
    assert ("--all" in commands[0]) == (not pages) and "-W" in commands[0] and "-n" in commands[0]
