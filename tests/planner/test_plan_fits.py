"""Memory, sharded methods, failures, the catalogue, and which methods may be the answer; held against arithmetic by hand."""

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from labkit_book.planner import Case, failures, gpus, plan, sensitivity
from labkit_book.planner.__main__ import main
from labkit_book.planner.lint import lint
from labkit_book.planner.memory import _activation_bytes, misfit, need, zero_factor
from labkit_book.planner.method import parse_method
from labkit_book.planner.plots import efficiency_by_K, measured_over_predicted, time_against_price
from labkit_book.planner.report import as_text
from labkit_book.planner.row import Row
from labkit_book.planner.units import workers, written

SMALL = Case(
    parameters=25_600_000, example_s=4e-3, b_examples=32, alpha_s=20e-6, beta_bytes_per_s=3.125e9, S_min_steps=7000,
    B_crit_examples=4096, K_workers=(8, 64),
)  # fmt: skip
LARGE = replace(
    SMALL, parameters=70_000_000_000, element_bytes=2, example_s=14.0, b_examples=1, tokens=4096, layers=80, hidden=8192,
    recompute="full", memory_bytes=80e9, K_workers=workers("8-64"),
)  # fmt: skip
UNKNOWN = {"layers": None, "hidden": None, "recompute": "selective"}
SHARDED = [f"zero{stage}" for stage in (1, 2, 3)]


# -- memory -----------------------------------------------------------------------------------------------------------


def test_seventy_billion_parameters_need_16_bytes_each_and_stage_3_at_least_15_gpus_of_80_gb():
    """1.12 TB: 14 x 80 GB hold the state; two gathered layers of 80, 3.5 GB, need a fifteenth; activations a sixteenth."""
    bare = replace(LARGE, **UNKNOWN, activation_bytes=0.001)
    assert need(bare, parse_method("sync"), 64).state == 1.12e12
    assert need(bare, parse_method("zero3"), 16).state == 70e9
    for case, least in ((replace(bare, layers=80, hidden=1, activation_bytes=None), 15), (LARGE, 16)):
        said = misfit(case, parse_method("overlapped:8"), 64)
        assert said.startswith("does not fit: 1.1") and said.endswith(
            f"TB a worker, zero3 needs K >= {least}"
        )
        assert misfit(case, parse_method("zero3"), least) is None
        assert misfit(case, parse_method("zero3"), least - 1) is not None


def test_what_does_not_fit_is_refused_and_never_priced():
    made = plan(LARGE)
    assert {row.name for row in made.rows} == {"zero3"} and min(row.K for row in made.rows) == 16
    assert {row.name for row in made.left_out} >= {
        "sync",
        "overlapped:25MB",
        "zero1",
        "zero2",
        "zero3",
        "local:8",
    }
    assert "Left out: sync, overlapped:25MB, " in str(made) and "zero3 needs K >= 16" in str(made)
    with pytest.raises(
        ValueError, match=r"sync with K = 8 does not fit: .* zero3 needs K >= 16; .* Megatron-LM"
    ):
        plan(LARGE, K_workers=8)
    with pytest.raises(ValueError, match=r"zero3 on no number of workers; .*torchtitan"):
        plan(LARGE, memory_bytes=4e9, activation_bytes=0.001, layers=None, hidden=None)


def test_too_many_activations_ask_for_a_smaller_batch_and_passes_give_it():
    many = replace(LARGE, K_workers=(64,), b_examples=32, methods=["zero3"])
    with pytest.raises(ValueError, match=r"of which activations are 172 GB: a smaller b, or more passes"):
        plan(many)
    (few,) = plan(many, passes=4).rows
    assert need(few.case, few.method, 64).activations == pytest.approx(8 * _activation_bytes(many))


def test_activations_are_the_published_formula_s():
    """Korthikanti et al. 2022, table 2, for their 175B model (a = 96, s = 2048, h = 12288): s b h (34 + 5 a s / h)."""
    gpt3 = replace(LARGE, layers=96, hidden=12288, heads=96, tokens=2048)
    each = {
        way: _activation_bytes(replace(gpt3, recompute=way)) / (96 * 2048 * 12288)
        for way in ("none", "selective", "full")
    }
    assert each == {"none": 34 + 5 * 96 * 2048 / 12288, "selective": 34, "full": 2}
    assert each["none"] == 34 + 80
    assert _activation_bytes(replace(gpt3, element_bytes=4)) == 2 * _activation_bytes(gpt3)


def test_without_a_memory_nothing_is_refused_but_said():
    silent = replace(LARGE, memory_bytes=None)
    assert not plan(silent, methods=["sync"]).left_out
    (said,) = [each for each in lint(silent) if each.startswith("memory: ")]
    assert "plain data parallelism needs 1.12 TB a worker" in said and "say --memory or --gpu" in said
    assert not [each for each in lint(SMALL) if "memory" in each]
    assert any("activations are not counted" in each for each in lint(replace(SMALL, memory_bytes=80e9)))


def test_a_flip_says_where_nothing_fits_any_more():
    up = sensitivity(plan(LARGE), only=["P"])[1]
    assert "no method fits into the memory any more" in str(up) and up.at > 70e9


# -- sharded ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("m", [1, 4])
def test_where_nothing_can_be_hidden_a_stage_sends_what_the_factor_says(stage, m):
    case = replace(SMALL, example_s=1e-12, alpha_s=0.0, allreduce="ring", passes=m)
    sharded, plain = (Row(case, parse_method(name), 8).step.comm_s for name in (f"zero{stage}", "sync"))
    assert sharded / plain == pytest.approx(zero_factor(stage, m), rel=1e-6)


def test_sharding_is_never_quicker_than_overlapping_with_as_many_buckets_and_where_all_hides_costs_little():
    for beta in (1e8, 1e9, 1e10, 1e11):
        at = {
            row.name: row.step.seconds
            for row in plan(
                SMALL, beta_bytes_per_s=beta, K_workers=64, methods=["overlapped:8", *SHARDED]
            ).rows
        }
        assert all(at["overlapped:8"] <= at[name] * (1 + 1e-12) for name in SHARDED)
    assert plan(SMALL, beta_bytes_per_s=1e13, methods=["zero3"]).rows[0].efficiency > 0.97


def test_passes_compute_as_much_with_the_overhead_in_each_and_leave_less_to_hide_behind():
    case = replace(SMALL, overhead_s=0.01, beta_bytes_per_s=1e9, methods=["overlapped:8"], K_workers=(8,))
    one, four = (plan(case, passes=m).rows[0].step for m in (1, 4))
    assert four.compute_s - one.compute_s == pytest.approx(0.03)
    assert four.comm_s > one.comm_s
    with pytest.raises(ValueError, match="passes must be at most the 32 examples of b_examples, got 33"):
        replace(SMALL, passes=33)
    shared = plan(SMALL, b_examples=None, B_examples=64, passes=4, K_workers=[8, 32], methods=["sync"])
    assert [(row.K, row.refusal) for row in shared.left_out] == [
        (32, "K must leave an example for each of the 4 passes of a step, got 32")
    ]


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("M,write_s", [(1e6, 30.0), (11_000.0, 30.0), (900.0, 300.0)])
def test_the_best_interval_is_what_a_search_finds_and_young_s_to_first_order(M, write_s):
    found = failures.interval_s(write_s, M)
    searched = minimize_scalar(
        lambda x: -failures._goodput(x, write_s, 60.0, M), bounds=(1.0, 2 * M), method="bounded"
    )
    assert failures._goodput(found, write_s, 60.0, M) >= -searched.fun * (1 - 1e-12)
    assert found == pytest.approx(math.sqrt(2 * write_s * M), rel=math.sqrt(write_s / M))


def test_a_job_with_failures_played_event_by_event_has_the_goodput():
    rng, M, tau, write_s, restart_s = np.random.default_rng(3), 2000.0, 300.0, 40.0, 100.0
    wall = 0.0
    for _ in range(20_000):
        need_s = tau + write_s
        while (lives := rng.exponential(M)) < need_s:
            wall, need_s = wall + lives, restart_s + tau + write_s
        wall += need_s
    assert 20_000 * tau / wall == pytest.approx(failures._goodput(tau, write_s, restart_s, M), rel=0.01)


def test_failures_lengthen_time_price_and_bill_by_the_same_share_and_more_with_more_workers():
    of = {
        "mtbf_s": 1e6,
        "checkpoint_s": 60.0,
        "restart_s": 300.0,
        "price_per_worker_hour": 2.0,
        "methods": ["sync"],
    }
    calm, hurt = plan(SMALL, price_per_worker_hour=2.0, methods=["sync"]).rows, plan(SMALL, **of).rows
    for a, b in zip(calm, hurt, strict=True):
        assert b.time_s / a.time_s == pytest.approx(b.price / a.price) == pytest.approx(1 / b.goodput)
        assert b.shares["failures"] == pytest.approx(1 - b.goodput) and sum(
            b.shares.values()
        ) == pytest.approx(1)
    assert hurt[1].goodput < hurt[0].goodput < 1 and calm[0].goodput == 1
    with pytest.raises(
        ValueError, match="mtbf_s, checkpoint_s, restart_s must be given together, got no restart_s"
    ):
        replace(SMALL, mtbf_s=1e6, checkpoint_s=1.0)
    with pytest.raises(ValueError, match=r"K must leave a thousandth of the time .*, which 8 workers don't"):
        plan(SMALL, **{**of, "mtbf_s": 100.0})


# -- what may be the answer -------------------------------------------------------------------------------------------


def test_unasked_only_a_method_whose_steps_are_known_is_the_answer_and_asked_any():
    case = replace(SMALL, law="lognormal:0.1")
    made = plan(case)
    assert made.best().method.certain and made.best("price").method.certain
    quickest = min(made.rows, key=lambda row: row.time_s)
    assert quickest.name == "local:8"  # and yet not the answer
    known = [row.name in made.certain for row in made.ranking]
    assert known == sorted(known, reverse=True) and not all(known)
    assert str(made).index("counted optimistically") < str(made).index("\nlocal:8 ")
    named = plan(case, methods=["overlapped:25MB", "local:8"])
    assert named.best().name == "local:8" and "counted optimistically" not in str(named)
    factors = [replace(m, steps_factor=1.05) if m.name == "local:8" else m for m in case.methods]
    assert "local:8" in plan(case, methods=factors).certain


def test_flips_compare_only_what_may_be_the_answer():
    made = plan(SMALL)
    assert {name for flip in sensitivity(made) for name in (flip.best, flip.other) if name} <= set(
        made.certain
    )


# -- numbers that are written -----------------------------------------------------------------------------------------


def test_columns_stay_apart_and_numbers_written_are_read_again():
    huge = plan(SMALL, parameters=10**13, price_per_worker_hour=400.0, S_min_steps=1e11, K_workers=[2, 10**6],
                methods=["sync", {"method": "overlapped:1000000"}])  # fmt: skip
    lines = [each.replace("step ms", "step").replace("time d", "time") for each in str(huge).splitlines()]
    cells = [line.split() for line in lines if line.endswith((" effic.", " %"))]
    assert len(cells) == 6 and {len(each) - (each[-1] == "%") for each in cells} == {10}
    assert max(map(len, str(huge).splitlines())) <= 100
    assert [written(x, "bytes/s") for x in (1.51e9, 999_999_999.9, 3.125e15, math.inf)] == [
        "1.51GB/s", "1GB/s", "3125TB/s", "unlimited",
    ]  # fmt: skip
    assert written(16384, "workers") == "16384" and written(2e-5, "s") == "20us"


# -- catalogue, command -----------------------------------------------------------------------------------------------

BASE = ["--parameters", "7B", "--precision", "bf16", "--tokens", "4096", "--b", "1", "--network", "400Gbit/s",
        "--latency", "5us", "--steps-min", "7000", "--critical-batch", "1000", "--K", "64", "--no-flips"]  # fmt: skip


def said(capsys, *argv):
    status = main([str(each) for each in argv])
    return status, *capsys.readouterr()


def test_every_gpu_has_its_numbers_and_a_source_and_dense_peaks_halve_as_elements_double():
    assert len(gpus.GPUS) >= 12
    for name, row in gpus.GPUS.items():
        assert row["memory_bytes"] <= 200e9 and row["memory_bytes_per_s"] > 2 * row["link_bytes_per_s"]
        assert any(year in row["source"] for year in ("2019", "202"))
        peak = row["peak"]
        assert list(peak.values()) == sorted(peak.values(), reverse=True)
        if "tf32" in peak and "RTX" not in name:
            assert peak["bf16"] / peak["tf32"] == pytest.approx(2, rel=0.02)
        if "fp8" in peak:
            assert peak["fp8"] / peak["bf16"] == pytest.approx(2, rel=0.02)


def test_a_gpu_and_a_share_of_its_peak_give_memory_and_time_and_the_first_line_says_so(capsys):
    status, out, _ = said(capsys, *BASE, "--gpu", "a100-80", "--mfu", "40%", "--json")
    inputs = json.loads(out)["inputs"]
    assert status == 0 and inputs["cluster"]["memory_bytes"] == 80e9
    assert inputs["job"]["example_s"] == pytest.approx(6 * 7e9 * 4096 / (0.4 * 312e12))
    out = said(capsys, *BASE, "--gpu", "A100-80", "--mfu", "0.4")[1]
    assert "40 % of A100-80's peak in bf16" in out.partition("\n\n")[0].replace("\n  ", " ")


@pytest.mark.parametrize(
    "argv,says",
    [
        (["--gpu", "A100"], "is A100-40 meant?"),
        (["--gpu", "H10O-SXM", "--mfu", "0.4"], "is H100-SXM meant?"),
        (["--gpu", "A100-80"], "or with --mfu, the share of its peak that you assume"),
        (["--mfu", "0.4", "--example-ms", "4"], "--mfu must come with --gpu"),
        (["--gpu", "T4", "--mfu", "0.4"], "--precision must be one in the catalogue for T4, fp16, fp32"),
        (["--gpu", "A100-80", "--mfu", "40"], "--mfu must be a finite number > 0 and <= 1, got 40"),
        (["--gpu", "A100-80", "--mfu", "0.4", "--example-ms", "4"], "and only one of the two, got both"),
        (["--example-ms", "4", "--layers", "8"], "--layers, --hidden, --tokens must be given together, got no --hidden"),
        (["--example-ms", "4", "--memory", "80Gb"], "--memory must be bytes such as 80GB or 80GiB, got '80Gb'"),
        (["--example-ms", "4", "--plot", "x.pdf"], "--plot must name a .png or .svg file"),
        (["--example-ms", "4", "--csv", "/no/such/x.csv"], "--csv must name a file that can be written"),
        (["--example-ms", "4", "--recompute", "some"], "--recompute must be one of none, selective, full, got 'some'"),
    ],
)  # fmt: skip
def test_bad_options_get_one_sentence(capsys, argv, says):
    status, out, err = said(capsys, *BASE, *argv)
    assert status == 2 and not out and says in err and err.count("\n") == 1


def test_csv_has_a_line_a_row_and_a_plot_is_drawn(capsys, tmp_path):
    plt = pytest.importorskip("matplotlib.figure")
    file = tmp_path / "plan.svg"
    status, out, _ = said(capsys, *BASE, "--K", "1-64", "--example-ms", "400", "--csv", "-", "--plot", file)
    head, *lines = out.splitlines()
    assert (
        status == 0
        and head.startswith("method,K_workers,b_examples,B_examples,step_s,")
        and "<svg" in file.read_text()
    )
    assert {line.split(",")[0] for line in lines} >= {"sync", "zero3"}
    made = plan(SMALL, K_workers=[1, 8, 64])
    left, right, third = plt.Figure().subplots(1, 3)
    best = made.best(name=made.best().name, K=8)
    efficiency_by_K(made, left, {8: 2 * best.step.seconds})
    assert left.lines[1].get_ydata() == pytest.approx([best.efficiency / 2])
    assert left.lines[0].get_ydata().tolist() == [row.efficiency for row in made.of(made.best().name)]
    time_against_price(made, right)
    assert f"knee, K = {made.best('knee').K}" in [text.get_text() for text in right.get_legend().get_texts()]
    measured_over_predicted([1e3, 1e6], [2.0, 3.0], [1.0, 3.0], third)
    assert third.lines[1].get_ydata().tolist() == [2.0, 1.0]


def test_a_range_of_the_time_is_said_in_the_first_line_and_drawn_as_a_band(monkeypatch):
    plt = pytest.importorskip("matplotlib.figure")
    spread = property(lambda row: (0.5 * row.step.seconds, 2 * row.step.seconds))
    monkeypatch.setattr(Row, "range_s", spread, raising=False)
    made = plan(SMALL, K_workers=[8, 64], methods=["sync"])
    minutes = made.best().time_s / 60
    first = as_text(made, with_flips=False).partition("\n\n")[0]
    assert f"({minutes / 2:.4g} to {2 * minutes:.4g} min)" in first.replace("\n  ", " ")
    ax = efficiency_by_K(made, plt.Figure().subplots())
    (band,) = ax.collections
    edges = band.get_paths()[0].vertices[:, 1]
    assert edges.min() == pytest.approx(0.5 * made.rows[1].efficiency)
    assert edges.max() == pytest.approx(2 * made.rows[0].efficiency)


def test_without_matplotlib_a_plot_gets_one_sentence(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    status, out, err = said(capsys, *BASE, "--example-ms", "400", "--plot", tmp_path / "plan.png")
    assert status == 2 and not out and "--plot must have matplotlib to draw" in err and err.count("\n") == 1
