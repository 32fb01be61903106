"""The page about performance shows what the benchmarks have stored, and a file that contradicts itself breaks the build."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import bench_page
import gpu_page
import pytest

ROOT = Path(__file__).parents[2]
STORED = sorted((ROOT / "book" / "results").glob("bench-*.json"))
PART = {
    "about": "Sums.", "command": "python tests/bench/run.py", "date": "2026-01-02", "where": "A|B, 2 cores, Linux, torch 9",
    "load": [0.5, 1.25], "commit": "abc123",
    "rows": [
        {"figure": "ring / gloo, n = 1e3", "ours": 0.003, "beside": 0.002, "ratio": 1.5, "target": 1.2, "met": False},
        {"figure": "  the same / a *bare* loop", "ours": 0.003, "beside": 0.003, "ratio": 1.0, "target": 1.1, "met": True},
        {"figure": "short, n = 1e+03", "ours": 1.5e-05, "beside": 0.0225, "ratio": 0.0006667, "target": None, "met": None},
    ],
}  # fmt: skip
ERRORS = {**PART, "rows": [
    {"figure": "median error", "ours": 0.0512, "beside": None, "ratio": 0.0512, "target": 0.05, "met": False},
]}  # fmt: skip
FILE = {"machine": "A|B, 2 cores", "parts": {"prediction": ERRORS, "all-reduce": PART}}


def stored(tmp_path: Path, file: dict) -> Path:
    path = tmp_path / "book" / "results" / "bench-a-b-2-cores.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(file))
    return path


def cells(text: str) -> list[list[str]]:
    """Of each row of the tables its cells, as they are read."""
    rows = [line for line in text.replace("\N{NO-BREAK SPACE}", " ").splitlines() if line.startswith("| ")]
    split = [[c.strip() for c in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    return [row for row in split if row[0] != "figure"]


def number(said: str) -> float:
    """1.50, 1/1,500 or 5.1 %."""
    if said.endswith("%"):
        return float(said[:-1]) / 100
    return 1 / float(said[2:].replace(",", "")) if said.startswith("1/") else float(said)


def test_what_is_stored_here_can_be_read_and_is_named_after_its_machine():
    for path in STORED:
        file = bench_page.read(path)
        slug = re.sub("[^a-z0-9]+", "-", file["machine"].lower()).strip("-")
        assert path.name == f"bench-{slug}.json" and file["parts"]


@pytest.mark.parametrize("path", STORED, ids=lambda p: p.stem)
def test_every_stored_ratio_is_on_the_page_with_machine_date_and_command(path):
    text, file = bench_page.current(), json.loads(path.read_text())
    section = text[text.index(f"## {file['machine']}") :].split("\n## ")[0]
    for name, part in file["parts"].items():
        words = section[section.lower().index(f"### {name}") :].split("\n### ")[0]
        assert f"`{part['command']}`" in words and part["date"] in words
        shown = cells(words)
        assert len(shown) == len(part["rows"])
        for row, (_, ratio, target, *_) in zip(part["rows"], shown, strict=True):
            # half of the last digit shown
            last = 0.0005 if ratio.endswith("%") else 0.005 * (row["ratio"] > 0.05)
            assert number(ratio) == pytest.approx(row["ratio"], rel=0.03, abs=last)
            assert (": met" in target, ": **missed**" in target) == (row["met"] is True, row["met"] is False)


def test_a_page_says_what_was_met_what_was_missed_by_how_much_and_what_was_not_measured(tmp_path):
    stored(tmp_path, FILE)
    text = bench_page.current(tmp_path)
    assert cells(text) == [
        ["ring / gloo, n = 1e3", "1.50", "1.20: **missed**, 1.2 ×", "3 ms", "2 ms"],
        [r"ring / a \*bare\* loop", "1.00", "1.10: met", "3 ms", "3 ms"],
        ["short, n = 1e3", "1/1,500", "", "15 µs", "22.5 ms"],
        ["median error", "5.1 %", "5.0 %: **missed**, 1.03 ×"],
    ]
    said = text.replace("\N{NO-BREAK SPACE}", " ")
    assert text.index("### All-reduce") < text.index("### Prediction")
    for part in [
        "## A|B, 2 cores", "Targets met: 1 of 3.", "at 1.2 × it, is *ring / gloo, n = 1e3*",
        "Not measured on this machine: launching, simulation, training, grading, what-if, why.",
        "`python tests/bench/run.py`, 2026-01-02; Linux, torch 9; load 0.5 before and 1.2 after; commit abc123.",
        "| figure | share | target |\n",
    ]:  # fmt: skip
        assert part in said, part


def test_times_are_in_the_unit_in_which_they_are_easiest_to_read():
    said = {
        0.0421: "42.1 ms",
        115.3: "115 s",
        3.2e-8: "0.032 µs",
        0.99996: "1 s",
        1372.0: "1,370 s",
        0.1: "100 ms",
    }
    for s, words in said.items():
        assert bench_page.seconds(s).replace("\N{NO-BREAK SPACE}", " ") == words


def test_two_machines_have_a_section_each_and_none_is_said(tmp_path):
    assert "Not measured yet" in bench_page.current(tmp_path)
    stored(tmp_path, FILE).with_name("bench-c.json").write_text(json.dumps({**FILE, "machine": "C, 8 cores"}))
    text = bench_page.current(tmp_path)
    assert text.index("\n## C, 8 cores") > text.index("## A|B") and "Not measured yet" not in text


LIES = {
    "met, and it was not": lambda f: f["parts"]["all-reduce"]["rows"][0].update(met=True),
    "missed, and it was not": lambda f: f["parts"]["all-reduce"]["rows"][1].update(met=False),
    "met, and nobody asked": lambda f: f["parts"]["all-reduce"]["rows"][2].update(met=True),
    "another ratio": lambda f: f["parts"]["all-reduce"]["rows"][0].update(ratio=1.1, met=True),
    "another share": lambda f: f["parts"]["prediction"]["rows"][0].update(ratio=0.04, met=True),
    "no command": lambda f: f["parts"]["all-reduce"].pop("command"),
    "no date": lambda f: f["parts"]["all-reduce"].pop("date"),
    "no machine": lambda f: f.pop("machine"),
    "no target": lambda f: f["parts"]["all-reduce"]["rows"][0].pop("target"),
    "a part nobody knows": lambda f: f["parts"].update(magic=PART),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_or_lacks_something_is_refused_by_name(tmp_path, lie):
    file = copy.deepcopy(FILE)
    assert bench_page.read(stored(tmp_path, file)) == FILE
    LIES[lie](file)
    stored(tmp_path, file)
    with pytest.raises(ValueError, match=r"bench-a-b-2-cores\.json: "):
        bench_page.current(tmp_path)


def test_the_page_asks_for_it_once_and_the_book_has_the_page():
    page = (ROOT / "book" / "performance.md").read_text()
    source = [page]
    bench_page.fill(None, "book/performance", source)
    assert page.count(bench_page.PLACE) == 1 and source == [
        page.replace(bench_page.PLACE, bench_page.current())
    ]
    assert "file: book/performance\n" in (ROOT / "_toc.yml").read_text()


def test_every_part_says_which_script_measures_it_and_make_bench_runs_them_all():
    makefile = (ROOT / "Makefile").read_text()
    for name, script in bench_page.PARTS.items():
        source = (ROOT / "tests" / "bench" / script).read_text()
        assert re.search(rf'part\(\s*"{name}"', source) and f"tests/bench/{script}\n" in makefile


def test_the_page_about_gpus_does_not_take_it_for_a_gpu(tmp_path):
    stored(tmp_path, FILE)
    (tmp_path / "_toc.yml").write_text("root: x\nparts: []\n")
    assert "Not measured yet" in gpu_page.current(tmp_path)


@pytest.mark.browser  # when the book has been built
@pytest.mark.parametrize("path", STORED, ids=lambda p: p.stem)
def test_the_built_page_is_made_of_the_stored_file(html, path):
    from bs4 import BeautifulSoup

    built = (html / "book" / "performance.html").read_text(encoding="utf-8")
    page = BeautifulSoup(built, "html.parser").article.text.replace("’", "'")
    file = json.loads(path.read_text())
    assert file["machine"] in page
    for part in file["parts"].values():
        assert part["command"] in page and part["date"] in page and part["about"] in page
