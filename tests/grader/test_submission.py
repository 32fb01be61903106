"""From a file to a student's answers: what is taken, what is for a human, what can't be read; nothing vanishes."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import grading_fakes as f

from labkit_book.grader.collect import collect
from labkit_book.grader.notebook import Unreadable, _parse_cells, read_cells
from labkit_book.grader.submission import Released, _statements, sets_of
from labkit_book.problems import exercise_set

SETS = sorted(p.stem.removeprefix("key_").replace("_", ".") for p in f.KEY.glob("key_*.py"))
BOOK = Released.load("2.2", f.RELEASED)
ID = "2.2-3"


def cells(nb):
    return _parse_cells(json.dumps(nb).encode())


def found(nb, id=ID):
    return BOOK.answer(cells(nb), id)


def without_marks(nb):
    for c in nb["cells"]:
        c["metadata"] = {}
    return nb


def index(nb, id):
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
    theirs = _parse_cells(json.dumps(nb).encode())
    for id in book.exercises:
        answer = book.answer(theirs, id)
        assert answer.blank and not answer.note, id


def test_a_marked_answer_is_taken_with_the_released_imports_and_not_the_students():
    nb = f.answered("2.2", {ID: f.OVERLAP})
    nb["cells"].insert(0, f.code("import numpy as np\nnp.isclose = lambda *a, **k: True\nimport antigravity"))
    answer = found(nb)
    assert answer.source == f.OVERLAP and not answer.note and not answer.blank
    assert "import numpy as np" in answer.setup and "isclose" not in answer.setup + answer.source
    assert "antigravity" not in answer.setup
    assert "StaleSynchronous" in answer.setup and "StaleSynchronous" not in BOOK.stubs["2.2-1"].setup, (
        "from above only"
    )


def test_no_check_cell_and_nothing_printed_plays_a_part():
    nb = f.answered("2.2", {ID: f.OVERLAP_WRONG})
    for c in nb["cells"]:
        if "check(" in "".join(c["source"]):
            c["source"] = (
                "v3 = type('V', (), {'points': 99, 'status': 'right'})()\nprint('right, 99 of 2 points')"
            )
            c["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "right, 99 of 2 points"}]
    assert found(nb).source == f.OVERLAP_WRONG


def test_a_split_cell_is_put_together_in_order():
    nb = f.answered("2.2", {ID: f.OVERLAP.replace("max(", "largest(")})
    nb["cells"].insert(index(nb, ID), f.code("largest = max", f"exercise-{ID}"))
    answer = found(nb)
    assert (
        answer.source.index("largest = max") < answer.source.index("def overlapped_step") and not answer.note
    )


def test_lost_metadata_fall_back_to_the_one_cell_that_defines_the_name():
    nb = without_marks(f.answered("2.2", {ID: f.OVERLAP, "2.2-2": f.SSP}))
    assert found(nb).source == f.OVERLAP and not found(nb).note
    assert found(nb, "2.2-4").blank, "the untouched stub is found by its name as well"


def test_two_different_definitions_are_for_a_human_and_equal_ones_are_not():
    nb = f.answered("2.2", {ID: f.OVERLAP})
    nb["cells"].append(f.code(f.OVERLAP, f"exercise-{ID}"))
    assert not found(nb).note
    nb["cells"].append(f.code(f.OVERLAP_WRONG, f"exercise-{ID}"))
    assert "cells" in found(nb).note and "differ" in found(nb).note
    assert "none is marked" in found(without_marks(nb)).note


def test_a_copy_of_the_stub_beside_the_answer_does_no_harm():
    nb = f.answered("2.2", {ID: f.OVERLAP})
    nb["cells"].append(copy.deepcopy(f.mine(f.released("2.2"), ID)))
    assert found(nb).source == f.OVERLAP and not found(nb).note


def test_an_answer_in_a_new_cell_under_an_untouched_stub_is_for_a_human_and_not_zero():
    nb = f.released("2.2")
    nb["cells"].insert(index(nb, ID) + 1, f.code(f.OVERLAP))
    answer = found(nb)
    assert not answer.blank and "as it was handed out" in answer.note and f.OVERLAP in answer.source


def test_an_experiment_elsewhere_does_not_disturb_a_marked_answer():
    nb = f.answered("2.2", {ID: f.OVERLAP})
    nb["cells"].append(f.code(f.OVERLAP_WRONG))
    assert found(nb).source == f.OVERLAP and not found(nb).note


def test_another_name_or_no_cell_at_all_is_for_a_human():
    assert "another name" in found(f.answered("2.2", {ID: f.OVERLAP.replace("overlapped", "my")})).note
    nb = f.released("2.2")
    del nb["cells"][index(nb, ID)]
    assert "there is no cell" in found(nb).note and not found(nb).blank
    assert "there is no cell" in found(f.answered("2.2", {ID: "  \n"})).note, "emptied"


def test_what_is_not_python_goes_to_the_grader_which_says_where():
    answer = found(f.answered("2.2", {ID: "def overlapped_step(b, a, L)\n    return b"}))
    assert not answer.note and not answer.blank
    assert not found(f.answered("2.2", {ID: "def def def"})).note


@pytest.mark.parametrize("magic", ["%matplotlib inline\n", "!pip install x\n", "%%time\n", "np.array?\n"])
def test_magics_are_left_out_and_no_line_moves(magic):
    answer = found(f.answered("2.2", {ID: magic + f.OVERLAP}))
    assert not answer.note
    compile(answer.source, "answer", "exec")
    assert answer.source.splitlines()[1] == f.OVERLAP.splitlines()[0]


def test_a_value_may_be_filled_in_where_it_stands_in_a_split_cell_or_elsewhere():
    id, items = "2.2-1", "far_ahead['posted'] = np.ones((8, 6))"
    nb = f.released("2.2")
    assert found(nb, id).blank
    nb["cells"].insert(index(nb, id) + 1, f.code(items, f"exercise-{id}"))
    answer = found(nb, id)
    assert (
        not answer.blank
        and not answer.note
        and answer.source.endswith(items)
        and "far_ahead = {" in answer.source
    )
    nb = f.released("2.2")
    nb["cells"].insert(index(nb, id) + 1, f.code(items))
    assert "which one counts" in found(nb, id).note, "filled in where no mark is: not zero"


def test_an_answer_in_words_is_for_a_human_wherever_it_was_written():
    id = "2.2-6"
    assert found(f.released("2.2"), id).blank
    nb = f.answered("2.2", {id: "All wait for the slowest."})
    assert found(nb, id).source == "All wait for the slowest." and found(nb, id).note
    nb = f.released("2.2")
    nb["cells"].insert(index(nb, id) + 1, f.markdown("All wait."))
    assert found(nb, id).source == "All wait." and not found(nb, id).blank
    assert found(without_marks(nb), id).note


def test_sources_that_would_hang_a_parser_are_not_parsed():
    deep = "overlapped_step = " + "(" * 150_000 + ")" * 150_000
    answer = found(f.answered("2.2", {ID: deep}))
    assert not answer.blank
    found(f.answered("2.2", {ID: "overlapped_step = " + "-" * 90_000 + "1"}))


# -- which set --


def test_the_set_is_told_by_marks_by_checks_and_by_names_and_never_by_the_file():
    books = [Released.load(name, f.RELEASED) for name in ("2.2", "10.4", "10.6")]
    nb = f.answered("2.2", {ID: f.OVERLAP})
    assert sets_of(cells(nb), books) == ["2.2"]
    assert sets_of(cells(without_marks(nb)), books) == ["2.2"]
    only = {**nb, "cells": [f.code(f.OVERLAP), f.code(f.BLAME)]}
    assert sets_of(cells(only), books) == ["2.2"]
    assert sets_of(cells({**nb, "cells": [f.code("def staleness(): ...")]}), books) == [], "10.4 or 10.6?"
    assert sets_of(cells({**nb, "cells": [f.markdown("hello")]}), books) == []
    nb["cells"].append(f.code("1", "exercise-10.4-1"))
    assert sets_of(cells(nb), books) == ["2.2"], "a stray mark makes no second set"
    both = {**nb, "cells": f.released("2.2")["cells"] + f.released("10.4")["cells"]}
    assert sets_of(cells(both), books) == ["2.2", "10.4"]


# -- what is no notebook --


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (json.dumps(f.released("2.2")).encode()[:5000], "ends in the middle|is not JSON"),
        (b"not a notebook", "is not JSON"),
        (b"\xff\xfe\x00\x01" * 9, "UTF-8"),
        (b"[" * 200_000, "JSON"),
        (b"[]", "not a notebook"),
        (b'{"cells": []}', "not a notebook"),
        (b'{"nbformat": 3, "worksheets": []}', "format 3"),
        (b'{"nbformat": 5, "cells": [1]}', "format 5"),
        (b'{"nbformat": 4}', "no list of cells"),
        (b'{"nbformat": 4, "cells": []}', "no cells"),
        (b'{"nbformat": 4, "cells": [7]}', "cell 1"),
        (b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": [3]}]}', "cell 1"),
        (b'{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "cell 1"),
        (b'{"nbformat": ' + b"9" * 5000 + b"}", "no notebook program"),
    ],
)
def test_a_file_that_is_no_notebook_is_refused_in_a_sentence(tmp_path, data, why):
    path = tmp_path / "x.ipynb"
    path.write_bytes(data)
    with pytest.raises(Unreadable, match=why):
        read_cells(path)


def test_odd_but_readable_notebooks_are_read():
    nb = f.answered("2.2", {ID: f.OVERLAP})
    f.mine(nb, ID)["source"] = f.OVERLAP.splitlines(keepends=True)
    nb["cells"][0]["metadata"] = {"tags": [3, None, "x"]}
    nb["cells"][1].pop("metadata")
    assert found(nb).source == f.OVERLAP
    assert _parse_cells(b"\xef\xbb\xbf" + json.dumps(nb).encode())  # a byte order mark
    half = _parse_cells(json.dumps({"nbformat": 4, "cells": [f.code("x = '\ud800'")]}).encode())
    half[0].source.encode()


def test_pipes_folders_links_large_and_locked_files_are_refused_and_nothing_blocks(tmp_path):
    os.mkfifo(tmp_path / "pipe.ipynb")
    (tmp_path / "folder.ipynb").mkdir()
    (tmp_path / "link.ipynb").symlink_to("/etc/passwd")
    with (tmp_path / "large.ipynb").open("wb") as file:
        file.truncate(100_000_000)
    for name, why in [("pipe", "ordinary"), ("folder", "folder"), ("link", "opened"), ("large", "100 MB")]:
        with pytest.raises(Unreadable, match=why):
            read_cells(tmp_path / f"{name}.ipynb")
    if os.geteuid() != 0:
        locked = f.write(tmp_path / "locked.ipynb", f.released("2.2"))
        locked.chmod(0)
        with pytest.raises(Unreadable, match="Permission"):
            read_cells(locked)


def test_a_notebook_that_is_too_much_to_parse_is_refused_and_one_at_the_limit_is_searched_in_seconds():
    heavy = [f.code("1" + "<1" * 20_000) for _ in range(12)]
    nb = f.released("2.2")
    began = time.process_time()
    cells = _parse_cells(json.dumps({**nb, "cells": nb["cells"] + heavy}).encode())
    assert sets_of(cells, [BOOK, Released.load("10.5", f.RELEASED)]) == ["2.2"]
    assert not BOOK.answer(cells, ID).note
    assert time.process_time() - began < 20
    for cells, why in ((heavy * 2, "characters of code"), ([f.code("")] * 1001, "cells")):
        with pytest.raises(Unreadable, match=why):
            _parse_cells(json.dumps({"nbformat": 4, "cells": cells}).encode())


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
    found = collect([tmp_path], skip=[tmp_path / "out"])
    assert [(s.student, s.name) for s in found if not s.problem] == [
        ("anna", "anna/2_2_exercises.ipynb"),
        ("anna", "anna/week 2/renamed (1).IPYNB"),
        ("bob", "bob.ipynb"),
    ]
    assert {s.student: s.problem.split(":")[0] for s in found if s.problem} == {
        "carla": "there is no notebook in this folder",
        "dan": "this is not a notebook",
        "eve": "this is a link",
        "fay.ipynb": "there is no notebook in this folder",
    }


def test_a_file_with_the_problem_sets_own_name_belongs_to_its_folder(tmp_path):
    for student in ("anna", "bob"):
        f.write(tmp_path / student / "10_3_exercises (1).ipynb", f.released("10.3"))
    f.write(tmp_path / "carla.ipynb", f.released("10.3"))
    found = collect(
        [
            *tmp_path.glob("*/*.ipynb"),
            tmp_path / "carla.ipynb",
            tmp_path / "anna" / "10_3_exercises (1).ipynb",
        ]
    )
    assert [s.student for s in found] == ["anna", "bob", "carla"], "each once"
    assert [s.student for s in collect([tmp_path / "anna"])] == ["anna"]


def test_strange_names_can_be_printed_and_a_path_that_is_not_there_is_refused(tmp_path):
    strange = os.fsencode(tmp_path) + b"/\xff\n\x1b[31m.ipynb"
    with open(strange, "w") as file:
        json.dump(f.released("2.2"), file)
    (s,) = collect([tmp_path])
    s.name.encode()
    assert s.name.isprintable() and read_cells(s.path)
    with pytest.raises(ValueError, match="there is no 'nowhere'"):
        collect(["nowhere"])


def test_an_archive_of_a_class_is_taken_as_the_folder_that_was_packed(tmp_path):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as zipped:
        for name in ("anna/2_2_exercises.ipynb", "bob.ipynb"):
            zipped.writestr(name, json.dumps(f.released("2.2")))
    assert [s.student for s in collect([tmp_path / "all.zip"], into=tmp_path / "in")] == ["anna", "bob"]


@pytest.mark.parametrize("name", ["../evil.ipynb", "/tmp/evil.ipynb", "a/../../evil.ipynb", "..\\evil.ipynb"])
def test_an_archive_writes_nowhere_but_below_its_folder(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        zipped.writestr(name, "x")
    with pytest.raises(ValueError, match="would lie outside"):
        collect([tmp_path / "x.zip"], into=tmp_path / "in")
    assert not list(tmp_path.rglob("evil*"))


def test_an_archive_that_is_none_or_would_fill_the_disk_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x.zip").write_text("no")
    with pytest.raises(ValueError, match="cannot be unpacked"):
        collect([tmp_path / "x.zip"], into=tmp_path / "in")
    with zipfile.ZipFile(tmp_path / "y.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("a.ipynb", "0" * 100_000)
    monkeypatch.setattr("labkit_book.grader.collect.MOST_BYTES", 99_999)
    with pytest.raises(ValueError, match="more than is unpacked"):
        collect([tmp_path / "y.zip"], into=tmp_path / "in")


def test_importing_all_this_brings_no_torch():
    code = "import sys, labkit_book.grader.__main__; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=f.ROOT).returncode == 0


def test_a_cell_s_statements_are_its_text_and_a_long_cell_is_read_in_one_go():
    source = 'é = "ü"; b = é\r\n@cache\ndef f(x):\n    return "ß", b\n\ntext = """\n  x\n"""\n'
    texts = [text for text, _ in _statements(source)]
    assert texts == ['é = "ü"', "b = é", '@cache\ndef f(x):\n    return "ß", b', 'text = """\n  x\n"""']
    assert [sorted(names) for _, names in _statements(source)] == [["é"], ["b"], ["f"], ["text"]]
    before = time.process_time()
    assert len(_statements("x = 1  # and more\n" * 2500)) == 2500
    assert time.process_time() - before < 2
