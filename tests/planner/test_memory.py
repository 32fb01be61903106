"""What sharded training keeps and sends: the paper's numbers, and the collectives' own counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.collectives import ring
from labkit_book.planner.memory import MIXED, SINGLE, Precision, zero_bytes, zero_factor, zero_memory

workers, stages = st.integers(1, 9), st.integers(0, 3)


def test_the_papers_table_7_5_billion_parameters_on_64_gpus():
    """Rajbhandari et al. 2020, figure 1: 120, 31.4, 16.6 and 1.9 GB."""
    gigabytes = [round(zero_memory(7_500_000_000, 64, stage) / 1e9, 1) for stage in range(4)]
    assert gigabytes == [120.0, 31.4, 16.6, 1.9]


def test_single_precision_takes_as_many_bytes_as_mixed_differently_split():
    assert MIXED.total == SINGLE.total == 16
    assert zero_memory(100, 10, 1, SINGLE) == 880 and zero_memory(100, 10, 1, MIXED) == 520
    assert zero_memory(100, 10, 3, SINGLE) == zero_memory(100, 10, 3, MIXED) == 160


@given(P=st.integers(0, 10**12), K=workers)
def test_every_stage_keeps_no_more_than_the_one_before_and_one_worker_everything(P, K):
    kept = [zero_memory(P, K, stage) for stage in range(4)]
    assert kept == sorted(kept, reverse=True) and kept[0] == 16 * P
    assert np.isclose(kept[3] * K, 16 * P) and zero_memory(P, 1, 3) == 16 * P


@given(
    stage=stages,
    m=st.integers(1, 5),
    free=st.booleans(),
    K=st.integers(1, 6),
    parts=st.lists(st.integers(1, 9)),
)
def test_the_factor_is_bytes_over_the_all_reduces_where_workers_divide_the_vectors(stage, m, free, K, parts):
    sizes = [K * n for n in parts]
    counted = zero_bytes(K, sizes, 4, stage, m, free)
    assert np.allclose(counted, zero_factor(stage, m, free) * ring.bytes(K, sum(sizes), 4))


def test_the_factors_of_one_backward_pass_a_step():
    assert [zero_factor(stage) for stage in range(4)] == [1, 1, 1, 1.5]
    assert zero_factor(3, free_after_forward=False) == 1
    assert [zero_factor(stage, micro_batches=4) for stage in range(4)] == [1, 1, 2.5, 6]


@given(K=workers, sizes=st.lists(st.integers(0, 40), max_size=5), stage=stages)
def test_no_byte_is_lost_between_ranks_that_do_not_divide_evenly(K, sizes, stage):
    halves = 2 * zero_factor(stage)
    assert zero_bytes(K, sizes, 4, stage).sum() == halves * (K - 1) * 4 * sum(sizes)


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda: zero_memory(10, 2, 4), "stage must be a whole number from 0 to 3, got 4"),
        (lambda: zero_memory(10, 0, 1), "K must be a whole number >= 1, got 0"),
        (lambda: zero_factor(1, 0), "micro_batches must be a whole number >= 1, got 0"),
        (lambda: Precision(2, 2, -1), "state must be a whole number >= 0, got -1"),
        (lambda: zero_memory(1.5, 2, 1), "P must be a whole number >= 0, got 1.5"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
