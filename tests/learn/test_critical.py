"""Steps against batch size: the hyperbola, and the fit that finds it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.learn import Hyperbola, fit_hyperbola


@given(st.floats(1, 1e4), st.floats(0.1, 1e5), st.floats(0.1, 1e7))
def test_steps_and_examples_lie_on_the_hyperbola_of_the_paper(S_min, B_crit, B):
    h = Hyperbola(S_min, B_crit)
    S, E = h.steps(B), h.examples(B)
    assert pytest.approx(B * S) == E
    over_steps, over_examples = B_crit / B, B / B_crit  # S / S_min - 1 and E / E_min - 1
    assert pytest.approx(S_min * (1 + over_steps)) == S
    assert pytest.approx(h.E_min * (1 + over_examples)) == E
    assert over_steps * over_examples == pytest.approx(1)


def test_at_the_critical_batch_both_bills_are_twice_the_least():
    h = Hyperbola(30.0, 64.0)
    assert h.steps(64) == 60 and h.examples(64) == 2 * h.E_min
    np.testing.assert_allclose(h.steps([1, 64]), [30 * 65, 60])


@given(st.floats(1, 1e4), st.floats(0.5, 1e4))
def test_the_fit_finds_the_hyperbola_it_was_given(S_min, B_crit):
    B = np.array([1, 8, 64, 512, 4096])
    found = fit_hyperbola(B, Hyperbola(S_min, B_crit).steps(B))
    assert found.S_min == pytest.approx(S_min, rel=1e-6) and found.B_crit == pytest.approx(B_crit, rel=1e-6)


def test_the_fit_weighs_relative_misfits_as_scipy_does():
    optimize = pytest.importorskip("scipy.optimize")
    B, rng = np.array([2.0, 8, 32, 128, 512]), np.random.default_rng(2)
    S = Hyperbola(20, 50).steps(B) * (1 + 0.05 * rng.standard_normal(5))
    theirs = optimize.least_squares(lambda p: p[0] * (1 + p[1] / B) / S - 1, [10.0, 10.0]).x
    ours = fit_hyperbola(B, S)
    np.testing.assert_allclose([ours.S_min, ours.B_crit], theirs, rtol=1e-5)


def test_a_flat_line_has_no_critical_batch():
    assert fit_hyperbola([1, 2, 4], [10, 10, 10]).B_crit == pytest.approx(0, abs=1e-9)
    assert fit_hyperbola([1, 2, 4], [10, 11, 12]).B_crit == 0.0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Hyperbola(0, 1), "S_min must be a finite number > 0, got 0"),
        (lambda: Hyperbola(1, -1), "B_crit must be a finite number >= 0, got -1"),
        (lambda: Hyperbola(1, 1).steps(0), "B must be finite and > 0, got 0"),
        (lambda: fit_hyperbola([1, 1], [2, 3]), "B and S must be lists of equal length with two different"),
        (lambda: fit_hyperbola([1, 2], [2, 3, 4]), "B and S must"),
        (lambda: fit_hyperbola([1, 2], [np.nan, 3]), "S must be finite and > 0"),
        (lambda: fit_hyperbola([1, 2, 4], [100, 45, 20]), "S must level off"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, said):
    with pytest.raises(ValueError, match=said):
        call()
