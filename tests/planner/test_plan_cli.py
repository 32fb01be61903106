"""``python -m labkit_book.planner``: what it prints, what it refuses, and that its JSON can be given back to it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labkit_book.planner import Case, plan
from labkit_book.planner.__main__ import main

BASE = ["--parameters", "25.6M", "--example-ms", "4", "--network", "25Gbit/s", "--latency", "20us",
        "--steps-min", "7000", "--critical-batch", "4096", "--methods", "sync,overlapped:8,local:8"]  # fmt: skip


def said(capsys, *argv):
    status = main([str(each) for each in argv])
    return status, *capsys.readouterr()


def test_the_table_fits_and_has_its_parts(capsys):
    status, out, err = said(capsys, *BASE, "--b", 32, "--K", "1-64", "--price", "2.5/h")
    assert status == 0 and not err
    assert max(map(len, out.splitlines())) <= 100
    for part in (
        "Weak scaling",
        "step ms",
        "price",
        "Why:",
        "Its bill:",
        "others' bills: overlapped:8 ",
        "The steps factor",
        "ranking by time flips",
    ):
        assert part in out


def test_what_the_goal_does_not_allow_is_named_and_one_worker_has_nothing_to_flip(capsys):
    argv = [*BASE, "--b", 32, "--K", "2,16", "--no-flips", "--goal", "efficiency>=0.9"]
    status, out, _ = said(capsys, *argv)
    assert status == 0 and "No K reaches the goal with sync." in out
    _, out, _ = said(capsys, *BASE, "--b", 32, "--K", "1-8", "--goal", "price", "--steps-factor", "sync=1.5")
    assert "at K = 1:\n  K, turned up" in out and "bandwidth beta" not in out
    assert "sync             1      (would have to save steps to beat overlapped:8, now 1.5)" in out


def test_json_has_the_same_keys_and_goes_in_again(capsys, tmp_path):
    status, out, _ = said(capsys, *BASE, "--B", 512, "--K", "1,8", "--json", "--goal", "price")
    made = json.loads(out)
    assert status == 0 and made["schema"] == "labkit-plan-1"
    assert set(made) == {
        "schema",
        "inputs",
        "best",
        "why",
        "rows",
        "break_even",
        "flips",
        "left_out",
        "warnings",
    }
    for row in made["rows"]:
        assert row["step_s"] == pytest.approx(row["compute_s"] + row["wait_s"] + row["communicate_s"])
        assert row["communicate_s"] == pytest.approx(row["latency_s"] + row["bandwidth_s"] + row["coding_s"])
        assert row["time_s"] == pytest.approx(row["steps"] * row["step_s"])
    assert {flip["dial"] for flip in made["flips"]} == {"K", "beta", "alpha", "P", "slowdown"}
    file = tmp_path / "job.json"
    file.write_text(out)
    status, again, _ = said(capsys, "--from", file, "--json")
    assert status == 0 and json.loads(again) == made
    assert str(plan(Case.from_json(out))) in said(capsys, "--from", file)[1]


def test_an_argument_takes_precedence_over_the_file(capsys, tmp_path):
    _, out, _ = said(capsys, *BASE, "--b", 32, "--K", "8", "--json", "--no-flips")
    file = tmp_path / "job.json"
    file.write_text(out)
    changes = [
        "--network",
        "10Gbit/s",
        "--B",
        512,
        "--examples",
        "1M",
        "--K",
        "4",
        "--steps-factor",
        "local:8=1.5",
    ]
    _, out, _ = said(capsys, "--from", file, *changes, "--json", "--no-flips")
    inputs = json.loads(out)["inputs"]
    assert inputs["cluster"]["beta_bytes_per_s"] == 1.25e9 and inputs["cluster"]["alpha_s"] == 20e-6
    assert inputs["job"]["B_examples"] == 512 and "b_examples" not in inputs["job"]
    assert inputs["target"] == {"total_examples": 10**6} and inputs["K_workers"] == [4]
    assert inputs["methods"][2] == {"method": "local:8", "steps_factor": 1.5}


def test_a_batch_s_time_is_shared_among_its_examples(capsys):
    argv = [each for each in BASE if each not in ("--example-ms", "4")]
    argv += ["--batch-ms", "130", "--overhead-ms", "2", "--b", "32", "--K", "8", "--json", "--no-flips"]
    job = json.loads(said(capsys, *argv)[1])["inputs"]["job"]
    assert job["example_s"] == pytest.approx(4e-3) and job["overhead_s"] == pytest.approx(2e-3)


def test_hosts_times_workers_are_k(capsys):
    hosts = ["--per-host", "4", "--inside", "10GB/s", "--inside-latency", "5us", "--hosts", "16"]
    made = json.loads(said(capsys, *BASE, "--b", "32", *hosts, "--json", "--no-flips")[1])
    assert made["inputs"]["K_workers"] == [64]
    assert made["inputs"]["cluster"]["per_host_workers"] == 4
    status, _, err = said(capsys, *BASE, "--b", "32", *hosts, "--K", "60")
    assert status == 2 and "--hosts x --per-host = 16 x 4 = 64" in err


def test_coding_time_goes_to_those_that_compress(capsys):
    argv = [*BASE[:-1], "sync,topk:0.01", "--b", "32", "--K", "8", "--coding-ms", "3", "--json", "--no-flips"]
    methods = json.loads(said(capsys, *argv)[1])["inputs"]["methods"]
    assert methods == [
        {"method": "sync", "steps_factor": 1.0},
        {"method": "topk:0.01", "steps_factor": 1.0, "coding_s": 3e-3},
    ]


WHOLE = [*BASE, "--b", "32", "--K", "8", "--no-flips"]


@pytest.mark.parametrize(
    "argv,says",
    [
        (["--K", "8"], "--parameters must be given"),
        (BASE, "--K must be given"),
        ([*BASE, "--K", "8"], "--b or --B must be given, and only one of the two, got neither"),
        ([*BASE, "--K", "8", "--b", "32", "--B", "256"], "only one of the two, got --b = 32, --B = 256"),
        ([*WHOLE, "--batch-ms", "5"], "--example-ms and --batch-ms say the same thing"),
        ([*WHOLE, "--hosts", "2"], "--hosts must come with --per-host"),
        ([*WHOLE, "--per-host", "2"], "must be given together, got no --inside"),
        ([*WHOLE, "--parameters", "-5M"], "--parameters must be a whole number >= 1, got -5000000"),
        ([*WHOLE, "--parameters", "25.6"], "is 25.6M meant?"),
        (
            [*WHOLE, "--parameters", "nan"],
            "--parameters must be a whole number such as 25.6M, 7B or 25600000, got 'nan'",
        ),
        ([*WHOLE, "--network", "25Gbit"], "per second, /s, is missing"),
        ([*WHOLE, "--network", "-1"], "--network must be a finite number > 0, got -1.0"),
        ([*WHOLE, "--latency=-1us"], "--latency must be a finite number >= 0, got -1e-06"),
        ([*WHOLE, "--example-ms", "0"], "--example-ms must be a finite number > 0, got 0"),
        ([*WHOLE, "--examples", "3M"], "or --examples must be given, and only one of the two"),
        ([*WHOLE, "--goal", "efficiency>=1"], "goal must be within reach of some row"),
        ([*WHOLE, "--goal", "efficiency>=..."], "the efficiency in --goal must be a share"),
        ([*WHOLE, "--goal", "cheap"], "--goal must be time, price, knee or efficiency>=0.8"),
        ([*WHOLE, "--methods", "sync,sync"], "each with a name of its own"),
        (
            [*WHOLE, "--steps-factor", "ssp:3=2"],
            "--steps-factor must name one of sync, overlapped:8, local:8",
        ),
        ([*WHOLE, "--steps-factor", "local:8=x"], "must be a method and a number"),
        ([*WHOLE, "--stragglers", "pareto:0.9"], "law must have a finite mean"),
        ([*WHOLE, "--stragglers", "lognormal:-1"], "sigma must be a finite number > 0"),
        ([*WHOLE, "--b", "1e400"], "--b must be a whole number"),
        ([*WHOLE, "--latencies", "1us"], "unrecognized arguments: --latencies 1us"),
        ([*WHOLE, "--b", "many"], "--b must be a whole number such as 25.6M, 7B or 25600000, got 'many'"),
        ([*WHOLE, "--from", "/no/such/file"], "--from must name a file that can be read"),
    ],
)
def test_bad_input_gets_one_sentence_and_status_2(capsys, argv, says):
    status, out, err = said(capsys, *argv)
    assert status == 2 and not out
    assert says in err and err.startswith("labkit_book.planner: ") and err.count("\n") == 1


def test_a_confused_unit_is_warned_of_and_planned(capsys):
    status, out, err = said(capsys, *WHOLE, "--network", "25GB/s")
    answer, warning, table = (out.index(each) for each in ("Answer: ", "Warning: network: 25 GB/s", "Goal: "))
    assert status == 0 and not err and answer == 0 < warning < table
    _, out, err = said(capsys, *WHOLE, "--network", "25GB/s", "--json")
    assert len(json.loads(out)["warnings"]) == 1
    assert err.startswith("labkit_book.planner: warning: network: 25 GB/s is 200 Gbit/s")
    for rate in (
        "400Gbit/s",
        "1600Gbit/s",
        "3200Gbit/s",
    ):  # 50 GB/s, and no doubt; hosts of 4 and 8 such ports
        assert "Warning" not in said(capsys, *WHOLE, "--network", rate)[1]
    silent = [each for each in WHOLE if each not in ("--latency", "20us")]
    assert "Warning: latency: none was given" in said(capsys, *silent, "--transport", "measured")[1]


def test_the_help_fits_and_the_module_runs_and_imports_nothing_heavy():
    code = (
        "import sys; from labkit_book.planner.__main__ import main; main(['--example', '--no-flips']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'matplotlib')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert run.returncode == 0 and "local:8" in run.stdout and "--parameters 25.6M" in run.stderr
    shown = subprocess.run(
        [sys.executable, "-m", "labkit_book.planner", "--help"],
        capture_output=True, text=True, cwd=Path(__file__).parents[2], env={"COLUMNS": "100"},
    )  # fmt: skip
    assert shown.returncode == 0 and max(map(len, shown.stdout.splitlines())) <= 100
    for key in ("alpha_s", "communicate_s", "break_even", "lognormal:sigma"):
        assert key in shown.stdout


def test_a_sweep_stands_in_the_network_s_place_and_its_verdict_among_the_warnings(capsys, tmp_path):
    file = Path(__file__).parent / "layouts" / "nccl-tests.txt"
    job = [
        "--parameters",
        "25.6M",
        "--example-ms",
        "4",
        "--b",
        "32",
        "--K",
        "16",
        "--examples",
        "115M",
        "--methods",
        "sync",
        "--no-flips",
    ]
    status, out, err = said(capsys, *job, "--sweep", file, "--json")
    assert status == 0 and "sweep: " in err
    found = json.loads(out)
    assert found["rows"][0]["allreduce"] == "measured"
    assert [16, 67108864.0, 1e-3] in [
        [K, n, pytest.approx(s)] for K, n, s in found["inputs"]["cluster"]["sweep"]
    ]
    headless = tmp_path / "headless.txt"
    headless.write_text("\n".join(line for line in file.read_text().splitlines() if "Rank" not in line))
    assert said(capsys, *job, "--sweep", f"{headless}@16")[0] == 0
    for bad, why in (
        (headless, "it says none"),
        (tmp_path / "none", "must name files"),
        (f"{file}@8", "it says 16, K = 8"),
    ):
        status, _, err = said(capsys, *job, "--sweep", bad)
        assert status == 2 and why in err
    assert "--network must be given, or --sweep" in said(capsys, *job)[2]
