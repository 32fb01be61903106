"""What a benchmark prints is what it keeps, and the book reads it."""

import json
import sys

import bench_page
import pytest
import table

from labkit import machine

ROWS = [("ring / gloo, n = 1e3", 0.00201, 0.001, 1.1), ("ring / a bare loop", 0.001, 0.001, 1.1)]


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "RESULTS", tmp_path / "book" / "results")
    monkeypatch.setattr(sys, "argv", [str(table.ROOT / "tests" / "bench" / "run.py"), "--launches", "2"])
    return tmp_path / "book" / "results"


def measure(name, rows):
    with table.part(name, "It says what is compared.") as there:
        there += rows


def test_what_is_measured_is_printed_and_kept_and_can_be_read(results, capsys):
    measure("all-reduce", ROWS)
    (path,) = results.glob("bench-*.json")
    assert path.name.endswith(f"-{machine.cores()}-core{'s' * (machine.cores() > 1)}.json")
    kept = json.loads(path.read_text())["parts"]["all-reduce"]
    assert [bench_page.over(row) > 1 for row in kept["rows"]] == [True, False]
    assert kept["command"] == "python tests/bench/run.py --launches 2" and len(kept["load"]) == 2
    assert f"{kept['where']}, {kept['date']}" == machine.describe()
    said = capsys.readouterr().out
    assert [line.split()[-1] for line in said.splitlines() if line.startswith("ring")] == ["NO", "yes"]


def test_a_part_that_is_measured_again_replaces_its_own_and_no_other(results):
    measure("all-reduce", ROWS)
    measure("launching", ROWS[:1])
    measure("all-reduce", ROWS[1:])
    (path,) = results.glob("bench-*.json")
    parts = json.loads(path.read_text())["parts"]
    assert {name: len(part["rows"]) for name, part in parts.items()} == {"all-reduce": 1, "launching": 1}
