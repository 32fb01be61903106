"""The page about performance shows what the benchmarks have stored, ratios and verdicts included."""

import json
import re
from pathlib import Path

import bench_page
import pytest

ROOT = Path(__file__).parents[2]
STORED = sorted((ROOT / "book" / "results").glob("bench-*.json"))
PART = {
    "about": "Sums.", "command": "python tests/bench/run.py", "date": "2026-01-02", "where": "A|B, 2 cores, Linux, torch 9",
    "load": [0.5, 1.25], "commit": "abc123",
    "rows": [
        {"figure": "ring / gloo, n = 1e3", "ours": 0.003, "beside": 0.002, "target": 1.2},
        {"figure": "  ring / a *bare* loop", "ours": 0.003, "beside": 0.003, "target": 1.1},
        {"figure": "a hair above, n = 1e+03", "ours": 1.51e-05, "beside": 0.0225, "target": 1 / 1500},
    ],
}  # fmt: skip
FILE = {"machine": "A|B, 2 cores", "parts": {"all-reduce": PART}}


def test_what_is_stored_here_can_be_read_is_named_after_its_machine_and_every_part_has_its_script():
    for path in STORED:
        file = json.loads(path.read_text(encoding="utf-8"))
        slug = re.sub("[^a-z0-9]+", "-", file["machine"].lower()).strip("-")
        assert path.name == f"bench-{slug}.json" and file["parts"]
    makefile = (ROOT / "Makefile").read_text()
    for name, script in bench_page.PARTS.items():
        source = (ROOT / "tests" / "bench" / script).read_text()
        assert re.search(rf'part\(\s*"{name}"', source) and f"tests/bench/{script}\n" in makefile


def test_a_page_says_what_was_met_what_was_missed_by_how_much_and_what_was_not_measured(tmp_path):
    assert "Nobody has run" in bench_page.current(tmp_path)
    results = tmp_path / "book" / "results"
    results.mkdir(parents=True)
    (results / "bench-a-b-2-cores.json").write_text(json.dumps(FILE))
    said = bench_page.current(tmp_path).replace("\N{NO-BREAK SPACE}", " ")
    for part in [
        "● A|B, 2 cores", "A|B, 2 cores: 1 of 3 targets met; not measured: launching, simulation, training",
        "| ring / gloo, n = 1e3 | 1.50 | 1.20, **missed** | 3 ms | 2 ms |",
        r"| ring / a \*bare\* loop | 1.00 | 1.10 | 3 ms | 3 ms |",
        "| a hair above, n = 1e3 | 1/1,490 | 1/1,500, **missed** | 15.1 µs | 22.5 ms |",
        "## All-reduce", ">ring / a *bare* loop</text>",
        "`python tests/bench/run.py`, 2026-01-02; Linux, torch 9; load 0.5 before and 1.2 after; commit abc123.",
    ]:  # fmt: skip
        assert part in said, part


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
