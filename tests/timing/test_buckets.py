"""Overlap by buckets over a matrix: equal to the single step's formula, and nothing is sent before it is there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from labkit.timing import Kind, bsp_ends, buckets, buckets_ends, overlap

SECONDS = st.floats(0, 10, allow_subnormal=False)
MATRICES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=SECONDS)


@st.composite
def plans(draw):
    L = draw(st.integers(1, 5))
    ready = [*sorted(draw(st.lists(st.floats(0, 1), min_size=L - 1, max_size=L - 1))), 1.0]
    return ready, draw(st.lists(SECONDS, min_size=L, max_size=L))


def talks(timeline, L):
    """(K, T, L, 2) starts and ends of the communication spans."""
    of = timeline.kind == Kind.COMMUNICATE
    order = np.lexsort((timeline.start_s[of], timeline.step[of], timeline.rank[of]))
    pairs = np.stack([timeline.start_s[of], timeline.end_s[of]], axis=1)[order]
    return pairs.reshape(timeline.K, timeline.T, L, 2)


@settings(deadline=None, max_examples=60)
@given(SECONDS, SECONDS, st.integers(1, 30), st.integers(1, 3), st.integers(1, 4))
def test_equal_buckets_and_equal_workers_are_the_single_steps_formula(p, a, L, K, T):
    ends = buckets_ends(np.full((K, T), p), np.arange(1, L + 1) / L, np.full(L, a / L))
    step = overlap(p, a, L)
    np.testing.assert_allclose(ends, np.arange(1, T + 1) * step.total_s, rtol=1e-12, atol=1e-12)
    timeline = buckets(np.full((K, T), p), np.arange(1, L + 1) / L, np.full(L, a / L))
    np.testing.assert_allclose(timeline.totals()[:, Kind.COMMUNICATE], T * a, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=80)
@given(MATRICES, plans())
def test_the_quick_form_is_the_loop_over_buckets(X, plan):
    timeline = buckets(X, *plan)
    ends = buckets_ends(X, *plan)
    assert timeline.finish_s == pytest.approx(ends[-1], rel=1e-12, abs=1e-12)
    begins = timeline.start_s[timeline.kind == Kind.COMPUTE].reshape(X.shape)
    np.testing.assert_allclose(begins[:, 1:], np.tile(ends[:-1], (len(X), 1)), rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(MATRICES, plans())
def test_no_bucket_is_sent_before_all_workers_have_it_or_while_another_one_is(X, plan):
    ready, seconds = plan[0], [s + 0.01 for s in plan[1]]
    timeline = buckets(X, ready, seconds)
    sent = talks(timeline, len(ready))
    assert (sent == sent[:1]).all()  # the same for all workers
    begin, end = sent[0, :, :, 0], sent[0, :, :, 1]
    np.testing.assert_allclose(end - begin, np.tile(seconds, (X.shape[1], 1)), rtol=1e-6)
    flat = np.stack([begin.ravel(), end.ravel()])
    assert (flat[0, 1:] >= flat[1, :-1]).all()
    starts = np.concatenate([[0.0], end[:-1, -1]])
    there = starts[:, None] + X.max(axis=0)[:, None] * np.array(ready)
    np.testing.assert_allclose(begin, np.maximum(there, np.append(0.0, flat[1, :-1]).reshape(begin.shape)))


@settings(deadline=None, max_examples=60)
@given(MATRICES, plans())
def test_waiting_is_what_is_left_of_a_step_when_neither_computing_nor_talking(X, plan):
    timeline = buckets(X, *plan)
    grid = np.linspace(0, timeline.finish_s, 200)[1:-1] + 1e-7
    covered = [
        [((timeline.start_s[m] <= g) & (g < timeline.end_s[m])).any() for g in grid]
        for k in range(timeline.K)
        for m in [timeline.rank == k]
    ]
    late = grid > timeline.finish_s
    assert (np.array(covered) | late).all()
    waits = (timeline.kind == Kind.WAIT).nonzero()[0]
    for i in waits:  # nobody waits and does something else
        others = (timeline.rank == timeline.rank[i]) & (np.arange(len(timeline.kind)) != i)
        overlapping = np.minimum(timeline.end_s[others], timeline.end_s[i]) - np.maximum(
            timeline.start_s[others], timeline.start_s[i]
        )
        assert overlapping.max() <= 1e-9


@settings(deadline=None, max_examples=60)
@given(MATRICES, st.floats(0, 5))
def test_one_bucket_is_bulk_synchronous_and_more_never_end_later(X, a):
    np.testing.assert_allclose(buckets_ends(X, [1.0], [a]), bsp_ends(X, a), rtol=1e-12, atol=1e-12)
    two = buckets_ends(X, [0.3, 1.0], [0.5 * a, 0.5 * a])[-1]
    assert two <= bsp_ends(X, a)[-1] + 1e-9


def test_a_small_last_bucket_hides_more_than_equal_ones():
    X = np.full((4, 10), 0.2)
    equal = buckets_ends(X, [0.5, 1.0], [0.03, 0.03])[-1]
    small = buckets_ends(X, [0.9, 1.0], [0.054, 0.006])[-1]
    assert equal == pytest.approx(10 * 0.230) and small == pytest.approx(10 * (0.18 + 0.054 + 0.006))
    assert buckets_ends(X, [0.7, 1.0], [0.042, 0.018])[-1] < equal


def test_replicas_are_independent_runs():
    X = np.random.default_rng(0).random((5, 12, 3))
    plan = [0.2, 0.7, 1.0], [0.3, 0.1, 0.2]
    apart = np.stack([buckets_ends(X[:, :, r], *plan) for r in range(3)], axis=1)
    np.testing.assert_array_equal(buckets_ends(X, *plan), apart)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: buckets([[0.1]], [0.5], [0.1]), "ready must be .* the last one 1, got .0.5"),
        (lambda: buckets([[0.1]], [0.5, 0.2, 1], [0.1] * 3), "ready must be .* never decrease"),
        (
            lambda: buckets([[0.1]], [-0.5, 1], [0.1] * 2),
            "ready must be shares|ready must be a list of shares",
        ),
        (lambda: buckets([[0.1]], [np.nan, 1], [0.1] * 2), "ready must be a list of shares .*nan"),
        (lambda: buckets([[0.1]], [], []), "ready must be a list of shares"),
        (
            lambda: buckets_ends([[0.1]], [0.5, 1], [0.1]),
            "allreduce_s must hold .* each of the 2 buckets, got",
        ),
        (lambda: buckets_ends([[0.1]], [1], [-0.1]), "allreduce_s must hold finite seconds >= 0 .*-0.1"),
        (lambda: buckets([[-0.1]], [1], [0.1]), "X must hold finite seconds >= 0, got .*-0.1"),
        (lambda: buckets_ends([0.1], [1], [0.1]), "X must have shape"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, words):
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
