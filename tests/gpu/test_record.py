"""`make gpu`: whatever one of its parts does, the others run, and the file says what became of each."""

import json
import os
import sys
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import record

ORPHAN = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
print("started", child.pid, flush=True)
time.sleep({})
"""


def python(name, limit_s, code):
    return record.Part(name, limit_s, [sys.executable, "-c", code])


def test_a_part_that_hangs_or_crashes_or_lacks_a_package_is_recorded_and_the_next_one_runs(tmp_path):
    parts = [
        python("hangs", 2, ORPHAN.format(60)),
        python("leaves a process behind", 5, ORPHAN.format(0)),
        python("crashes", 5, "import os; os.abort()"),
        python("lacks a package", 5, "import no_such_package"),
        record.Part("lacks pytest", 5, [sys.executable, "-m", "no_such_pytest"]),
        python("finds something", 5, "import json; print(json.dumps({'seconds': 3}))"),
    ]
    written, began = [], time.monotonic()
    lines = record.all_of(parts, os.environ, lambda lines: written.append(json.loads(json.dumps(lines))))
    assert time.monotonic() - began < 15
    assert [(line["part"], line["ended"]) for line in lines] == [
        ("hangs", "at its limit"),
        ("leaves a process behind", "well"),
        ("crashes", "badly"),
        ("lacks a package", "not run"),
        ("lacks pytest", "not run"),
        ("finds something", "well"),
    ]
    assert "-6" in lines[2]["why"] and lines[3]["why"] == "no_such_package is not installed there"
    assert lines[4]["why"] == "no_such_pytest is not installed there"
    assert lines[5]["found"] == [{"seconds": 3}]
    assert [len(each) for each in written] == [1, 2, 3, 4, 5, 6], "the file is written after every part"
    started = int(lines[0]["why"].split()[-1])
    left = psutil.pid_exists(started) and psutil.Process(started).status() != psutil.STATUS_ZOMBIE
    assert not left, "a process group of its own does not save a process"


def test_all_parts_end_within_the_ten_minutes_and_the_labs_get_what_is_left():
    for gpus in (0, 1, 8):
        parts = record.parts("cuda", gpus)
        used = record.MACHINE_S + sum(part.limit_s for part in parts)
        assert used < record.WHOLE_S - 10 and len({part.name for part in parts}) == len(parts)
        assert parts[0].name.startswith("messages")
    left = iter([100.0, 20.0, 3.0, *[2.0] * 100])
    assert [part.limit_s for part in record.cells_of("cuda", lambda: next(left))] == [record.LAB_S, 20.0]


@pytest.mark.weekly
def test_the_parts_that_run_tests_find_them_and_skip_where_there_is_no_gpu():
    """Though they leave the project's own settings of pytest aside."""
    part = record.tests("the clock", 60, record.CLOCK)
    with record.environment(0) as env:
        line = record.run(part, env)
    assert line["ended"] == "not run" and "GPU" in line["why"], line
