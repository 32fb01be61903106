"""What a benchmark prints is what it keeps, and the book reads it."""

from __future__ import annotations

import json
import sys

import bench_page
import pytest
import table

from labkit import machine

ROWS = [
    ("ring / gloo, n = 1e3", 0.00201, 0.001, 1.1),
    ("  the same / a bare loop", 0.001, 0.001, None),
    ("error", 0.04, None, 0.05),
    ("a draw / all draws", 1e-6, 0.5, 1e-5),
]


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
    kept = bench_page.read(path)["parts"]["all-reduce"]
    assert [row["met"] for row in kept["rows"]] == [False, None, True, True]
    assert [row["ratio"] for row in kept["rows"]] == [2.01, 1.0, 0.04, 2e-6]
    assert kept["command"] == "python tests/bench/run.py --launches 2" and len(kept["load"]) == 2
    assert kept["date"] in machine.describe() and f"{kept['where']}, {kept['date']}" == machine.describe()
    said = capsys.readouterr().out
    assert len(said.splitlines()) == len(ROWS) + 5 and machine.describe() in said
    assert [line.split()[-1] for line in said.splitlines() if line.startswith(("ring", "error"))] == [
        "NO",
        "yes",
    ]


def test_a_part_that_is_measured_again_replaces_its_own_and_no_other(results):
    measure("all-reduce", ROWS)
    measure("launching", ROWS[:1])
    measure("all-reduce", ROWS[2:3])
    (path,) = results.glob("bench-*.json")
    parts = bench_page.read(path)["parts"]
    assert {name: len(part["rows"]) for name, part in parts.items()} == {"all-reduce": 1, "launching": 1}


def test_nothing_is_kept_of_what_broke_off(results):
    with pytest.raises(ZeroDivisionError), table.part("training", "It ends early.") as rows:
        rows += ROWS
        raise ZeroDivisionError
    assert not results.exists()


def test_ratio_and_met_follow_from_the_digits_that_are_kept():
    row = table.entry("a hair above", 1.10004, 1.0, 1.1)
    assert row["ours"] == 1.1 and row["ratio"] == 1.1 and row["met"]
    assert (
        not table.entry("above", 1.102, 1.0, 1.1)["met"] and table.entry("none wrong", 0.0, None, 0.0)["met"]
    )


def test_the_commit_is_that_of_the_sources_and_says_if_they_have_changed(monkeypatch, tmp_path):
    (tmp_path / "x").write_text("")
    monkeypatch.setattr(table, "ROOT", tmp_path)
    assert table.commit() == "unknown"

    def git(*words):
        import subprocess

        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    git("init")
    git("add", "x")
    git("commit", "-m", "x")
    clean = table.commit()
    assert clean.isalnum()
    results = tmp_path / "book" / "results"
    results.mkdir(parents=True)
    (results / "bench-a.json").write_text(json.dumps({}))
    git("add", "book")
    assert table.commit() == clean
    (tmp_path / "x").write_text("y")
    assert table.commit() == f"{clean} with changes"
