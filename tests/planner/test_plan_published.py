"""The planner beside published efficiencies: what it is fed, and what it reaches on rows that it was not made on."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from labkit_book.labs.published import HALVES, errors, pairs, published
from labkit_book.planner import Row, parse_method
from labkit_book.planner.row import AS_RUN

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


def test_efficiency_is_a_worker_s_share_of_the_rate_over_the_base_s():
    told = {
        ("horovod2017", "VGG-16, fp32", 16): 13.7 / 16, ("horovod2017", "VGG-16, fp32", 64): 40.7 / 64,
        ("horovod2018", "VGG-16, fp32", 512): 0.68, ("goyal2017", "ResNet-50, fp32", 256): 0.9,
    }  # fmt: skip
    for key, share in told.items():
        found = [row.efficiency for row in FOUND if (row.source, row.model, row.K_workers) == key]
        assert any(each == pytest.approx(share, abs=0.05 / key[2] + 1e-9) for each in found)


def test_the_plan_beats_what_anybody_could_say_on_the_rows_that_it_was_not_made_on():
    off = {name: np.abs(each).mean() for name, each in errors(OF["test"]).items()}
    assert off["the plan"] < min(off[name] for name in off if name != "the plan") and off["the plan"] <= 9


def test_about_nine_of_ten_rows_lie_in_the_range_that_says_so():
    for rows in (FOUND, OF["test"]):
        inside = [low <= row.efficiency <= high for row in rows for low, high in [row.range]]
        assert 0.8 <= np.mean(inside) <= 0.95


def test_a_measured_step_near_by_corrects_more_than_one_far_away():
    found = pairs(FOUND)
    assert all(row.series == one.series and one.K_workers < row.K_workers for row, one in found)
    far = np.mean([100 * abs(row.after(one) - row.efficiency) for row, one in found])
    series = {row.series: [other for other in FOUND if other.series == row.series] for row, _ in found}
    near = []
    for row, _ in found:
        others = [other for other in series[row.series] if other.K_workers != row.K_workers]
        one = min(others, key=lambda other: abs(math.log(other.K_workers / row.K_workers)))
        near.append(100 * abs(row.after(one) - row.efficiency))
    assert np.mean(near) < far < np.mean([100 * abs(row.predicted - row.efficiency) for row, _ in found])


def test_the_correction_is_the_planner_s_own():
    """A case that is given one measured step predicts the other row of its series as `after` does."""
    row, one = next((r, o) for r, o in pairs(FOUND) if r.base_workers == 1 and r.b_examples == o.b_examples)
    step_s = one.b_examples * one.passes * one.K_workers / one.rate
    fed = replace(row.case(row.K_workers), measured=[(one.K_workers, step_s)])
    speed = Row(fed, parse_method(AS_RUN), row.K_workers).examples_per_s / row.K_workers
    measured = row.base_rate / row.base_workers
    assert speed / measured == pytest.approx(row.after(one), rel=1e-9)


def test_every_input_says_where_it_stands():
    for row in FOUND:
        assert row.stated and all(row.stated.values()) and math.isfinite(row.predicted)
        assert row.K_workers > row.per_host and row.transport in ("rdma", "tcp")
    assert not re.search(r"parameter server|kvstore|by MPI", " ".join(row.framework for row in FOUND))
