"""A private key: begun by one command outside the repository, and the self-test says what it lacks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import grading_fakes as f

from labkit.exercises import exercise_set
from labkit.grade import template
from labkit.grade.__main__ import GRADER_ERROR, OK, main
from labkit.grade.key import Key, selftest
from labkit.grade.zygote import Zygote

SETS = Key.sets(f.KEY)


@pytest.fixture
def at_home(monkeypatch):
    monkeypatch.chdir(f.RELEASED.parents[1])


@pytest.mark.parametrize("name", SETS)
def test_a_template_is_python_with_a_place_for_every_exercise(name, tmp_path, at_home, capsys):
    assert template.main([name, "--out", str(tmp_path / "mine")]) == 0
    key = Key.load(tmp_path / "mine", name)
    judged = {e.id for e in exercise_set(name).values() if not e.rubric}
    assert {*key.solutions} == {*key.mutants} == judged and not key.hidden
    assert "labkit.exercises" not in key.setup.partition('"""\n')[2], "judges stay with the grader"
    before = next((tmp_path / "mine").glob("key_*")).read_text()
    assert template.main([name, "--out", str(tmp_path / "mine")]) == 2, "what is written is never replaced"
    assert next((tmp_path / "mine").glob("key_*")).read_text() == before
    assert template.main(["99", "--out", str(tmp_path)]) == 2 and "no exercise set" in capsys.readouterr().err


@pytest.mark.processes
def test_the_self_test_of_a_private_key_says_what_is_missing_until_nothing_is(tmp_path, at_home, capsys):
    mine = tmp_path / "mine"
    template.main(["2.2", "--out", str(mine)])
    with Zygote(hide=(str(mine),)) as z:
        said = [problem for id in exercise_set("2.2") for problem in selftest(mine, id, z)]
        for id, e in exercise_set("2.2").items():
            about = [s for s in said if id in s]
            assert len(about) == (1 if e.rubric else 2), about
            assert any("NO_RESULT" in s or "LOOK_FOR" in s for s in about)
        assert not z.left()
        (mine / "key_2_2.py").write_text((f.KEY / "key_2_2.py").read_text())
        assert selftest(mine, "2.2-3", z) == []
    f.write(tmp_path / "anna.ipynb", f.answered("2.2", {"2.2-3": f.OVERLAP}))
    assert main([str(tmp_path / "anna.ipynb"), "--key", str(mine), "--jobs", "1"], f.fake) == OK
    (mine / "key_2_2.py").unlink()
    template.main(["2.2", "--out", str(mine)])
    assert main([str(tmp_path / "anna.ipynb"), "--key", str(mine), "--jobs", "1"]) == GRADER_ERROR
    assert "the key has no mistakes of 2.2-2" in capsys.readouterr().err
