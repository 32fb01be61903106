"""Local steps: a barrier after every H-th step, and none in between."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from labkit.timing import Asynchronous, Kind, LocalSteps, ShiftedExponential, Synchronous, draw

SHAPES = array_shapes(min_dims=2, max_dims=2, max_side=8)
MATRICES = arrays(np.float64, SHAPES, elements=st.floats(0, 10, allow_subnormal=False))
COMM = st.sampled_from([0.0, 0.5])


@settings(deadline=None, max_examples=60)
@given(MATRICES, COMM)
def test_one_local_step_is_bulk_synchronous_to_the_last_bit(X, comm_s):
    a, b = LocalSteps(1).timeline(X, comm_s), Synchronous().timeline(X, comm_s)
    for name in ("rank", "step", "kind", "start_s", "end_s", "arrivals_s", "names"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    np.testing.assert_array_equal(LocalSteps(1).ends(X, comm_s), Synchronous().ends(X, comm_s))


@settings(deadline=None, max_examples=80)
@given(MATRICES, st.integers(1, 9), COMM)
def test_a_block_of_h_steps_is_one_superstep_of_their_sums(X, H, comm_s):
    blocks = np.stack([X[:, t : t + H].sum(axis=1) for t in range(0, X.shape[1], H)], axis=1)
    timeline, whole = LocalSteps(H).timeline(X, comm_s), Synchronous().timeline(blocks, comm_s)
    np.testing.assert_allclose(timeline.arrivals_s, whole.arrivals_s, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(timeline.totals(), whole.totals(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(timeline.per_step(Kind.COMPUTE), X, rtol=1e-9, atol=1e-9)
    ends = LocalSteps(H).ends(X, comm_s)
    np.testing.assert_allclose(
        np.append(ends[H - 1 : -1 : H], ends[-1]), Synchronous().ends(blocks, comm_s), rtol=1e-12
    )


@settings(deadline=None, max_examples=60)
@given(MATRICES, st.integers(1, 9), COMM)
def test_the_quick_form_says_when_the_slowest_has_finished_each_step(X, H, comm_s):
    timeline = LocalSteps(H).timeline(X, comm_s)
    finished = np.zeros(X.shape)
    np.maximum.at(finished, (timeline.rank, timeline.step), timeline.end_s)
    np.testing.assert_array_equal(LocalSteps(H).ends(X, comm_s), finished.max(axis=0))


@settings(deadline=None, max_examples=60)
@given(MATRICES, st.integers(0, 3))
def test_with_t_local_steps_nobody_waits_before_the_end(X, more):
    T = X.shape[1]
    free, timeline = Asynchronous().timeline(X), LocalSteps(T + more).timeline(X)
    np.testing.assert_array_equal(timeline.arrivals_s[:, 0], free.arrivals_s[:, -1])
    assert timeline.names == (f"step {T - 1}",) and timeline.finish_s == free.finish_s


@settings(deadline=None, max_examples=60)
@given(MATRICES, st.integers(1, 4), st.integers(2, 3))
def test_meeting_only_at_some_of_the_meetings_never_ends_later(X, H, times):
    assert LocalSteps(times * H).ends(X, 0.1)[-1] <= LocalSteps(H).ends(X, 0.1)[-1] + 1e-9


def test_chance_evens_out_within_a_block():
    X = draw(ShiftedExponential(0.0, 1.0), 16, 512, seed=0)
    per_step = [LocalSteps(H).ends(X)[-1] / 512 for H in (1, 4, 16, 64)]
    assert per_step == sorted(per_step, reverse=True)
    assert per_step[0] > 3 and per_step[-1] < 1.4  # the 16th harmonic number is 3.4, the mean 1


def test_replicas_are_independent_runs_and_slower_clocks_stretch_them():
    X = np.random.default_rng(0).random((5, 12, 3))
    for H in (1, 5, 20):
        apart = np.stack([LocalSteps(H).ends(X[:, :, r], 0.1) for r in range(3)], axis=1)
        np.testing.assert_array_equal(LocalSteps(H).ends(X, 0.1), apart)
        np.testing.assert_array_equal(LocalSteps(H).ends(2 * X, 0.2), 2 * apart)
        np.testing.assert_array_equal(LocalSteps(H).ends(X[::-1], 0.1), apart)
        np.testing.assert_array_equal(Synchronous().ends(X, 0.1)[:, 1], Synchronous().ends(X[:, :, 1], 0.1))


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: LocalSteps(0).timeline([[0.1]]), "H must be a whole number >= 1, got 0"),
        (lambda: LocalSteps(1.5).ends([[0.1]]), "H must be a whole number >= 1, got 1.5"),
        (lambda: LocalSteps(1).timeline([[0.1]], -1), "comm_s must be a finite number >= 0, got -1"),
        (lambda: LocalSteps(1).ends([[0.1]], np.inf), "comm_s must be a finite number >= 0, got inf"),
        (lambda: LocalSteps(1).timeline([[0.1, -3.0]]), "X must hold finite seconds >= 0, got .*-3.0"),
        (lambda: LocalSteps(1).ends(np.zeros((0, 2))), "no empty axis"),
        (lambda: Synchronous().ends([[np.nan]]), "got .*nan"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, words):
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
