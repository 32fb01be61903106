"""What a release says of itself: one version everywhere, a citation that can be cited, a changelog that has it."""

import re
import tomllib
from pathlib import Path

import yaml

import labkit

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_one_version_and_one_licence_everywhere() -> None:
    assert labkit.__version__ == PROJECT["version"] == str(CITATION["version"])
    assert CITATION["license"] == PROJECT["license"]


def test_the_changelog_has_this_version_with_the_citation_s_date_newest_first() -> None:
    heads = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", CHANGELOG, re.M)
    assert heads[0] == ("Unreleased", "")
    assert heads[1] == (PROJECT["version"], CITATION["date-released"])
    dates = [date for _, date in heads[1:]]
    assert dates == sorted(dates, reverse=True)
    kinds = set(re.findall(r"^### (.+)$", CHANGELOG, re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
