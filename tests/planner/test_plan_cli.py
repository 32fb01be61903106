"""``python -m labkit_book.planner``: what it prints, what it refuses, and how options, example and job file combine."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from labkit_book.planner import Case, plan, read_sweep
from labkit_book.planner.__main__ import main
from labkit_book.planner.report import _unit, as_text

SWEEP = Path(__file__).parent / "layouts" / "nccl-tests.txt"
WHOLE = ["--parameters", "25.6M", "--b", "32", "--example-ms", "4", "--network", "3.125GB/s,20us", "--K", "1-64",
         "--examples", "28.672M", "--critical-batch", "4096", "--methods", "sync,local:8"]  # fmt: skip
CASE = Case(
    parameters=25_600_000, b_examples=32, example_s=4e-3, alpha_s=20e-6, beta_bytes_per_s=3.125e9, S_min_steps=7000,
    B_crit_examples=4096, K_workers=[1, 2, 4, 8, 16, 32, 64], methods=["sync", "local:8"],
)  # fmt: skip


def said(capsys, *argv):
    status = main([str(each) for each in argv])
    return status, *capsys.readouterr()


def test_it_plans_the_case_that_was_typed_in_100_columns(capsys):
    status, out, err = said(capsys, *WHOLE)
    assert status == 0 and not err and out == as_text(plan(CASE)) + "\n"
    assert max(map(len, out.splitlines())) <= 100
    for part in ("Answer: local:8 with K = 64", "Why: ", "Its bill: ", "ties with", "one input changed"):
        assert part in out


def test_times_are_told_in_a_unit_of_which_there_are_three_at_least():
    day = 24 * 60 * 60.0
    assert [_unit(n * day) for n in (3, 2.9)] == [("d", day), ("h", day / 24)]
    assert [_unit(n * 60.0) for n in (180, 179, 2.9)] == [("h", 3600.0), ("min", 60.0), ("s", 1.0)]


@pytest.mark.parametrize(
    "more", [[], ["--K", "16"], ["--K", "4", "--network", str(SWEEP), "--methods", "sync"]], ids=len
)
def test_the_example_prints_the_command_whose_answer_follows(capsys, more):
    status, out, _ = said(capsys, "--example", *more)
    command, _, answer = out.partition("\n\n")
    assert status == 0 and answer.startswith("Answer: ") and "(0 to 0 " not in answer
    words = shlex.split(command)
    for option, value in zip(more[::2], more[1::2], strict=True):
        assert words[words.index(option) + 1] == value and words.count(option) == 1
    assert said(capsys, *words[3:])[1] == answer


def test_what_is_typed_takes_the_place_of_what_the_file_says_in_whatever_way(capsys, tmp_path):
    file = tmp_path / "job.json"
    kept = {
        "parameters": 10**6, "b_examples": 8, "example_s": 0.01, "K_workers": [2, 4], "beta_bytes_per_s": 1e9,
        "S_min_steps": 100, "B_crit_examples": 64, "spread": 0.1, "methods": ["sync"], "transport": "measured",
    }  # fmt: skip
    file.write_text(json.dumps(kept))
    case = {"parameters": 10**6, "example_s": 0.01, "spread": 0.1, "methods": ["sync"]}
    typed = ["--from", file, "--b", "16", "--K", "8", "--examples", "1M", "--network", SWEEP]
    sweep = read_sweep(SWEEP.read_text())
    expected = Case(**case, b_examples=16, K_workers=8, total_examples=1e6, sweep=sweep)
    assert said(capsys, *typed)[1] == as_text(plan(expected)) + "\n"
    again = Case(**kept | {"beta_bytes_per_s": 5e8})
    assert said(capsys, "--from", file, "--network", "500MB/s")[1] == as_text(plan(again)) + "\n"


def test_a_rate_alone_is_a_data_sheet_s_and_has_a_range_whose_middle_is_said(capsys):
    out = said(capsys, *WHOLE, "--network", "25Gbit/s", "--methods", "sync")[1]
    middle, low, high = map(float, re.findall(r"([\d.]+)(?: min)? [(t]o? ?([\d.]+) to ([\d.]+) min", out)[0])
    assert middle == pytest.approx((low * high) ** 0.5, rel=2e-3)
    assert "links that give what a data sheet's do over rdma" in out.replace("\n  ", " ")
    assert "data sheet" not in said(capsys, *WHOLE)[1]


def test_doubts_about_a_sweep_are_warnings(capsys):
    out = said(capsys, *WHOLE, "--network", SWEEP, "--K", "8,16")[1]
    assert "Warning: 0 sizes were measured with K = 8" in out and "Warning: sizes left out with K = 16" in out


@pytest.mark.parametrize("argv,says", [
    (["--K", "8"], "--parameters must be given"),
    (WHOLE[:10], "S_min_steps and --critical-batch or --examples must be given, got neither"),
    ([*WHOLE, "--parameters", "25.6"], "--parameters must be a whole number >= 1, got 25.6"),
    ([*WHOLE, "--network", "25Gbit"], "--network must be a rate such as 25Gbit/s or 3.125GB/s, got '25Gbit'"),
    ([*WHOLE, "--memory", "1MB"], "sync with K = 1: does not fit"),
    ([*WHOLE, "--from", "/no/such/file"], "No such file or directory: '/no/such/file'"),
    (["--example", "--from", "job.json"], "--example and --from are two jobs"),
])  # fmt: skip
def test_bad_input_gets_one_sentence_and_status_2(capsys, argv, says):
    status, out, err = said(capsys, *argv)
    assert status == 2 and not out
    assert says in err and err.startswith("labkit_book.planner: ") and err.count("\n") == 1


def test_the_help_says_what_to_start_with_and_nothing_heavy_is_imported(ran):
    code = (
        "import sys; from labkit_book.planner.__main__ import main; main(['--example']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'matplotlib')))"
    )
    run = ran([sys.executable, "-c", code], timeout=60)
    assert run.returncode == 0 and "overlapped:25MB" in run.stdout
    shown = ran([sys.executable, "-m", "labkit_book.planner"], timeout=60)
    assert shown.returncode == 0 and "Start with the first six" in shown.stdout and "local:H" in shown.stdout
