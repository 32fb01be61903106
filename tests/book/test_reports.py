"""The numbers in the sample reports come out of the commands beside them, and the points add up."""

import re
from pathlib import Path

import numpy as np
import pytest

from labkit.train.recorder import Recording
from labkit_book.planner.__main__ import main as plan

PAGE = (Path(__file__).parents[2] / "book" / "reports.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


def test_every_sample_has_the_points_of_its_criteria_and_these_are_at_most_what_there_is():
    most = [float(x) for x in re.findall(r"^\| \*\*[\w ]+\*\* \((\d)\)", PAGE, re.M)]
    assert sum(most) == 20
    samples = re.findall(r"^### A (?:good|middling) report: ([\d.]+) of 20(.*?)(?=^##)", PAGE, re.M | re.S)
    assert len(samples) == 6
    for said, text in samples:
        line = r"^- \*\*(?:question|method|evidence|argument|page) ([\d.]+)\*\*"
        given = list(map(float, re.findall(line, text, re.M)))
        assert sum(given) == float(said) and all(x <= of for x, of in zip(given, most, strict=True))


@pytest.mark.parametrize(("seed", "said"), [
    (23, ("19 of 60", "at most 0.00067", "2.5 ms of a 130.6 ms step", "13.6 % wait, 9.2 %")),
    (14, ("Everyone's noise",)),
    (28, ("16 of 60", "up to 0.019", "129.04 ms", "1186.18", "12.39", "13.3 % wait")),
])  # fmt: skip
def test_the_recordings_are_those_of_the_samples(seed, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named: dict = {}
    exec(BLOCKS[2].replace("recorded(23)", f"recorded({seed})"), named)
    found = str(Recording.of(named["work"], named["stay"], where=""))
    assert [words for words in said if words not in found] == []
    exec(BLOCKS[1], {})  # a student reads what an instructor wrote
    if seed == 23:
        medians = [f"{ms:.1f}" for ms in 1e3 * np.median(named["work"], axis=1)]
        assert f"| median work, ms | {' | '.join(medians).replace('107.1', '**107.1**')} |" in PAGE


@pytest.mark.parametrize(
    ("network", "method", "said"),
    [("50Gbit/s", "overlapped:25MB", "88.9 74.8"), ("25Gbit/s", "overlapped:25MB", "88.9 74.7"),
     ("10Gbit/s", "overlapped:25MB", "88.9 57.1"), ("50Gbit/s", "sync", "86.2 59.0")],
)  # fmt: skip
def test_the_planner_says_what_the_sample_says(network, method, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file, command = re.search(
        r"hosts.json: (.*?)\n> python -m labkit_book.planner (--.*?)\n> ```", PAGE, re.S
    ).groups()
    (tmp_path / "hosts.json").write_text(file.replace(">", ""))
    command = command.translate({62: "", 92: ""}).split()
    command[command.index("--network") + 1], command[command.index("--methods") + 1] = network, method
    plan(command)
    rows = re.findall(rf"^{method} +(?:8|256) .* ([\d.]+) %$", capsys.readouterr().out, re.M)
    assert rows[-2:] == said.split()
