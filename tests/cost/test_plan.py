"""The plan: time to accuracy, what is best and why, where it ties and where it flips."""

import math
from dataclasses import replace

import numpy as np
import pytest

from labkit.cost import Link
from labkit.cost.plan import (
    SSP,
    Backup,
    Cluster,
    Compressed,
    Efficient,
    Examples,
    Job,
    Least,
    LocalSGD,
    Overlapped,
    Sync,
    TwoLevel,
    defaults,
    goal,
    plan,
)
from labkit.cost.plan.flips import flips, winner
from labkit.cost.plan.inputs import Target
from labkit.cost.plan.network import allreduce, push_pull
from labkit.cost.plan.plan import one
from labkit.cost.plan.why import MEANING, binds, break_even, shares, verdict
from labkit.learn import Hyperbola
from labkit.timing import Constant, LogNormal, OneStraggler, Pareto

LINK = Link(20e-6, 3.125e9)
CLUSTER = Cluster(LINK, price_per_hour=2.5)
TARGET = Hyperbola(7000, 4096)
JOB = Job(P=25_600_000, example_s=4e-3, b=32)
EXACT = (Sync(), Overlapped(8), LocalSGD(8, steps_factor=1.3))


# -- rows -------------------------------------------------------------------------------------------------------------


def test_time_is_steps_times_seconds_and_money_is_workers_times_time():
    made = plan(JOB, CLUSTER, TARGET, [1, 8, 64])
    for row in made.rows:
        assert row.time_s == pytest.approx(row.steps * row.step.seconds)
        assert row.price == pytest.approx(2.5 * row.K * row.time_s / 3600)
        assert row.examples_per_s == pytest.approx(row.B / row.step.seconds)
        assert row.step.seconds == pytest.approx(row.step.compute_s + row.step.wait_s + row.step.comm_s)
        if row.name != "backup:1":
            assert row.B == 32 * row.K and row.steps == pytest.approx(TARGET.steps(row.B))


def test_efficiency_is_one_for_a_worker_alone_and_the_share_of_computing_in_weak_scaling():
    made = plan(JOB, CLUSTER, TARGET, [1, 16], [Sync()])
    alone, many = made.rows
    assert alone.efficiency == alone.speedup == pytest.approx(1)
    assert many.efficiency == pytest.approx(many.step.compute_s / many.step.seconds)
    assert many.speedup == pytest.approx(alone.time_s / many.time_s)


def test_a_steady_straggler_is_not_what_a_row_is_measured_against():
    slow = replace(JOB, law=OneStraggler(Constant(1.0), 2.0))
    alone, row = plan(slow, Cluster(Link(0.0, math.inf)), TARGET, [1, 8], [Sync()]).rows
    assert row.efficiency == alone.efficiency == alone.speedup == pytest.approx(0.5)


def test_strong_scaling_keeps_the_batch_and_the_steps_and_stops_at_b():
    job = Job(P=1000, example_s=1e-3, B=10)
    made = plan(job, Cluster(Link(0.0, math.inf)), TARGET, [1, 3, 10, 11, 20], [Sync()])
    assert [(row.K, row.b, row.B) for row in made.rows] == [(1, 10, 10), (3, 4, 10), (10, 1, 10)]
    assert len({row.steps for row in made.rows}) == 1
    assert made.of(K=3)[0].efficiency == pytest.approx(10 / 12)  # the busiest worker has 4 of 10
    assert [(left.K, left.why) for left in made.left_out] == [
        (K, f"K must be at most the B = 10 examples that there are in a step, got {K}") for K in (11, 20)
    ]
    with pytest.raises(
        ValueError, match="K must leave some method possible, but K must be at most the B = 10"
    ):
        plan(job, CLUSTER, TARGET, 11, [Sync()])


def test_what_no_k_allows_is_left_out_and_said():
    made = plan(JOB, CLUSTER, TARGET, [1, 2], [Sync(), Backup(1)])
    assert [(row.name, row.K) for row in made.rows] == [("sync", 1), ("sync", 2), ("backup:1", 2)]
    assert made.left_out == (("backup:1", 1, "backups must be less than K = 1, got 1"),)


def test_examples_are_a_hyperbola_without_a_least_number_of_steps():
    few = plan(JOB, CLUSTER, Examples(1e6), [1, 8], [Sync(), Compressed(omega=2.0)])
    assert few.of("sync", 8)[0].steps == pytest.approx(1e6 / 256)
    assert few.best(name="identity", K=8).steps == pytest.approx(3e6 / 256)
    near = plan(JOB, CLUSTER, Hyperbola(1e-6, 1e12), [8], [Compressed(omega=2.0)])
    assert near.rows[0].steps == pytest.approx(3e6 / 256, rel=1e-6)


@pytest.mark.parametrize("name,low,high", [("beta", 1e8, 1e10), ("alpha", 1e-6, 1e-3), ("P", 10**6, 10**8)])
def test_a_worse_network_and_more_parameters_never_help(name, low, high):
    def rows(value):
        job = replace(JOB, P=value) if name == "P" else JOB
        link = LINK if name == "P" else Link(**{"alpha": 20e-6, "beta": 3.125e9} | {name: value})
        return plan(job, Cluster(link), TARGET, [2, 9, 32]).rows

    better, worse = (rows(high), rows(low)) if name == "beta" else (rows(low), rows(high))
    assert all(a.time_s <= b.time_s * (1 + 1e-9) for a, b in zip(better, worse, strict=True))


# -- best -------------------------------------------------------------------------------------------------------------


def test_goals_choose_what_they_say():
    made = plan(JOB, CLUSTER, TARGET, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512], EXACT)
    assert made.best(Least("time")).time_s == min(row.time_s for row in made.rows)
    assert made.best(Least("price")).price == min(row.price for row in made.rows)
    assert made.best(Least("knee")).K < made.best(Least("time")).K
    allowed = [row for row in made.rows if row.efficiency >= 0.95]
    assert made.best(Efficient(0.95)).time_s == min(row.time_s for row in allowed)
    assert made.best(name="sync").name == "sync" and made.best(K=4).K == 4
    with pytest.raises(
        ValueError, match=r"goal must be within reach .* the most efficient, \S+ with K = \d+, has 0\.\d+"
    ):
        plan(JOB, CLUSTER, TARGET, [64], EXACT).best(Efficient(1.0))
    with pytest.raises(ValueError, match="name and K must be in the plan"):
        made.best(name="ssp:3")


def test_with_nothing_but_computation_the_knee_of_weak_scaling_is_the_critical_batch():
    free = Cluster(Link(0.0, math.inf))
    Ks = range(1, 1000)
    made = plan(JOB, free, Hyperbola(100, 32 * 37), Ks, [Sync()], Least("knee"))
    assert made.best().K == 37


def test_goals_are_read_from_words():
    assert goal("price") == Least("price") and goal(" knee ") == Least("knee")
    assert goal("efficiency>=0.8") == Efficient(0.8) == goal("efficiency >= 80%")
    for text, says in (
        ("cheap", "goal must be time, price, knee or efficiency>=0.8"),
        ("efficiency>=2", "at_least"),
    ):
        with pytest.raises(ValueError, match=says):
            goal(text)


# -- why --------------------------------------------------------------------------------------------------------------


def test_the_bill_adds_up_and_names_what_was_made_large():
    small = Job(P=10, example_s=1e-3, b=32)
    quick = Cluster(Link(0.0, 1e12))
    huge = Hyperbola(1e5, 1e9)
    cases = {
        "examples": (small, quick, huge),
        "critical batch": (small, quick, Hyperbola(1e5, 1.0)),
        "overhead": (replace(small, overhead_s=1.0), quick, huge),
        "wait": (replace(small, law=OneStraggler(Constant(1.0), 19.0)), quick, huge),
        "latency": (small, Cluster(Link(1.0, 1e12)), huge),
        "bandwidth": (replace(small, P=10**9), Cluster(Link(0.0, 1e6)), huge),
    }
    for term, (job, cluster, target) in cases.items():
        made = plan(job, cluster, target, 8, [Sync()])
        parts = shares(made, made.rows[0])
        assert set(parts) == set(MEANING)
        assert sum(parts.values()) == pytest.approx(1) and min(parts.values()) >= 0
        assert binds(made, made.rows[0]) == term and parts[term] > 0.8
    coded = plan(small, quick, huge, 8, [Compressed(coding_s=9.0)])
    assert binds(coded, coded.rows[0]) == "coding"


def test_examples_that_a_large_batch_wastes_are_those_beyond_the_least():
    made = plan(
        JOB, Cluster(Link(0.0, math.inf)), TARGET, 128, [Sync()]
    )  # B = B_crit: twice as many as needed
    parts = shares(made, made.rows[0])
    assert parts["critical batch"] == pytest.approx(0.5) == parts["examples"]
    sentence = verdict(made).sentence
    assert sentence.startswith("sync with K = 128 has the least time; 50 % of its bill is computing")


# -- break-even -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aim", [Least("time"), Least("price"), Least("knee"), Efficient(0.5)], ids=str)
def test_at_its_break_even_a_method_ties_with_the_best_other(aim):
    made = plan(JOB, CLUSTER, TARGET, [4, 16, 64], EXACT, aim)
    for even in break_even(made):
        tied = [replace(m, steps_factor=even.factor) if m.name == even.name else m for m in EXACT]
        again = plan(JOB, CLUSTER, TARGET, [4, 16, 64], tied, aim)
        mine, rival = again.best(name=even.name), again.best(name=even.rival)
        assert aim.value(mine) == pytest.approx(aim.value(rival), rel=1e-9)
        assert even.room > 1 or made.best().name != even.name


def test_one_method_alone_has_nobody_to_tie_with():
    with pytest.raises(ValueError, match="plan must hold two methods that the goal allows"):
        break_even(plan(JOB, CLUSTER, TARGET, 4, [Sync()]))


# -- flips ------------------------------------------------------------------------------------------------------------


def test_every_flip_flips_just_there_and_not_before():
    job = replace(JOB, P=100_000_000)
    made = plan(job, CLUSTER, TARGET, [1, 2, 4, 8, 16, 32], EXACT)
    found = flips(made, K=8)
    turned = [flip for flip in found if flip.at is not None]
    assert {flip.dial for flip in turned} >= {"beta", "P", "K", "steps_factor"} and any(
        flip.at is None for flip in found
    )
    link = CLUSTER.network
    for flip in found:

        def best(value, flip=flip):
            j, c, K = job, CLUSTER, 8
            ways = EXACT
            if flip.dial == "steps_factor":
                ways = [replace(m, steps_factor=value) if m.name == flip.best else m for m in EXACT]
            elif flip.dial == "K":
                K = round(value)
            elif flip.dial == "P":
                j = replace(job, P=round(value))
            elif flip.dial == "slowdown":
                j = replace(job, law=OneStraggler(Constant(1.0), value))
            else:
                c = replace(CLUSTER, network=replace(link, **{flip.dial: value}))
            rows = {m.name: one(j, c, TARGET, m, K).time_s for m in ways}
            return min(rows, key=rows.get), rows

        if flip.at is None:
            assert best(flip.until)[1][flip.best] == pytest.approx(
                min(best(flip.until)[1].values()), rel=1e-9
            )
            continue
        up = flip.until > flip.now
        step = 1 if flip.dial in ("K", "P") else 1e-5 * flip.at
        if flip.dial == "steps_factor":  # exactly the tie
            assert best(flip.at + step)[0] == flip.other != flip.best
        else:
            assert best(flip.at)[0] == flip.other != flip.best
        assert best(flip.at - step if up else flip.at + step)[0] == flip.best
        assert f"{flip.other} overtakes {flip.best} at " in str(flip)


@pytest.mark.parametrize("law", [LogNormal(1.0, 0.3), OneStraggler(LogNormal(1.0, 0.1), 2.0)], ids=str)
def test_what_is_left_unsimulated_would_not_have_won(law):
    job = replace(JOB, law=law)
    for beta in (1e8, 1e10, 1e12):
        for K in (2, 12):
            cluster = Cluster(Link(20e-6, beta))
            rows = {m.name: one(job, cluster, TARGET, m, K).time_s for m in defaults()}
            assert winner(job, cluster, TARGET, defaults(), K) == min(rows, key=rows.get)


def test_the_straggler_s_dial_starts_where_the_law_has_it_and_backups_win_beyond():
    job = replace(JOB, law=OneStraggler(Constant(1.0), 1.2))
    made = plan(job, CLUSTER, TARGET, [8], [Sync(), Backup(1)])
    down, up = flips(made, only=["slowdown"])
    t, whole, less = job.compute_s(32), TARGET.steps(256), TARGET.steps(224)
    seconds = (
        (t + push_pull(LINK, 8, job.nbytes).seconds) * less / whole
    )  # of a round of backup's, in steps of sync's
    tie = (seconds - allreduce(LINK, 8, job.nbytes).seconds) / t
    assert (down.now, down.best, down.at, down.other) == (
        1.2,
        "backup:1",
        pytest.approx(tie, rel=1e-5),
        "sync",
    )
    assert up.at is None and up.best == "backup:1"


def test_a_tie_is_no_flip_and_bad_dials_are_refused():
    free = Cluster(Link(0.0, math.inf))
    made = plan(JOB, free, TARGET, [1, 4], [Sync(), Overlapped(8)])
    assert all(flip.at is None for flip in flips(made, K=4, only=["K", "P"]))
    listed_last = plan(
        JOB, CLUSTER, TARGET, [1, 8], [Sync(), LocalSGD(8)]
    )  # with one worker both are the same
    (down,) = flips(listed_last, K=8, only=["K"])
    assert down.best == "local:8" and down.at is None
    with pytest.raises(ValueError, match="only must name dials of K, P, slowdown, steps_factor, got 'gamma'"):
        flips(made, only=["gamma"])
    with pytest.raises(ValueError, match="K must leave some method possible"):
        winner(JOB, free, TARGET, [Backup(1)], 1)


# -- at the door ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call,says",
    [
        (lambda: Job(P=0, example_s=1, b=1), "^P must be a whole number >= 1, got 0"),
        (lambda: Job(P=2.5, example_s=1, b=1), "^P must be a whole number >= 1, got 2.5"),
        (lambda: Job(P=1, example_s=-1, b=1), "^example_s must be a finite number > 0, got -1"),
        (lambda: Job(P=1, example_s=math.nan, b=1), "^example_s must be a finite number > 0, got nan"),
        (lambda: Job(P=1, example_s=1), "^b or B must be given, and only one of them"),
        (lambda: Job(P=1, example_s=1, b=1, B=1), "^b or B must be given, and only one of them"),
        (lambda: Job(P=1, example_s=1, B=0), "^B must be a whole number >= 1, got 0"),
        (lambda: Job(P=1, example_s=1, b=1, backward_share=2), "^backward_share must be a finite number .* <= 1"),
        (lambda: Job(P=1, example_s=1, b=1, law=1.5), "^law must be a law of compute time"),
        (lambda: Cluster(3.0), "^network must be a Link or a TwoLevel, got 3.0"),
        (lambda: Cluster(LINK, -1.0), "^price_per_hour must be a finite number >= 0, got -1.0"),
        (lambda: Cluster(LINK, 1.0, "rign"), "^allreduce must be one of best, ring, halving"),
        (lambda: Cluster(TwoLevel(LINK, LINK, 4), 1.0, "tree"), "^allreduce must be one of best, ring, hierarchical, got"),
        (lambda: TwoLevel(LINK, 1.0, 4), "^across must be a Link"),
        (lambda: TwoLevel(LINK, LINK, 0), "^per_host must be a whole number >= 1, got 0"),
        (lambda: Examples(0), "^total must be a finite number > 0, got 0"),
        (lambda: Sync(steps_factor=0), "^steps_factor must be a finite number > 0, got 0"),
        (lambda: Overlapped(0), "^L must be a whole number >= 1, got 0"),
        (lambda: SSP(-1), "^slack must be a whole number >= 0, got -1"),
        (lambda: LocalSGD(0), "^H must be a whole number >= 1, got 0"),
        (lambda: Compressed(omega=-1), "^omega must be a finite number >= 0, got -1"),
        (lambda: plan(JOB, CLUSTER, TARGET, []), "^K must hold at least one number of workers, got none"),
        (lambda: plan(JOB, CLUSTER, TARGET, [2, 0]), "^K must be a whole number >= 1, got 0"),
        (lambda: plan(JOB, CLUSTER, TARGET, 4, []), "^methods must be one at least"),
        (lambda: plan(JOB, CLUSTER, TARGET, 4, [Sync(), Sync()]), "each with a name of its own"),
        (lambda: plan(replace(JOB, law=Pareto(1.0, 1.0)), CLUSTER, TARGET, 4), "^law must have a finite mean"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_numpy_numbers_of_workers_and_a_target_of_one_s_own_will_do():
    class Mine(Target):
        def steps(self, B):
            return 10.0 + 100.0 / B

    made = plan(JOB, CLUSTER, Mine(), np.array([1, 4]), [Sync()])
    assert made.rows[1].steps == pytest.approx(10 + 100 / 128)
    assert sum(shares(made, made.rows[1]).values()) == pytest.approx(1)


def test_the_table_fits_100_columns_and_says_what_is_assumed():
    job = replace(JOB, law=LogNormal(1.0, 0.2))
    text = str(plan(job, CLUSTER, TARGET, [1, 64, 1000]))
    assert max(map(len, text.splitlines())) <= 100
    assert "Weak scaling" in text and "step ms" in text and "optimistic" in text
