"""The plan: time to accuracy, what is best and why, where it ties and where it flips."""

import math
from dataclasses import replace

import numpy as np
import pytest

from labkit import Simulated, launch
from labkit.collectives import ring
from labkit.network import Link
from labkit.timing import Constant, LogNormal, OneStraggler, Pareto
from labkit_book.planner import Case, Goal, Method, break_even, parse_method, plan, sensitivity, verdict
from labkit_book.planner.goals import parse_goal
from labkit_book.planner.method import parse_methods
from labkit_book.planner.row import MEANING, Row
from labkit_book.planner.sensitivity import _winner

EXACT = parse_methods(("sync", "overlapped:8", {"method": "local:8", "steps_factor": 1.3}))
CASE = Case(
    parameters=25_600_000,
    example_s=4e-3,
    b_examples=32,
    alpha_s=20e-6,
    beta_bytes_per_s=3.125e9,
    price_per_worker_hour=2.5,
    S_min_steps=7000,
    B_crit_examples=4096,
    K_workers=8,
    methods=EXACT,
)
FREE = {"alpha_s": 0.0, "beta_bytes_per_s": 1e300}
EXAMPLES = {"S_min_steps": None, "B_crit_examples": None}


def at(case, **changes):
    """{method: seconds to the accuracy} at the case's one K."""
    case = replace(case, **changes)
    return {row.name: row.time_s for row in plan(case).rows}


# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K,rank", [(1, 0), (3, 0), (3, 2), (4, 1)])
def test_a_row_s_time_and_money_are_those_of_the_job_played_message_by_message(K, rank):
    """Five steps of a job with one slow worker in the simulated world; its workers are paid from start to end."""

    def played(comm):
        g = np.ones(1200)
        for _ in range(5):
            comm.compute(seconds=(0.002 + 4 * 1e-3) * (1.5 if comm.rank == rank else 1.0))
            ring.allreduce(comm, g)
        return comm.now()

    (row,) = plan(
        CASE, parameters=1200, element_bytes=8, example_s=1e-3, overhead_s=0.002, b_examples=4, methods=["sync"],
        law=OneStraggler(Constant(1.0), 1.5, rank=rank), alpha_s=1e-3, beta_bytes_per_s=1e6, allreduce="ring",
        total_examples=5 * 4 * K, K_workers=K, **EXAMPLES,
    ).rows  # fmt: skip
    ended_s = launch(played, K, world=Simulated(Link(1e-3, 1e6))).results
    assert row.steps == 5 and row.B == 4 * K
    assert row.time_s == pytest.approx(max(ended_s), rel=1e-9)
    assert row.price == pytest.approx(sum([max(ended_s)] * K) * 2.5 / 3600, rel=1e-9)
    assert row.examples_per_s == pytest.approx(5 * 4 * K / max(ended_s), rel=1e-9)


@pytest.mark.parametrize(
    "method,B,steps",
    [
        ("sync", 256, 119_000),
        ("overlapped:8", 256, 119_000),
        ("backup:1", 224, 135_000),
        (EXACT[2], 256, 154_700),
    ],
)
def test_steps_are_those_of_the_hyperbola_at_the_examples_that_count(method, B, steps):
    """8 workers of 32 examples, by hand: 7000 (1 + 4096 / B); a backup's examples don't count, local needs 1.3 as many."""
    (row,) = plan(CASE, methods=[method]).rows
    assert row.B == B and row.steps == pytest.approx(steps)


def test_efficiency_is_one_for_a_worker_alone_and_the_share_of_computing_in_weak_scaling():
    alone, many = plan(CASE, K_workers=[1, 16], methods=["sync"]).rows
    assert alone.efficiency == pytest.approx(1) and alone.speedup == pytest.approx(1)
    assert many.efficiency == pytest.approx(many.step.compute_s / many.step.seconds)
    assert many.speedup == pytest.approx(alone.time_s / many.time_s)


def test_a_steady_straggler_is_not_what_a_row_is_measured_against():
    alone, row = plan(CASE, law="one:2", K_workers=[1, 8], methods=["sync"], **FREE).rows
    assert row.efficiency == pytest.approx(0.5) and alone.efficiency == pytest.approx(0.5)
    assert alone.speedup == pytest.approx(0.5)


def test_strong_scaling_keeps_the_batch_and_the_steps_and_stops_at_b():
    strong = replace(CASE, b_examples=None, B_examples=10, methods=["sync"], **FREE)
    made = plan(strong, K_workers=[1, 3, 10, 11, 20])
    assert [(row.K, row.b, row.B) for row in made.rows] == [(1, 10, 10), (3, 4, 10), (10, 1, 10)]
    assert len({row.steps for row in made.rows}) == 1
    assert made.of(K=3)[0].efficiency == pytest.approx(10 / 12)  # the busiest worker has 4 of 10
    assert [(left.K, left.refusal) for left in made.left_out] == [
        (K, f"K must be at most the B = 10 examples that there are in a step, got {K}") for K in (11, 20)
    ]
    with pytest.raises(
        ValueError, match="K must leave some method possible, but K must be at most the B = 10"
    ):
        plan(strong, K_workers=11)


def test_what_no_k_allows_is_left_out_and_said():
    made = plan(CASE, K_workers=[1, 2], methods=["sync", "backup:1"])
    assert [(row.name, row.K) for row in made.rows] == [("sync", 1), ("sync", 2), ("backup:1", 2)]
    (left,) = made.left_out
    assert (left.name, left.K, left.refusal) == ("backup:1", 1, "backups must be less than K = 1, got 1")


def test_examples_are_a_hyperbola_without_a_least_number_of_steps():
    noisy = Method(how=parse_method("qsgd:7").how, omega=2.0, label="noisy")
    few = plan(CASE, total_examples=1e6, K_workers=[1, 8], methods=["sync", noisy], **EXAMPLES)
    assert few.of("sync", 8)[0].steps == pytest.approx(1e6 / 256)
    assert few.best(name="noisy", K=8).steps == pytest.approx(3e6 / 256)
    near = plan(CASE, S_min_steps=1e-6, B_crit_examples=1e12, methods=[noisy])
    assert near.rows[0].steps == pytest.approx(3e6 / 256, rel=1e-6)


@pytest.mark.parametrize(
    "name,low,high", [("beta_bytes_per_s", 1e8, 1e10), ("alpha_s", 1e-6, 1e-3), ("parameters", 10**6, 10**8)]
)
def test_a_worse_network_and_more_parameters_never_help(name, low, high):
    rows = [plan(CASE, K_workers=[2, 9, 32], **{name: value}).rows for value in (low, high)]
    worse, better = rows if name == "beta_bytes_per_s" else rows[::-1]
    assert all(a.time_s <= b.time_s * (1 + 1e-9) for a, b in zip(better, worse, strict=True))


# -- best -------------------------------------------------------------------------------------------------------------


def test_goals_choose_what_they_say():
    made = plan(CASE, K_workers=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
    assert made.best("time").time_s == min(row.time_s for row in made.rows)
    assert made.best("price").price == min(row.price for row in made.rows)
    assert made.best("knee").K < made.best("time").K
    allowed = [row for row in made.rows if row.efficiency >= 0.95]
    assert made.best("efficiency>=0.95").time_s == min(row.time_s for row in allowed)
    assert made.best(name="sync").name == "sync" and made.best(K=4).K == 4
    with pytest.raises(ValueError, match="name and K must be in the plan"):
        made.best(name="ssp:3")
    with pytest.raises(
        ValueError, match=r"goal must be within reach .* the most efficient, \S+ with K = \d+, has 0\.\d+"
    ):
        plan(CASE, K_workers=[64]).best("efficiency>=1")


def test_with_nothing_but_computation_the_knee_of_weak_scaling_is_the_critical_batch():
    made = plan(
        CASE, S_min_steps=100, B_crit_examples=32 * 37, K_workers=range(1, 1000), methods=["sync"], **FREE
    )
    assert made.best("knee").K == 37


def test_goals_are_read_from_words():
    assert parse_goal("price") == Goal("price") and parse_goal(" knee ") == Goal("knee")
    assert parse_goal("efficiency>=0.8") == Goal("time", 0.8) == parse_goal("efficiency >= 80%")
    for text in ("time", "knee", "efficiency>=0.8"):
        assert parse_goal(text).text == text
    for text, says in (
        ("cheap", "goal must be time, price, knee or efficiency>=0.8"),
        ("efficiency>=2", "goal must be a finite number > 0 and <= 1"),
    ):
        with pytest.raises(ValueError, match=says):
            parse_goal(text)


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
        "wait": {"law": "one:19"},
        "latency": {"alpha_s": 1.0},
        "bandwidth": {"parameters": 10**9, "beta_bytes_per_s": 1e6},
        "coding": {"methods": [{"method": "sign", "coding_s": 9.0}]},
        "failures": {"mtbf_s": 7200.0, "checkpoint_s": 1800.0, "restart_s": 600.0, "K_workers": 8},
    }
    assert set(cases) == set(MEANING)
    for term, changes in cases.items():
        (row,) = plan(quick, **changes).rows
        assert set(row.shares) == set(MEANING)
        assert sum(row.shares.values()) == pytest.approx(1) and min(row.shares.values()) >= 0
        assert row.binds == term and row.shares[term] > 0.8


def test_examples_that_a_large_batch_wastes_are_those_beyond_the_least():
    made = plan(CASE, K_workers=128, methods=["sync"], **FREE)  # B = B_crit: twice as many as needed
    parts = made.rows[0].shares
    assert parts["critical batch"] == pytest.approx(0.5) == parts["examples"]
    assert verdict(made).startswith("sync with K = 128 has the least time; 50 % of its bill is computing")


# -- break-even -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aim", ["time", "price", "knee", "efficiency>=0.5"])
def test_at_its_break_even_a_method_ties_with_the_best_other(aim):
    made = plan(CASE, K_workers=[4, 16, 64], goal=aim)
    for even in break_even(made):
        tied = [replace(m, steps_factor=even.factor) if m.name == even.name else m for m in EXACT]
        again = plan(made.case, methods=tied)
        mine, rival = again.best(name=even.name), again.best(name=even.rival)
        assert mine.value(made.case.goal) == pytest.approx(rival.value(made.case.goal), rel=1e-9)
        assert even.room > 1 or made.best().name != even.name


def test_one_method_alone_has_nobody_to_tie_with():
    with pytest.raises(ValueError, match="plan must hold two methods that the goal allows"):
        break_even(plan(CASE, methods=["sync"]))


# -- sensitivity ------------------------------------------------------------------------------------------------------


def test_every_flip_flips_just_there_and_not_before():
    case = replace(CASE, parameters=100_000_000)
    found = sensitivity(plan(case, K_workers=[1, 8, 32], goal="efficiency>=0.5"))
    K = plan(case, K_workers=[1, 8, 32], goal="efficiency>=0.5").best().K
    case = replace(case, K_workers=K)
    turned = [flip for flip in found if flip.at is not None]
    assert {flip.dial for flip in turned} >= {"beta", "P"}
    assert any(flip.at is None for flip in found)
    fields = {"beta": "beta_bytes_per_s", "alpha": "alpha_s"}
    for flip in found:

        def times(value, flip=flip):
            if flip.dial in ("K", "P"):
                return at(case, **{"K_workers" if flip.dial == "K" else "parameters": round(value)})
            if flip.dial == "slowdown":
                return at(case, law=OneStraggler(Constant(1.0), value))
            return at(case, **{fields[flip.dial]: value})

        def best(value, times=times):
            return min(found := times(value), key=found.get)

        if flip.at is None:
            assert times(flip.until)[flip.best] == pytest.approx(min(times(flip.until).values()), rel=1e-9)
            continue
        up = flip.until > flip.now
        step = 1 if flip.dial in ("K", "P") else 1e-5 * flip.at
        assert best(flip.at) == flip.other != flip.best
        assert best(flip.at - step if up else flip.at + step) == flip.best
        assert f"{flip.other} overtakes {flip.best} at " in str(flip)


@pytest.mark.parametrize("law", [LogNormal(1.0, 0.3), OneStraggler(LogNormal(1.0, 0.1), 2.0)], ids=str)
def test_what_is_left_unsimulated_would_not_have_won(law):
    ways = ("sync", "overlapped:8", "backup:1", "ssp:3", "local:8", "topk:0.01")
    for beta in (1e8, 1e10, 1e12):
        for K in (2, 12):
            case = replace(CASE, law=law, beta_bytes_per_s=beta, K_workers=K, methods=ways)
            times = at(case)
            assert _winner(case) == min(times, key=times.get)


def test_the_straggler_s_dial_starts_where_the_law_has_it_and_backups_win_beyond():
    case = replace(CASE, law="one:1.2", methods=["sync", "backup:1"])
    down, up = sensitivity(plan(case), only=["slowdown"])
    t, whole, less = case.compute_s(32), case.steps(256), case.steps(224)
    # a round of backup's, in steps of sync's
    seconds = (t + case.network.push_pull(8, case.nbytes).seconds) * less / whole
    tie = (seconds - case.network.allreduce(8, case.nbytes).seconds) / t
    assert (down.now, down.best, down.other) == (1.2, "backup:1", "sync")
    assert down.at == pytest.approx(tie, rel=1e-5)
    assert up.at is None and up.best == "backup:1"


def test_a_tie_is_no_flip_and_bad_dials_are_refused():
    made = plan(CASE, K_workers=4, methods=["sync", "overlapped:8"], **FREE)
    assert all(flip.at is None for flip in sensitivity(made, only=["K", "P"]))
    # with one worker both are the same
    listed_last = plan(CASE, K_workers=[1, 8], methods=["sync", "local:8"])
    (down,) = sensitivity(listed_last, only=["K"])
    assert down.best == "local:8" and down.at is None
    with pytest.raises(ValueError, match=r"only must name dials of K, .* got 'gamma'"):
        sensitivity(made, only=["gamma"])
    with pytest.raises(ValueError, match="K must leave some method possible"):
        _winner(replace(CASE, K_workers=1, methods=["backup:1"]))


# -- at the door ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes,says",
    [
        ({"parameters": 0}, "^parameters must be a whole number >= 1, got 0"),
        ({"parameters": 2.5}, "^parameters must be a whole number >= 1, got 2.5"),
        ({"example_s": -1}, "^example_s must be a finite number > 0, got -1"),
        ({"example_s": math.nan}, "^example_s must be a finite number > 0, got nan"),
        (
            {"b_examples": None},
            "^b_examples or B_examples must be given, and only one of the two, got neither",
        ),
        ({"B_examples": 1}, "^b_examples or B_examples must be given, and only one of the two"),
        ({"backward_share": 2}, "^backward_share must be a finite number .* <= 1"),
        ({"law": 1.5}, "^law must be a law of compute time"),
        ({"beta_bytes_per_s": 0.0}, "^beta_bytes_per_s must be a finite number > 0"),
        ({"allreduce": "rign"}, "^allreduce must be one of best, ring, halving"),
        (
            {"inside_alpha_s": 0.0},
            "must be given together, got no per_host_workers and no inside_beta_bytes_per_s",
        ),
        ({"B_crit_examples": None}, "^S_min_steps and B_crit_examples or total_examples must be given"),
        ({"methods": ["overlapped:0"]}, "^L must be a whole number >= 1, got 0"),
        ({"methods": ["ssp:3", "ssp:3"]}, "each with a name of its own"),
        ({"methods": []}, "^methods must be one at least"),
        ({"K_workers": []}, "^K_workers must hold at least one number of workers, got none"),
        ({"K_workers": [2, 0]}, "^K_workers must be a whole number >= 1, got 0"),
        ({"law": Pareto(1.0, 1.0)}, "^law must have a finite mean"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(changes, says):
    with pytest.raises(ValueError, match=says):
        plan(CASE, **changes)


def test_numpy_numbers_of_workers_and_steps_of_one_s_own_will_do():
    class Mine(Case):
        def steps(self, B):
            return 10.0 + 100.0 / B

    fields = {name: getattr(CASE, name) for name in CASE.__dataclass_fields__}
    made = plan(Mine(**fields), K_workers=np.array([1, 4]), methods=["sync"])
    assert made.rows[1].steps == pytest.approx(10 + 100 / 128)
    assert sum(made.rows[1].shares.values()) == pytest.approx(1)


def test_a_row_can_be_asked_for_by_itself():
    assert Row(CASE, EXACT[0], 8).time_s == plan(CASE).of("sync", 8)[0].time_s


def test_the_table_fits_100_columns_and_says_what_is_assumed():
    text = str(
        plan(CASE, law="lognormal:0.2", K_workers=[1, 64, 1000], methods=["sync", "ssp:3", "topk:0.01"])
    )
    assert max(map(len, text.splitlines())) <= 100
    assert "Weak scaling" in text and "step ms" in text and "optimistic" in text
