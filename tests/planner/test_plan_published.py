"""The planner beside published efficiencies: what it is fed, and what it reaches on rows that it was not made on."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from labkit_book.labs.published import HALVES, errors, pairs, published
from labkit_book.planner import Row
from labkit_book.planner.row import AS_RUN, MEASURED_RANGE

FOUND = published()
OF = {which: [row for row in FOUND if row.half == which] for which in HALVES}


@pytest.mark.parametrize("which", HALVES[1:])
def test_a_test_half_is_as_large_as_was_asked_and_shares_no_source(which):
    rows, others = OF[which], [row for row in FOUND if row.half != which]
    assert len(rows) >= 60 and len({row.source for row in rows}) >= 4
    assert min(row.K_workers for row in rows) <= 16 and max(row.K_workers for row in rows) >= 1000
    assert not {row.source for row in rows} & {row.source for row in others}


@pytest.mark.parametrize("row", FOUND[::7], ids=lambda row: f"{row.source}, {row.K_workers}")
def test_no_overlap_is_what_a_plain_loop_makes_of_the_data_sheets(row):
    """One sum after computing, at all of the rates: a ring that passes both links at once, or inside and then across."""
    b0, p0 = row.base_b_examples or row.b_examples, row.base_passes or row.passes
    n, case = row.parameters * row.element_bytes, row.case(row.K_workers)
    alpha, inner = case.alpha_s, case.inside_alpha_s or 0.0
    inside, link = case.inside_beta_bytes_per_s or math.inf, case.beta_bytes_per_s

    def sum_s(K):
        L = min(row.per_host, K)
        H, tree = K / L, math.ceil(math.log2(L))
        within = 2 * (L - 1) * (inner + n / L / inside)
        across = 2 * (H - 1) * (alpha + n / H / link)
        leaders = 2 * tree * (inner + n / inside) + across
        around = 2 * (K - 1) * max(alpha + n / K / link, inner + n / K / inside) if H > 1 else within
        ways = [around, leaders, within + across]
        return min(ways) if K % row.per_host == 0 or H == 1 else min(ways[:2])

    def speed(K, examples):
        return examples / (examples * row.base_workers / row.base_rate + sum_s(K))

    mine, its = speed(row.K_workers, row.b_examples * row.passes), speed(row.base_workers, b0 * p0)
    assert row.without_overlap == pytest.approx(mine / its, rel=1e-9)


def test_the_plan_beats_what_anybody_could_say_on_the_rows_that_it_was_not_made_on():
    off = {name: np.abs(each).mean() for name, each in errors(OF["test"]).items()}
    assert off["the plan"] < min(off[name] for name in off if name != "the plan") and off["the plan"] <= 10


def test_about_nine_of_ten_rows_lie_in_the_range_whose_middle_is_the_point():
    """Points by which the middle row is told too high: by the inputs alone, and by the middle of the range."""
    told = {"all": (FOUND, -0.4, -5.3), "test": (OF["test"], -1.3, -6.4)}
    for rows, unseen, middle in told.values():
        inside = [low <= row.efficiency <= high for row in rows for low, high in [row.range]]
        assert 0.85 <= np.mean(inside) <= 0.95
        assert all(row.predicted**2 == pytest.approx(math.prod(row.range)) for row in rows)
        above = [[100 * (each - row.efficiency) for each in (row.unseen, row.predicted)] for row in rows]
        assert np.median(above, axis=0) == pytest.approx([unseen, middle], abs=0.05)


def test_one_measured_step_near_by_leaves_about_nine_of_ten_in_its_range():
    least, most = MEASURED_RANGE
    held = [least <= row.after(one) / row.efficiency <= most for row, one in pairs(FOUND)]
    assert 0.85 <= np.mean(held) <= 0.95


def test_the_correction_is_the_planner_s_own():
    """A case that is given one measured step predicts the other row of its series as `after` does."""
    row, one = next((r, o) for r, o in pairs(FOUND) if r.base_workers == 1 and r.b_examples == o.b_examples)
    step_s = one.b_examples * one.passes * one.K_workers / one.rate
    fed = replace(row.case(row.K_workers), measured=[(one.K_workers, step_s)])
    planned = Row(fed, AS_RUN, row.K_workers)
    speed = planned.B / planned.step.seconds / row.K_workers
    assert speed / (row.base_rate / row.base_workers) == pytest.approx(row.after(one), rel=1e-9)


def test_what_was_put_on_record_is_what_the_planner_says():
    """Nothing was changed after the results were known, in the planner or in the file."""
    recorded = published("on_record.toml")
    assert len(recorded) == 23 and not {row.source for row in recorded} & {row.source for row in FOUND}
    for row in recorded:
        low, high = row.range
        assert [100 * low, 100 * row.predicted, 100 * high] == pytest.approx(row.said, abs=0.06)


def test_every_input_says_where_it_stands():
    for row in (*FOUND, *published("on_record.toml")):
        assert row.stated and all(row.stated.values()) and math.isfinite(row.predicted)
        assert row.K_workers > row.per_host and row.transport in ("rdma", "tcp")
    assert not re.search(r"parameter server|kvstore|by MPI", " ".join(row.framework for row in FOUND))
