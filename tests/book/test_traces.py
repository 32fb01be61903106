"""What was taken from others' clusters is small, says where it is from, and is what the labs read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import contents
import numpy as np
import pytest

FOLDER = contents.ROOT / "labkit_book" / "labs" / "traces"
DATA = sorted([*FOLDER.glob("*.csv"), *FOLDER.glob("*.npz")])
SAID = ["what", "source", "commit", "licence", "dropped", "made by"]


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_a_trace_says_whose_it_is_and_its_licence_stands_beside_it(path: Path) -> None:
    if path.suffix == ".csv":
        text = path.read_text(encoding="utf-8")
        said = dict(re.findall(r"^# ([\w ]+): (.+)$", text, re.M))
        assert len({line.count(",") for line in text.splitlines() if not line.startswith("#")}) == 1
    else:
        said = json.loads(str(np.load(path)["about"]))
    assert list(said) == SAID and re.fullmatch(r"[0-9a-f]{40}", said["commit"])
    assert f"== {path.name} (" in (FOLDER / "LICENSES.txt").read_text(encoding="utf-8")


def test_all_together_are_small_and_each_is_read_by_a_lab() -> None:
    read = set()
    for name in contents.labs():
        text = (contents.ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8")
        read |= set(re.findall(r'"traces/([\w.]+)"', text))
    assert {path.name for path in DATA} == read
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 3_000_000
