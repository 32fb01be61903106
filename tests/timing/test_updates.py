"""Schedules of updates: staleness is counted in versions, and a schedule that cannot have been is refused."""

import numpy as np
import pytest

from labkit.timing import Updates


def three(**changes):
    """Two workers, three updates: both at version 0, then one that read version 1."""
    given = {
        "K": 2,
        "into": [0, 1, 2],
        "rank": [0, 1, 0],
        "step": [0, 0, 1],
        "read": [0, 0, 1],
        "applied_s": [0.1, 0.2, 0.3],
        "measured": False,
        "where": "by hand",
    }
    return Updates(**{**given, **changes})


def test_staleness_is_the_number_of_updates_between_reading_and_being_applied():
    updates = three()
    np.testing.assert_array_equal(updates.tau, [0, 1, 1])
    np.testing.assert_array_equal(updates.staleness(), [1, 2])
    np.testing.assert_array_equal(updates.used(), [2, 1])
    assert updates.U == 3


def test_gradients_may_share_an_update_and_a_worker_may_have_none():
    updates = three(K=3, into=[0, 0, 1], read=[0, 0, 0], applied_s=[0.1, 0.1])
    assert updates.U == 2
    np.testing.assert_array_equal(updates.tau, [0, 0, 1])
    np.testing.assert_array_equal(updates.used(), [2, 1, 0])


def test_no_updates_are_a_schedule_too():
    empty = three(into=[], rank=[], step=[], read=[], applied_s=[])
    assert empty.U == 0 and not empty.staleness().size
    np.testing.assert_array_equal(empty.used(), [0, 0])


def test_a_schedule_cannot_be_changed_behind_its_back():
    into = np.arange(3)
    updates = three(into=into)
    into[0] = 7
    assert updates.into[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        updates.read[0] = 1


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"K": 0}, "K must be a whole number >= 1, got 0"),
        ({"applied_s": [0.1, 0.3, 0.2]}, "applied_s must be .* never decrease, got .*0.2"),
        ({"applied_s": [0.1, np.nan, 0.2]}, "applied_s must be finite seconds, got .*nan"),
        ({"applied_s": 0.5}, r"applied_s must be a 1-D array .* got shape \(\)"),
        (
            {"read": [0, 0, 3]},
            "read must be a version that was there: 0 <= read <= into, got .*3.* at index 2",
        ),
        ({"read": [0, -1, 0]}, "read must be a version that was there.* got .*-1.* at index 1"),
        ({"read": [0, 0.5, 0]}, "read must be whole numbers, got .*0.5"),
        ({"read": [0, np.nan, 0]}, "read must be whole numbers, got .*nan"),
        ({"rank": [0, 2, 0]}, "rank must be between 0 and 1, got .*2.* at index 1"),
        ({"rank": [0, 1]}, r"rank must be a 1-D array of 3 numbers, got shape \(2,\)"),
        ({"rank": ["a", "b", "c"]}, "rank must be a 1-D array of 3 numbers"),
        ({"step": [0, 0, -1]}, "step must be a step >= 0, got .*-1.* at index 2"),
        ({"into": [0, 2, 1], "read": [0, 0, 0]}, "into must count up"),
        ({"into": [0, 1, 1], "read": [0, 0, 0]}, "into must count up, each of 3 updates"),
        ({"into": [1, 2, 3], "read": [0, 0, 0]}, "into must count up"),
        ({"applied_s": []}, "into must count up, each of 0"),
    ],
)
def test_a_schedule_that_cannot_have_been_is_refused_in_one_sentence(changes, words):
    with pytest.raises(ValueError, match=words) as error:
        three(**changes)
    assert "\n" not in str(error.value)
