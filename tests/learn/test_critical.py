"""Steps against batch size: the hyperbola, and the fit that finds it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.learn import Hyperbola, fit_hyperbola


@given(st.floats(1, 1e4), st.floats(0.5, 1e4))
def test_the_fit_finds_the_hyperbola_it_was_given(S_min, B_crit):
    B = np.array([1, 8, 64, 512, 4096])
    S = Hyperbola(S_min, B_crit).steps(B)
    E_min = S_min * B_crit
    np.testing.assert_allclose((S / S_min - 1) * (B * S / E_min - 1), 1, rtol=1e-6)  # the paper's
    found = fit_hyperbola(B, S)
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
    flat, S = fit_hyperbola([1, 2, 4], [10, 11, 12]), np.array([10, 11, 12])
    assert flat.B_crit == 0.0
    assert flat.S_min == pytest.approx(np.average(S, weights=1 / S**2))  # of least relative misfit


@pytest.mark.parametrize(("call", "said"), [
    (lambda: Hyperbola(0, 1), "S_min must be a finite number > 0, got 0"),
    (lambda: Hyperbola(1, -1), "B_crit must be a finite number >= 0, got -1"),
    (lambda: Hyperbola(1, 1).steps(0), "B must be finite and > 0, got 0"),
    (lambda: fit_hyperbola([1, 1], [2, 3]), "B and S must be equally long, with two different B"),
    (lambda: fit_hyperbola([1, 2, 4], [2, 3]), "B and S must be equally long, with two different B"),
    (lambda: fit_hyperbola([1, 2], [np.nan, 3]), "S must be finite and > 0"),
    (lambda: fit_hyperbola([1, 2, 4], [100, 45, 20]), "S must level off"),
])  # fmt: skip
def test_bad_input_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
