"""The plan: time to accuracy, what is best and why, what fits, where it ties and where it flips."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from labkit import Simulated, launch
from labkit.collectives import ring
from labkit.network import Link
from labkit_book.planner import Case, break_even, parse_method, plan, sensitivity
from labkit_book.planner.memory import MIXED, SINGLE, misfit, need, zero_memory
from labkit_book.planner.row import MEANING, _goodput

EXACT = ("sync", "overlapped:8", {"method": "local:8", "steps_factor": 1.3})
CASE = Case(
    parameters=25_600_000, example_s=4e-3, b_examples=32, alpha_s=20e-6, beta_bytes_per_s=3.125e9,
    price_per_worker_hour=2.5, S_min_steps=7000, B_crit_examples=4096, K_workers=8, methods=EXACT,
)  # fmt: skip
FREE = {"alpha_s": 0.0, "beta_bytes_per_s": 1e300}
EXAMPLES = {"S_min_steps": None, "B_crit_examples": None}
LARGE = replace(
    CASE, parameters=70_000_000_000, element_bytes=2, example_s=14.0, b_examples=1, tokens=4096, layers=80, hidden=8192,
    recompute="full", memory_bytes=80e9, K_workers=(8, 16, 32, 64), methods=["sync", "overlapped:25MB", "zero2", "zero3"],
)  # fmt: skip


def at(case, **changes):
    """{method: seconds to the accuracy} at the case's one K."""
    return {row.name: row.time_s for row in plan(case, **changes).rows}


# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 3, 4])
def test_a_row_s_time_and_money_are_those_of_the_job_played_message_by_message(K):
    """Five steps of a job with one slow worker in the simulated world; its workers are paid from start to end."""

    def played(comm):
        g = np.ones(1200)
        for _ in range(5):
            comm.compute(seconds=(0.002 + 4 * 1e-3) * (1.5 if comm.rank == 0 else 1.0))
            ring.allreduce(comm, g)
        return comm.now()

    (row,) = plan(
        CASE, parameters=1200, element_bytes=8, example_s=1e-3, overhead_s=0.002, b_examples=4, methods=["sync"],
        slowdown=1.5, alpha_s=1e-3, beta_bytes_per_s=1e6, allreduce="ring", total_examples=5 * 4 * K, K_workers=K,
        **EXAMPLES,
    ).rows  # fmt: skip
    ended_s = launch(played, K, world=Simulated(Link(1e-3, 1e6))).results
    assert row.steps == 5 and row.B == 4 * K
    assert row.time_s == pytest.approx(max(ended_s), rel=1e-9)
    assert row.price == pytest.approx(sum([max(ended_s)] * K) * 2.5 / 3600, rel=1e-9)


@pytest.mark.parametrize("method,B,steps", [
    ("sync", 256, 119_000), ("overlapped:8", 256, 119_000), ("backup:1", 224, 135_000), (EXACT[2], 256, 154_700),
])  # fmt: skip
def test_steps_are_those_of_the_hyperbola_at_the_examples_that_count(method, B, steps):
    """8 workers of 32 examples, by hand: 7000 (1 + 4096 / B); a backup's examples don't count, local needs 1.3 as many."""
    (row,) = plan(CASE, methods=[method]).rows
    assert row.B == B and row.steps == pytest.approx(steps)


def test_efficiency_is_the_share_of_computing_and_a_steady_straggler_is_not_what_it_is_against():
    alone, many = plan(CASE, K_workers=[1, 16], methods=["sync"]).rows
    assert alone.efficiency == pytest.approx(1)
    assert many.efficiency == pytest.approx(many.step.compute_s / many.step.seconds)
    slow = plan(CASE, slowdown=2.0, K_workers=[1, 8], methods=["sync"], **FREE).rows
    assert [row.efficiency for row in slow] == pytest.approx([0.5, 0.5])


def test_what_no_k_allows_is_left_out_and_said():
    made = plan(CASE, K_workers=[1, 2], methods=["sync", "backup:1"])
    assert [(row.name, row.K) for row in made.rows] == [("sync", 1), ("sync", 2), ("backup:1", 2)]
    (left,) = made.left_out
    assert (left.name, left.K, left.refusal) == ("backup:1", 1, "backups must be less than K = 1, got 1")
    says = "K must leave some method possible, but backup:1 with K = 1: backups must"
    with pytest.raises(ValueError, match=says):
        plan(CASE, K_workers=1, methods=["backup:1", "backup:2"])


@pytest.mark.parametrize(
    "name,low,high", [("beta_bytes_per_s", 1e8, 1e10), ("alpha_s", 1e-6, 1e-3), ("parameters", 10**6, 10**8)]
)
@pytest.mark.parametrize("transport", ["measured", "rdma"])
def test_a_worse_network_and_more_parameters_never_help(name, low, high, transport):
    rows = [
        plan(CASE, K_workers=[2, 9, 32], transport=transport, **{name: value}).rows for value in (low, high)
    ]
    worse, better = rows if name == "beta_bytes_per_s" else rows[::-1]
    assert all(a.time_s <= b.time_s * (1 + 1e-9) for a, b in zip(better, worse, strict=True))


# -- best -------------------------------------------------------------------------------------------------------------


def test_goals_choose_what_they_say():
    made = plan(CASE, K_workers=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
    assert made.best().time_s == min(row.time_s for row in made.rows)
    assert made.best("price").price == min(row.price for row in made.rows)
    knee = made.best("knee")
    assert knee.time_s * knee.price == min(row.time_s * row.price for row in made.rows)
    assert made.best(name="sync").name == "sync" and [row.K for row in made.of(K=4)] == [4, 4, 4]
    assert [row.time_s for row in made.ranking] == sorted(row.time_s for row in made.ranking)
    with pytest.raises(ValueError, match="name and K must be in the plan"):
        made.best(name="ssp:3")
    with pytest.raises(ValueError, match="goal must be one of time, price, knee, got 'cheap'"):
        made.best("cheap")


# -- why --------------------------------------------------------------------------------------------------------------


def test_the_bill_adds_up_and_names_what_was_made_large():
    quick = replace(
        CASE, parameters=10, example_s=1e-3, alpha_s=0.0, beta_bytes_per_s=1e12, S_min_steps=1e5, B_crit_examples=1e9,
        methods=["sync"],
    )  # fmt: skip
    cases = {
        "examples": {},
        "critical batch": {"B_crit_examples": 1.0},
        "overhead": {"overhead_s": 1.0},
        "wait": {"slowdown": 19.0},
        "latency": {"alpha_s": 1.0},
        "bandwidth": {"parameters": 10**9, "beta_bytes_per_s": 1e6},
        "failures": {"mtbf_s": 7200.0, "checkpoint_s": 1800.0, "restart_s": 600.0, "K_workers": 8},
    }
    assert set(cases) == set(MEANING)
    for term, changes in cases.items():
        (row,) = plan(quick, **changes).rows
        assert sum(row.shares.values()) == pytest.approx(1) and min(row.shares.values()) >= 0
        assert row.shares[term] > 0.8


# -- ties and flips ---------------------------------------------------------------------------------------------------


def test_at_its_break_even_a_method_ties_with_the_best_other():
    made = plan(CASE, K_workers=[4, 16, 64])
    for even in break_even(made):
        tied = [replace(m, steps_factor=even.factor) if m.name == even.name else m for m in made.case.methods]
        again = plan(made.case, methods=tied)
        mine, rival = again.best(name=even.name), again.best(name=even.rival)
        assert mine.time_s == pytest.approx(rival.time_s, rel=1e-9)
    with pytest.raises(ValueError, match="plan must hold two methods to compare them, got"):
        break_even(plan(CASE, methods=["sync"]))


@pytest.mark.parametrize("transport", ["measured", "rdma"])
@pytest.mark.parametrize("dial", ["beta_bytes_per_s", "alpha_s", "parameters", "slowdown"])
def test_every_flip_flips_just_there_and_not_before(dial, transport):
    case = replace(CASE, parameters=10**8, slowdown=1.2, methods=[*EXACT, "backup:1"], transport=transport)

    def best(value):
        found = at(case, **{dial: round(value) if dial == "parameters" else value})
        return min(found, key=found.get), min(found.values())

    found = sensitivity(plan(case), dial)
    assert [flip.until > flip.now for flip in found] == [False, True]
    for flip in found:
        assert best(flip.now)[0] == flip.best
        if flip.at is None:
            end = at(case, **{dial: flip.until if dial != "parameters" else round(flip.until)})
            assert end[flip.best] == pytest.approx(min(end.values()), rel=1e-9)
            assert f"{flip.best} stays best" in str(flip)
            continue
        apart = max(1e-5 * flip.at, 2.0 if dial == "parameters" else 0.0)
        before, beyond = (flip.at - apart, flip.at + apart)[:: 1 if flip.until > flip.now else -1]
        assert best(before)[0] == flip.best and best(beyond)[0] == flip.other
        assert f"{flip.other} overtakes {flip.best} at " in str(flip)


# -- memory -----------------------------------------------------------------------------------------------------------


def test_the_papers_table_7_5_billion_parameters_on_64_gpus_and_in_single_precision():
    """Rajbhandari et al. 2020, figure 1: 120, 31.4, 16.6 and 1.9 GB; by hand, stage 1 in fp32: 4 + 4 + 8 / 10."""
    gigabytes = [round(zero_memory(7_500_000_000, 64, stage) / 1e9, 1) for stage in range(4)]
    assert gigabytes == [120.0, 31.4, 16.6, 1.9]
    assert zero_memory(100, 10, 1, SINGLE) == 880 and zero_memory(100, 10, 1, MIXED) == 520
    for bad in ((10, 2, 4), (10, 0, 1), (1.5, 2, 1)):
        with pytest.raises(ValueError, match=r"^(stage|K|P) must be a whole number"):
            zero_memory(*bad)


def test_seventy_billion_parameters_need_16_bytes_each_and_stage_3_at_least_16_gpus_of_80_gb():
    """1.12 TB: 14 x 80 GB hold the state; two gathered layers of 80, 3.5 GB, need a fifteenth; activations a sixteenth."""
    bare = replace(LARGE, layers=None, hidden=None, tokens=None)
    assert need(bare, parse_method("sync"), 64) == 1.12e12
    assert need(bare, parse_method("zero3"), 16) == 70e9 + 2 * 140e9 / 32
    assert need(LARGE, parse_method("zero3"), 16) == 70e9 + 2 * 140e9 / 80 + 80 * 2 * 4096 * 8192
    assert need(replace(LARGE, recompute="selective", b_examples=8, passes=4), parse_method("sync"), 8) == (
        1.12e12 + 2 * 80 * 34 * 4096 * 8192
    )
    assert misfit(LARGE, parse_method("sync"), 64) == "does not fit: 1.13 TB a worker, zero3 needs K >= 16"
    assert misfit(LARGE, parse_method("zero3"), 16) is None and misfit(LARGE, parse_method("zero3"), 15)


def test_what_does_not_fit_is_refused_and_never_priced_and_a_flip_says_from_where_on():
    made = plan(LARGE)
    assert {row.name for row in made.rows} == {"zero3"} and min(row.K for row in made.rows) == 16
    assert {row.name for row in made.left_out} == {"sync", "overlapped:25MB", "zero2", "zero3"}
    says = r"sync with K = 8: does not fit: .* zero3 needs K >= 16\. .* Megatron-LM"
    with pytest.raises(ValueError, match=says):
        plan(LARGE, K_workers=8)
    with pytest.raises(ValueError, match=r"zero3 on no number of workers; .*torchtitan"):
        plan(LARGE, memory_bytes=1e9)
    up = sensitivity(made, "parameters")[1]
    assert "no method fits into the memory any more" in str(up) and up.at > 70e9


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("M,write_s", [(1e6, 30.0), (11_000.0, 30.0), (900.0, 300.0)])
def test_the_best_interval_is_at_least_as_good_as_what_a_search_finds(M, write_s):
    searched = minimize_scalar(lambda x: -_goodput(M, write_s, 60.0, x), bounds=(1, 2 * M), method="bounded")
    assert _goodput(M, write_s, 60.0) >= -searched.fun * (1 - 1e-12)
    young = math.sqrt(2 * write_s * M)
    assert _goodput(M, write_s, 60.0) >= _goodput(M, write_s, 60.0, young)


def test_a_job_with_failures_played_event_by_event_has_the_goodput():
    rng, M, tau, write_s, restart_s = np.random.default_rng(3), 2000.0, 300.0, 40.0, 100.0
    wall = 0.0
    for _ in range(20_000):
        need_s = tau + write_s
        while (lives := rng.exponential(M)) < need_s:
            wall, need_s = wall + lives, restart_s + tau + write_s
        wall += need_s
    assert 20_000 * tau / wall == pytest.approx(_goodput(M, write_s, restart_s, tau), rel=0.01)


def test_failures_lengthen_time_and_price_by_the_same_share_and_more_with_more_workers():
    of = {"mtbf_s": 1e6, "checkpoint_s": 60.0, "restart_s": 300.0}
    calm, hurt = (plan(CASE, methods=["sync"], K_workers=[8, 64], **more).rows for more in ({}, of))
    for a, b in zip(calm, hurt, strict=True):
        assert b.time_s / a.time_s == pytest.approx(b.price / a.price) == pytest.approx(1 / b.goodput)
    assert hurt[1].goodput < hurt[0].goodput < 1 and calm[0].goodput == 1
    with pytest.raises(ValueError, match=r"K = 64: less than a thousandth of the time is left"):
        plan(CASE, methods=["sync"], K_workers=64, **{**of, "mtbf_s": 100.0})
