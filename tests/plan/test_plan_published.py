"""The planner beside published efficiencies: the rule that splits the sources, what it is fed, and what it reaches."""

import math
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from labkit.plan import published as module
from labkit.plan.published import as_rows, errors, half, pairs, published, table

FOUND = published()
TEXT = Path(module.__file__).with_name("published.toml").read_text(encoding="utf-8")
HALVES = {which: [row for row in FOUND if row.half == which] for which in module.HALVES}


def test_sources_are_split_by_how_many_rows_they_have_and_by_nothing_else():
    sources = tomllib.loads(TEXT)["sources"]
    added = [s["key"] for s in sources if s.get("added")]
    sources = [s for s in sources if s["key"] not in added]
    assert all(row.half == "development" for row in FOUND if row.source in added)
    sizes = {s["key"]: sum(len(g["rows"]) for g in s["groups"]) for s in sources}
    before = [s["key"] for s in sources if s["held_before"]]
    assert before == ["horovod2017", "nvidia_dle"]
    dealt, counts = {}, dict.fromkeys(module.HALVES, 0)
    for key in before:
        dealt[key] = "development"
        counts["development"] += sizes[key]
    rest = sorted((-n, key) for key, n in sizes.items() if key not in before)
    for n, key in rest:
        dealt[key] = "test" if counts["test"] <= counts["development"] else "development"
        counts[dealt[key]] -= n
    assert half(sizes, before) == dealt == {row.source: row.half for row in FOUND if row.source not in added}


def test_the_test_half_is_as_large_as_was_asked():
    rows = HALVES["test"]
    assert len(rows) >= 60 and len({row.source for row in rows}) >= 4
    assert min(row.K_workers for row in rows) <= 16 and max(row.K_workers for row in rows) >= 1000
    assert not {row.source for row in rows} & {row.source for row in HALVES["development"]}


@pytest.mark.parametrize("row", FOUND[::7], ids=lambda row: f"{row.source}, {row.K_workers}")
def test_no_overlap_is_what_a_plain_loop_makes_of_the_data_sheets(row):
    """One sum after computing, over hosts and inside them, at all of the rate."""
    b0, p0 = row.base_b_examples or row.b_examples, row.base_passes or row.passes

    def speed(K, examples):
        computing = examples * row.base_workers / row.base_rate
        return examples / (computing + row.sum_s(K))

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


def test_the_plan_beats_what_anybody_could_say_on_the_half_it_was_not_made_on():
    off = {name: np.abs(each).mean() for name, each in errors(HALVES["test"]).items()}
    assert off["the plan"] < min(off[name] for name in off if name != "the plan")
    assert off["the plan"] <= 9


def test_nine_of_ten_rows_lie_in_the_range_that_says_so():
    for rows in HALVES.values():
        inside = [low <= row.efficiency <= high for row in rows for low, high in [row.range]]
        assert 0.8 <= np.mean(inside) <= 0.95


def test_one_measured_step_corrects_the_others_of_its_series():
    for rows in HALVES.values():
        found = pairs(rows)
        assert all(row.series == one.series and one.K_workers < row.K_workers for row, one in found)
        after = [100 * abs(row.after(one) - row.efficiency) for row, one in found]
        alone = [100 * abs(row.predicted - row.efficiency) for row, one in found]
        assert np.mean(after) <= 5 and np.mean(after) < np.mean(alone)


def test_the_correction_is_the_planner_s_own():
    """A case that is given one measured step predicts the other row of its series as `after` does."""
    row, one = next((r, o) for r, o in pairs(FOUND) if r.base_workers == 1 and r.b_examples == o.b_examples)
    step_s = one.b_examples * one.passes * one.K_workers / one.rate
    from dataclasses import replace

    from labkit.plan import Row, parse_method
    from labkit.plan.row import AS_RUN

    fed = replace(row.case(row.K_workers), measured=[(one.K_workers, step_s)])
    speed = Row(fed, parse_method(AS_RUN), row.K_workers).examples_per_s / row.K_workers
    measured = row.base_rate / row.base_workers
    assert speed / measured == pytest.approx(row.after(one), rel=1e-9)


def test_every_input_says_where_it_stands_and_the_table_fits():
    for row in FOUND:
        assert row.stated and all(row.stated.values()) and math.isfinite(row.predicted)
        assert row.K_workers > row.per_host and row.transport in ("rdma", "tcp")
    assert not re.search(r"parameter server|kvstore|by MPI", " ".join(row.framework for row in FOUND))
    assert max(map(len, table().splitlines())) <= 120
    assert [row["efficiency"] for row in as_rows()] == [row.efficiency for row in FOUND]
