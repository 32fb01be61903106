"""A lab is known by its number, an appendix by its letter; every old address still leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import contents
import pytest
import yaml

ROOT = contents.ROOT


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("10_5_all_reduce", "10.5"),
        ("2_2_barriers", "2.2"),
        ("a_sharded_training", "A"),
        ("before_the_first_lab", ""),
    ],
)
def test_a_lab_s_number_is_read_off_its_file(name: str, number: str) -> None:
    assert contents.number(name) == number


def test_a_second_lab_of_a_number_is_told_from_the_first() -> None:
    labs = ["10_7_fewer_bytes", "10_7_finale", "a_sharded_training"]
    assert [contents.label(name, labs) for name in labs] == ["10.7", "10.7 finale", "A"]


def test_every_lab_there_is_stands_in_the_table_of_contents() -> None:
    there = {path.stem for path in (ROOT / "notebooks").glob("*.md") if contents.number(path.stem)}
    assert there == set(contents.labs())


def test_a_lab_s_title_begins_with_its_number() -> None:
    for name in contents.labs():
        title = re.search(r"^# (.+)$", (ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8"), re.M)
        assert title and title[1].startswith(f"{contents.number(name)} "), name


def test_no_page_stands_where_an_old_address_leads_on_and_all_lead_to_pages() -> None:
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    for old, new in config["sphinx"]["config"]["redirects"].items():
        assert not (ROOT / f"{old}.md").exists()
        page = ROOT / Path(old).parent / new
        assert page.with_suffix(".ipynb").exists() or page.with_suffix(".md").exists()


@pytest.mark.browser
def test_an_old_address_leads_on(window, site) -> None:
    page = window()
    page.goto(f"{site}notebooks/12_failures.html")
    page.wait_for_url("**/notebooks/b_failures.html")
