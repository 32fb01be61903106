"""Timelines: what goes in adds up to what comes out, and nonsense is refused at the door."""

from dataclasses import replace

import numpy as np
import pytest

from labkit.timing import Kind, Synchronous, Timeline

NAN = float("nan")
SPANS = [
    (0, 0, Kind.COMPUTE, 0.0, 0.2), (0, 0, Kind.WAIT, 0.2, 0.5), (0, 0, Kind.COMMUNICATE, 0.5, 0.6),
    (1, 0, Kind.COMPUTE, 0.0, 0.5), (1, 0, Kind.COMMUNICATE, 0.5, 0.6),
    (1, 1, Kind.COMPUTE, 0.6, 0.9), (1, -1, Kind.COMPUTE, 0.9, 1.0),
]  # fmt: skip


def of_two(spans=SPANS, arrivals=(), K=2):
    return Timeline.from_spans(K, spans, arrivals=arrivals, measured=True, where="here")


@pytest.mark.parametrize("begin", [0.0, 1e4])  # a clock that does not start at zero changes no duration
def test_totals_and_steps_add_up_the_spans(begin):
    timeline = of_two([(r, t, k, a + begin, b + begin) for r, t, k, a, b in SPANS])
    close = {"atol": 1e-9}
    np.testing.assert_allclose(timeline.totals(), [[0.2, 0.3, 0.1], [0.9, 0.0, 0.1]], **close)
    computed = timeline.per_step(Kind.COMPUTE)  # step -1 is in no step
    np.testing.assert_allclose(computed, [[0.2, 0], [0.5, 0.3]], **close)
    assert (timeline.T, timeline.begin_s, timeline.finish_s) == (2, begin, begin + 1.0)
    assert (timeline.elapsed_s, timeline.idle_s) == (pytest.approx(1.0), pytest.approx(0.3))
    np.testing.assert_allclose(timeline.utilisation(), [0.2, 0.9], **close)


def test_marks_become_spans_and_nothing_is_where_nothing_was():
    marks = np.cumsum(np.random.default_rng(0).random((4, 3, 6)), axis=0)
    marks[2, 0] = marks[1, 0]  # who never waits has no wait span
    marks[:2, 2, 5] = np.nan  # nor has who didn't compute a compute span
    timeline = Timeline.from_marks(*marks, where="made up")
    for kind, seconds in zip(Kind, np.nan_to_num(np.diff(marks, axis=0)), strict=True):
        np.testing.assert_allclose(timeline.per_step(kind), seconds, atol=1e-12)
    np.testing.assert_array_equal(timeline.arrivals_s, marks[1])
    assert not ((timeline.kind == Kind.WAIT) & (timeline.rank == 0)).any()
    assert not timeline.measured and timeline.T == 6 and timeline.finish_s == marks[3].max()


def test_nothing_happened_is_a_timeline_too():
    empty = of_two([], K=3)
    assert (empty.T, empty.finish_s, empty.idle_s) == (0, 0.0, 0.0)
    assert empty.totals().shape == (3, 3) and empty.per_step(Kind.WAIT).shape == (3, 0)
    assert empty.arrivals_s.shape == (3, 0) and "3 workers" in str(empty)


def test_a_timeline_cannot_be_changed_behind_its_back():
    rank, times = np.zeros(1, dtype=int), np.zeros(1)
    timeline = Timeline(1, rank, rank, rank, times, times + 1, np.zeros((1, 0)), (), False, "")
    times[0] = 9
    assert timeline.start_s[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        timeline.start_s[0] = 1


def test_its_table_is_short_and_says_where_the_times_come_from():
    many = Synchronous().timeline(np.ones((100, 2)))
    assert len(str(many).splitlines()) < 14 and "92 more" in str(many)
    assert "simulated: recurrence of sync" in str(many) and "measured on here" in str(of_two())


@pytest.mark.parametrize("make, words", [
    (lambda: of_two([], K=0), "K must be a whole number >= 1, got 0"),
    (lambda: of_two(K=1), "span 3 must have a rank below 1"),
    (lambda: of_two([(0, -2, 0, 0, 1)]), "span 0 .* step -2"),
    (lambda: of_two([(0, 0.5, 0, 0, 1)]), "step must be whole"),
    (lambda: replace(of_two(), step=[0]), "step must be a 1-D array like rank, got shape .1,"),
    (lambda: of_two([(0, 0, 3, 0, 1)]), "kind 3"),
    (lambda: of_two([(0, 0, 0, NAN, 1)]), "start_s nan"),
    (lambda: of_two([(0, 0, 0, 1, 0.5)]), "end_s 0.5"),
    (lambda: of_two(arrivals=[("a", [0.1])]), "arrivals_s must be"),
    (lambda: of_two(arrivals=[("a", [0.1, np.inf])]), "arrivals_s must be"),
])  # fmt: skip
def test_bad_input_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
