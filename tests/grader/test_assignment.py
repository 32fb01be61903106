"""Every problem set as an assignment that the released nbgrader takes, runs and marks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import grading_fakes as f
import nbformat
import numpy as np
import pytest

from labkit_book.grader.assignment import assign_inplace, main
from labkit_book.problems import exercise_set
from labkit_book.problems.catalogue import all_exercises

SETS = sorted({e.id.split("-")[0] for e in all_exercises()})
NBGRADER = "nbgrader==0.9.6"


@pytest.mark.parametrize("name", SETS)
def test_every_exercise_has_its_points_once_and_every_answer_a_cell(name):
    made = f.released(name)
    assign_inplace(made, name, [7, 8])
    nbformat.validate(nbformat.from_dict(made))
    marks = [c["metadata"]["nbgrader"] for c in made["cells"] if "nbgrader" in c["metadata"]]
    assert sum(m["points"] for m in marks if m["grade"]) == sum(e.points for e in exercise_set(name).values())
    assert len({m["grade_id"] for m in marks}) == len(marks)
    tests = [c for c in made["cells"] if c["metadata"].get("nbgrader", {}).get("locked")]
    assert len(tests) == sum(not e.rubric for e in exercise_set(name).values())
    assert all("seed=_seed" in c["source"] and "[7, 8]" in c["source"] for c in tests)
    for cell in made["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution") and cell["cell_type"] == "code":
            compile(cell["source"], "<cell>", "exec")
            assert cell["source"].count("### BEGIN SOLUTION") == cell["source"].count("### END SOLUTION") == 1


def test_what_is_missing_is_said(tmp_path, capsys):
    nb = f.released("B")
    nb["cells"] = [c for c in nb["cells"] if 'check("B-3"' not in "".join(c["source"])]
    with pytest.raises(ValueError, match="lacks the check of B-3"):
        assign_inplace(nb, "B", [1])
    assert main(["99", "--out", str(tmp_path)]) == 2 and "99_exercises" in capsys.readouterr().err
    assert main(["B", "--out", str(tmp_path / "a"), "--notebooks", str(f.RELEASED)]) == 0
    assert (tmp_path / "a" / "b_exercises.ipynb").exists()


@pytest.mark.weekly
@pytest.mark.timeout(1500)
def test_the_released_nbgrader_makes_hands_out_and_marks_it(tmp_path):
    """In an environment of its own: right answers get their points there, right parts theirs, blank ones none."""
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    # It has our packages, and in front of them what else, or in what other versions, nbgrader asks for.
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    install = ["-m", "pip", "install", "-qq", "--no-compile", NBGRADER, "scipy", str(f.ROOT)]
    subprocess.run([python, *install], check=True)
    course = tmp_path / "course"
    (course / "source").mkdir(parents=True)
    (course / "nbgrader_config.py").write_text('c = get_config()\nc.CourseDirectory.course_id = "ours"\n')
    assert main(["2.2", "--out", str(course / "source" / "barriers"), "--notebooks", str(f.RELEASED)]) == 0

    def nbgrader(*args):
        env = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}  # it calls alembic by name
        command = [python, "-m", "nbgrader", *args]
        done = subprocess.run(command, cwd=course, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]

    nbgrader("generate_assignment", "barriers")
    handed_out = json.loads((course / "release" / "barriers" / "2_2_exercises.ipynb").read_text())
    assert "HIDDEN" not in json.dumps(handed_out) and "NotImplementedError" in json.dumps(handed_out)
    for student, source in {"anna": f.OVERLAP, "bob": f.OVERLAP_WRONG, "carla": None}.items():
        nb = json.loads(json.dumps(handed_out))
        (cell,) = [c for c in nb["cells"] if "exercise-2.2-3" in c["metadata"].get("tags", [])]
        cell["source"] = source or cell["source"]
        folder = course / "submitted" / student / "barriers"
        folder.mkdir(parents=True)
        (folder / "2_2_exercises.ipynb").write_text(json.dumps(nb))
    nbgrader("autograde", "barriers")
    nbgrader("export")
    lines = (course / "grades.csv").read_text().splitlines()
    at = lines[0].split(",").index("raw_score")
    who, rows = lines[0].split(",").index("student_id"), [line.split(",") for line in lines[1:]]
    scores = {row[who]: float(row[at]) for row in rows}
    assert scores == {"anna": 3.0, "bob": 2.0, "carla": 0.0}  # four parts of five, to half a point
