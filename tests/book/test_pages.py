"""What the book's pages show beside the labs: complete, from where it says, and in the figures' colours."""

import json
import re
from pathlib import Path

import closure
import contents
import made
import numpy as np
import pytest
import sweeps
import yaml
from bs4 import BeautifulSoup

from labkit.show import palette
from labkit_book.problems.catalogue import exercise_set

ROOT = contents.ROOT
STATIC = ROOT / "book" / "_static"
TRACES = ROOT / "labkit_book" / "labs" / "traces"
DATA = sorted([*TRACES.glob("*.csv"), *TRACES.glob("*.npz")])
PLAN = (ROOT / "book" / "teaching.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", made.PAGES)
def test_every_place_of_a_page_that_is_made_is_filled(page: str) -> None:
    written = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    filled = made.filled(page, written)
    assert len(filled) > len(written) and "{{" not in filled and "\n% " not in filled
    with pytest.raises(ValueError, match=f"{page}.md must have the place"):
        made.filled(page, "# Nothing\n")


def test_every_lab_there_is_stands_in_the_table_of_contents() -> None:
    there = {path.stem for path in (ROOT / "notebooks").glob("*.md") if contents.number(path.stem)}
    assert there == set(contents.labs())


def test_no_page_stands_where_an_old_address_leads_on_and_all_lead_to_pages() -> None:
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    for old, new in config["sphinx"]["config"]["redirects"].items():
        page = ROOT / Path(old).parent / new
        assert not (ROOT / f"{old}.md").exists()
        assert page.with_suffix(".ipynb").exists() or page.with_suffix(".md").exists()


def test_one_colour_has_one_meaning_in_figures_and_pages() -> None:
    css = (STATIC / "labkit.css").read_text(encoding="utf-8")
    root = re.search(r":root \{(.*?)\}", css, re.DOTALL).group(1)  # type: ignore[union-attr]
    ours = {name.upper(): value.upper() for name, value in re.findall(r"--labkit-(\w+): (#\w{6});", root)}
    names = ["INK", "PAPER", "COMPUTE", "WAIT", "COMMUNICATE", "PREDICTED", "SIMULATED", "MEASURED", "GUESS"]
    assert ours == {name: getattr(palette, name).upper() for name in names}


def test_the_cover_s_caption_has_the_stored_numbers_and_names_the_machine() -> None:
    found = json.loads((STATIC / "cover.json").read_text(encoding="utf-8"))
    cover = BeautifulSoup((ROOT / "book" / "index.md").read_text(encoding="utf-8"), "html.parser")
    caption = cover.find("figcaption").get_text()  # type: ignore[union-attr]
    assert found["where"][1:] in caption and re.search(r"\d{4}-\d\d-\d\d", caption)
    assert all(f"{series['measured'][-1]:,.0f} ms" in caption for series in found["ways"].values())


def test_a_plan_asks_a_set_for_kinds_it_has_and_gives_seconds_that_were_noted() -> None:
    asked = re.findall(r"set ([\d.]+|[AB]):? ((?:\*\w+\*(?:, )?)+)", PLAN)
    for name, kinds in asked:
        assert set(re.findall(r"\w+", kinds)) <= {e.kind for e in exercise_set(name).values()}, name
    noted = json.loads((ROOT / "book" / "run_times.json").read_text(encoding="utf-8"))
    given = re.findall(r"</notebooks/(\w+)>` \((\d+) s\)", PLAN)
    assert asked and given
    assert [lab for lab, s in given if not 0.5 < int(s) / noted[lab]["seconds"] < 2.0] == []


@pytest.mark.parametrize(
    "name", sorted({p.stem for f in (sweeps.FOLDER, sweeps.STORED) for p in f.glob("*.*")})
)
def test_a_stored_sweep_says_where_and_by_which_script_it_was_made(name: str) -> None:
    found = json.loads((sweeps.STORED / f"{name}.json").read_text(encoding="utf-8"))
    assert found["script_sha256"] == closure.digest((sweeps.FOLDER / f"{name}.py").read_bytes()), (
        f"run: {found['command']}"
    )
    assert found["found"] and found["seconds"] > 0 and " core" in found["where"]


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_a_trace_of_others_says_whose_it_is_and_its_licence_stands_beside_it(path: Path) -> None:
    if path.suffix == ".csv":
        text = path.read_text(encoding="utf-8")
        said = dict(re.findall(r"^# ([\w ]+): (.+)$", text, re.M))
        assert len({line.count(",") for line in text.splitlines() if not line.startswith("#")}) == 1
    else:
        said = json.loads(str(np.load(path)["about"]))
    assert list(said) == ["what", "source", "commit", "licence", "dropped", "made by"]
    assert re.fullmatch(r"[0-9a-f]{40}", said["commit"])
    assert f"== {path.name} (" in (TRACES / "LICENSES.txt").read_text(encoding="utf-8")


def test_all_traces_are_small_together_and_each_is_read_by_a_lab() -> None:
    read = {name for text in contents.texts().values() for name in re.findall(r'"traces/([\w.]+)"', text)}
    assert {path.name for path in DATA} == read
    assert sum(path.stat().st_size for path in TRACES.iterdir() if path.is_file()) < 3_000_000
