"""What is true of every policy: its text, its quick form, the clocks it is given."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.timing import (
    POLICIES,
    Asynchronous,
    LocalSteps,
    ShiftedExponential,
    StaleSynchronous,
    Synchronous,
    draw,
    parse_policy,
)

ALL = [Synchronous(), Synchronous(2), StaleSynchronous(0), StaleSynchronous(3), Asynchronous(), LocalSteps(4)]
X = draw(ShiftedExponential(0.5, 0.5), K=5, T=24, seed=1)


@pytest.mark.parametrize("policy", ALL, ids=str)
def test_a_policy_is_read_from_its_own_text(policy):
    assert parse_policy(str(policy)) == policy == parse_policy(f" {policy} ")


def test_every_form_in_the_table_can_be_read():
    for form in POLICIES:
        word, colon, _ = form.partition(":")
        assert str(parse_policy(f"{word}:2" if colon else word)).startswith(word)


@pytest.mark.parametrize(
    "text", ["", "bsp", "sync:1", "async:", "ssp", "ssp:", "ssp:-1", "ssp:1.5", "local:0"]
)
def test_another_text_is_refused(text):
    with pytest.raises(ValueError, match="must be"):
        parse_policy(text)


@pytest.mark.parametrize("policy", ALL, ids=str)
def test_the_quick_form_ends_when_the_timeline_does_and_both_keep_the_clock_s_units(policy):
    timeline, ends = policy.timeline(X, 0.1), policy.ends(X, 0.1)
    assert ends.shape == (X.shape[1],) and (np.diff(ends) >= 0).all()
    assert ends[-1] <= timeline.finish_s * (1 + 1e-12)  # late backup workers finish what they have begun
    if policy != Synchronous(2):
        assert ends[-1] == pytest.approx(timeline.finish_s, rel=1e-12)
    np.testing.assert_allclose(policy.ends(4 * X, 0.4), 4 * ends, rtol=1e-12)
    many = np.stack([X, X[::-1]], axis=2)
    np.testing.assert_allclose(policy.ends(many, 0.1)[:, 0], ends, rtol=1e-12)


def test_who_waits_for_fewer_is_no_later():
    last = [p.ends(X)[-1] for p in (Synchronous(), StaleSynchronous(0), StaleSynchronous(3), Asynchronous())]
    assert last[0] == pytest.approx(last[1], rel=1e-12) and last[1] >= last[2] >= last[3]
    assert Synchronous(2).ends(X)[-1] < last[0] and LocalSteps(4).ends(X)[-1] < last[0]
    np.testing.assert_array_equal(LocalSteps(1).ends(X, 0.2), Synchronous().ends(X, 0.2))
