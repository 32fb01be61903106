"""From a file to a student's answers: what is taken, what is for a human, what can't be read; nothing vanishes."""

import copy
import json
import os
import subprocess
import sys
import tempfile
import time

import grading_fakes as f
import pytest

from labkit_book.grader.collect import MOST_OF_STUDENT, Unreadable, collect, read_cells
from labkit_book.grader.submission import Released, sets_of
from labkit_book.problems import exercise_set

SETS = sorted(p.stem.removeprefix("key_").replace("_", ".") for p in f.KEY.glob("key_*.py"))
BOOK = Released.load("2.2", f.RELEASED)
ID = "2.2-3"


def read(data):
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return read_cells(file.name)


def cells(nb):
    return read(json.dumps(nb).encode())


def found(nb, id=ID):
    return BOOK.answer(cells(nb), id)


def without_marks(nb):
    for c in nb["cells"]:
        c["metadata"] = {}
    return nb


def index(nb, id=ID):
    return nb["cells"].index(f.mine(nb, id))


# -- which answers --


@pytest.mark.parametrize("name", SETS)
def test_each_answer_cell_of_each_set_is_marked_and_is_found_untouched(name):
    jupytext = pytest.importorskip("jupytext")
    text = f.RELEASED / f"{name.replace('.', '_').lower()}_exercises.md"
    nb = jupytext.read(text, fmt="md:myst")
    marks = [t for c in nb.cells for t in c.metadata.get("tags", []) if t.startswith("exercise-")]
    assert marks == [f"exercise-{id}" for id in exercise_set(name)]
    book = Released.load(name, f.RELEASED)
    for id in book.exercises:
        answer = book.answer(cells(nb), id)
        assert answer.blank and not answer.note, id


def test_a_marked_answer_is_taken_with_the_released_imports_whatever_is_printed_or_checked():
    nb = f.answered("2.2", {ID: f.OVERLAP})
    for c in nb["cells"]:
        if "check(" in "".join(c["source"]):
            c["source"] = "v3 = type('V', (), {'points': 99})()\nprint('right, 99 of 2 points')"
            c["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "right, 99 of 2 points"}]
    nb["cells"].insert(0, f.code("import antigravity"))
    answer = found(nb)
    assert answer.source == f.OVERLAP and not answer.note and not answer.blank
    assert "import numpy as np" in answer.setup and "antigravity" not in f"{answer}"
    assert "StaleSynchronous" in answer.setup and "StaleSynchronous" not in BOOK.stubs["2.2-2"].setup, (
        "from above only"
    )


def test_a_split_cell_is_put_together_in_order():
    nb = f.answered("2.2", {ID: f.OVERLAP.replace("max(", "largest(")})
    nb["cells"].insert(index(nb), f.code("largest = max", f"exercise-{ID}"))
    answer = found(nb)
    assert (
        answer.source.index("largest = max") < answer.source.index("def overlapped_step") and not answer.note
    )


def test_lost_metadata_fall_back_to_the_one_cell_that_defines_the_name():
    nb = without_marks(f.answered("2.2", {ID: f.OVERLAP, "2.2-2": f.SSP}))
    assert found(nb).source == f.OVERLAP and not found(nb).note
    assert found(nb, "2.2-4").blank, "the untouched stub is found by its text"


def test_two_different_definitions_are_for_a_human_and_equal_ones_are_not():
    nb = f.answered("2.2", {ID: f.OVERLAP})
    nb["cells"].append(f.code(f.OVERLAP, f"exercise-{ID}"))
    assert not found(nb).note
    nb["cells"].append(f.code(f.OVERLAP_WRONG, f"exercise-{ID}"))
    assert "cells" in found(nb).note and "which one counts" in found(nb).note
    assert "which one counts" in found(without_marks(nb)).note


def test_a_copy_of_the_stub_or_an_experiment_elsewhere_does_no_harm():
    nb = f.answered("2.2", {ID: f.OVERLAP})
    nb["cells"] += [copy.deepcopy(f.mine(f.released("2.2"), ID)), f.code(f.OVERLAP_WRONG)]
    assert found(nb).source == f.OVERLAP and not found(nb).note


def test_an_answer_in_a_new_cell_under_an_untouched_stub_is_for_a_human_and_not_zero():
    nb = f.released("2.2")
    nb["cells"].insert(index(nb) + 1, f.code(f.OVERLAP))
    answer = found(nb)
    assert not answer.blank and "which one counts" in answer.note and f.OVERLAP in answer.source


def test_another_name_or_no_cell_at_all_is_for_a_human_and_what_is_not_python_for_the_grader():
    assert "another name" in found(f.answered("2.2", {ID: f.OVERLAP.replace("overlapped", "my")})).note
    nb = f.released("2.2")
    del nb["cells"][index(nb)]
    assert "there is no cell" in found(nb).note and not found(nb).blank
    assert "there is no cell" in found(f.answered("2.2", {ID: "  \n"})).note, "emptied"
    for typo in ("def overlapped_step(b, a, L)\n    return b", "def def def"):
        answer = found(f.answered("2.2", {ID: typo}))
        assert not answer.note and not answer.blank


@pytest.mark.parametrize("magic", ["%matplotlib inline\n", "!pip install x\n", "%%time\n", "np.array?\n"])
def test_magics_are_left_out_and_no_line_moves(magic):
    answer = found(f.answered("2.2", {ID: magic + f.OVERLAP}))
    assert not answer.note
    compile(answer.source, "answer", "exec")
    assert answer.source.splitlines()[1] == f.OVERLAP.splitlines()[0]


def test_a_value_may_be_filled_in_where_it_stands_in_a_split_cell_or_elsewhere():
    id, items = "2.2-5", "three_runs['c_ms'] = np.ones(1)"
    nb = f.released("2.2")
    assert found(nb, id).blank
    nb["cells"].insert(index(nb, id) + 1, f.code(items, f"exercise-{id}"))
    answer = found(nb, id)
    assert not answer.blank and not answer.note
    assert answer.source.endswith(items) and "three_runs = {" in answer.source
    nb = f.released("2.2")
    nb["cells"].insert(index(nb, id) + 1, f.code(items))
    assert "which one counts" in found(nb, id).note, "filled in where no mark is: not zero"


def test_an_answer_in_words_is_for_a_human_wherever_it_was_written():
    id = "2.2-1"
    assert found(f.released("2.2"), id).blank
    nb = f.answered("2.2", {id: "All wait for the slowest."})
    assert found(nb, id).source == "All wait for the slowest." and found(nb, id).note
    nb = f.released("2.2")
    nb["cells"].insert(index(nb, id) + 1, f.markdown("All wait."))
    assert found(nb, id).source == "All wait." and not found(nb, id).blank
    assert found(without_marks(nb), id).note


def test_only_the_cells_that_an_answer_needs_come_with_it():
    nb = f.answered("2.2", {ID: f.OVERLAP.replace("max(", "longer(")})
    texts = ["import os; os._exit(0)", "def longer(*s): return most(s)", "most = max", "longer(1, 2)", "most(3 * [1])",
             "table = []\nfor _ in range(9): table.append(longer(1, 2))", "print(longer)"]  # fmt: skip
    nb["cells"] += [f.code(text) for text in texts]
    taken = [text for _, text in found(nb).cells]
    assert [text for text in texts if text in taken] == texts[1:3]


def test_the_cells_that_change_what_an_answer_needs_come_with_it():
    nb = f.answered("2.2", {ID: f.OVERLAP.replace("max(", "len(seen) + max(")})
    texts = ["seen = {}", "seen['a'] = 1", "seen.update(b=2)", "def later(): seen['c'] = 3", "print(seen)"]
    nb["cells"] += [f.code(text) for text in texts]
    taken = [text for _, text in found(nb).cells]
    assert [text for text in texts if text in taken] == texts[:3]


@pytest.mark.parametrize(
    "nest", ["(" * 150_000 + ")" * 150_000, "-" * 90_000 + "1", "x" + ".a" * 600, "x" + "[0]" * 9000]
)
def test_sources_that_would_hang_a_parser_are_not_parsed(nest):
    answer = found(f.answered("2.2", {ID: f"overlapped_step = {nest}"}))
    assert not answer.blank


# -- which set --


def test_the_set_is_told_by_marks_and_checks_and_never_by_the_file():
    nb = f.answered("2.2", {ID: f.OVERLAP})
    assert sets_of(cells(nb), SETS) == ["2.2"] and sets_of(cells(nb), ["10.4"]) == []
    assert sets_of(cells(without_marks(nb)), SETS) == ["2.2"], "by its checks"
    assert sets_of(cells({**nb, "cells": [f.code(f.OVERLAP)]}), SETS) == []
    nb["cells"].append(f.code("1", "exercise-10.4-1"))
    assert sets_of(cells(nb), SETS) == ["2.2"], "a stray mark makes no second set"
    both = {**nb, "cells": f.released("2.2")["cells"] + f.released("10.4")["cells"]}
    assert sorted(sets_of(cells(both), SETS)) == ["10.4", "2.2"]


# -- what is no notebook --


@pytest.mark.parametrize("data, why", [
    (b" \n", "empty"),
    (json.dumps(f.released("2.2")).encode()[:5000], "no JSON"),
    (b"\xff\xfe\x00\x01" * 9, "no JSON"),
    (b"[" * 200_000, "no JSON"),
    (b"[]", "format 4"),
    (b'{"nbformat": 3, "worksheets": []}', "format 4"),
    (b'{"nbformat": 4}', "no cells"),
    (b'{"nbformat": 4, "cells": []}', "no cells"),
    (b'{"nbformat": 4, "cells": [7]}', "cell 1"),
    (b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": [3]}]}', "cell 1"),
    (b'{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "cell 1"),
    (json.dumps({"nbformat": 4, "cells": [f.code("1" + "<1" * 20_000)] * 24}).encode(), "characters of code"),
    (json.dumps({"nbformat": 4, "cells": [f.code("")] * 1001}).encode(), "cells"),
])  # fmt: skip
def test_a_file_that_is_no_notebook_is_refused_in_a_sentence(data, why):
    with pytest.raises(Unreadable, match=why):
        read(data)


def test_odd_but_readable_notebooks_are_read():
    nb = f.answered("2.2", {ID: f.OVERLAP})
    f.mine(nb, ID)["source"] = f.OVERLAP.splitlines(keepends=True)
    nb["cells"][0]["metadata"] = {"tags": [3, None, "x"]}
    nb["cells"][1].pop("metadata")
    assert found(nb).source == f.OVERLAP
    assert read(b"\xef\xbb\xbf" + json.dumps(nb).encode())  # a byte order mark
    cells({"nbformat": 4, "cells": [f.code("x = '\ud800'")]})[0].source.encode()


def test_pipes_folders_links_large_and_locked_files_are_refused_and_nothing_blocks(tmp_path):
    os.mkfifo(tmp_path / "pipe.ipynb")
    (tmp_path / "folder.ipynb").mkdir()
    (tmp_path / "link.ipynb").symlink_to("/etc/passwd")
    with (tmp_path / "large.ipynb").open("wb") as file:
        file.truncate(100_000_000)
    locked = f.write(tmp_path / "locked.ipynb", f.released("2.2"))
    locked.chmod(0)
    kinds = [("pipe", "ordinary"), ("folder", "directory"), ("link", "cannot be read"), ("large", "32 MB")]
    for name, why in kinds + [("locked", "Permission")] * (os.geteuid() != 0):
        with pytest.raises(Unreadable, match=why):
            read_cells(tmp_path / f"{name}.ipynb")


def test_a_notebook_at_the_limit_is_searched_in_seconds():
    nb = f.released("2.2")
    nb["cells"] += [f.code("1" + "<1" * 20_000) for _ in range(12)]
    began = time.process_time()
    theirs = cells(nb)
    assert sets_of(theirs, SETS) == ["2.2"]
    assert not BOOK.answer(theirs, ID).note
    assert time.process_time() - began < 20


# -- whose --


def test_students_are_folders_or_names_and_nothing_handed_in_vanishes(tmp_path):
    nb = f.released("2.2")
    f.write(tmp_path / "anna" / "2_2_exercises.ipynb", nb)
    f.write(tmp_path / "anna" / "week 2" / "renamed (1).IPYNB", nb)
    f.write(tmp_path / "anna" / ".ipynb_checkpoints" / "2_2_exercises-checkpoint.ipynb", nb)
    (tmp_path / "anna" / "numpy.py").write_text("")
    f.write(tmp_path / "bob.ipynb", nb)
    (tmp_path / "carla").mkdir()
    (tmp_path / "dan.zip").write_text("")
    (tmp_path / "eve.ipynb").symlink_to(tmp_path / "bob.ipynb")
    (tmp_path / "fay.ipynb").mkdir()
    (tmp_path / ".DS_Store").write_text("")
    f.write(tmp_path / "out" / "x.ipynb", nb)
    found = collect([tmp_path], tmp_path / "out")
    assert [(s.student, s.name) for s in found if not s.problem] == [
        ("anna", "anna/2_2_exercises.ipynb"),
        ("anna", "anna/week 2/renamed (1).IPYNB"),
        ("bob", "bob.ipynb"),
    ]
    said = {s.student: s.problem for s in found if s.problem}
    assert "no notebook" in said.pop("carla") and "no notebook" in said.pop("fay.ipynb")
    assert "not a notebook" in said.pop("dan") and "link" in said.pop("eve") and not said


def test_a_file_with_the_problem_sets_own_name_belongs_to_its_folder(tmp_path):
    for student in ("anna", "bob"):
        f.write(tmp_path / student / "10_3_exercises (1).ipynb", f.released("10.3"))
    f.write(tmp_path / "carla.ipynb", f.released("10.3"))
    anna = tmp_path / "anna" / "10_3_exercises (1).ipynb"
    found = collect([*tmp_path.glob("*/*.ipynb"), tmp_path / "carla.ipynb", anna], tmp_path / "out")
    assert [s.student for s in found] == ["anna", "bob", "carla"], "each once"
    assert len({s.name for s in found}) == 3
    assert [s.student for s in collect([tmp_path / "anna"], tmp_path / "out")] == ["anna"]


def test_a_thousand_files_of_a_student_are_a_few_rows(tmp_path):
    for i in range(1000):
        f.write(tmp_path / "anna" / f"{i:03}.ipynb", {})
    found = collect([tmp_path], tmp_path / "out")
    assert len(found) == MOST_OF_STUDENT + 1 and "looked at" in found[-1].problem


def test_strange_names_can_be_printed_and_a_path_that_is_not_there_is_refused(tmp_path):
    strange = os.fsencode(tmp_path) + b"/\xff\n\x1b[31m.ipynb"
    with open(strange, "w") as file:
        json.dump(f.released("2.2"), file)
    (s,) = collect([tmp_path], tmp_path / "out")
    s.name.encode()
    assert s.name.isprintable() and read_cells(s.path)
    with pytest.raises(ValueError, match="nowhere' cannot be read"):
        collect(["nowhere"], tmp_path / "out")


def test_importing_all_this_brings_no_torch():
    code = "import sys, labkit_book.grader.__main__; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=f.ROOT).returncode == 0
