"""Timelines: what goes in adds up to what comes out, and nonsense is refused at the door."""

import numpy as np
import pytest

from labkit.timing import Kind, Synchronous, Timeline

NAN = float("nan")
SPANS = [
    (0, 0, Kind.COMPUTE, 0.0, 0.2),
    (0, 0, Kind.WAIT, 0.2, 0.5),
    (0, 0, Kind.COMMUNICATE, 0.5, 0.6),
    (1, 0, Kind.COMPUTE, 0.0, 0.5),
    (1, 0, Kind.COMMUNICATE, 0.5, 0.6),
    (1, 1, Kind.COMPUTE, 0.6, 0.9),
    (1, -1, Kind.COMPUTE, 0.9, 1.0),
]


def two(**changes):
    given = {"arrivals": [("all-reduce", [0.2, 0.5]), ("end", [NAN, 0.9])], "measured": True, "where": "here"}
    return Timeline.from_spans(2, SPANS, **{**given, **changes})


def test_totals_and_steps_add_up_the_spans():
    timeline = two()
    np.testing.assert_allclose(timeline.totals(), [[0.2, 0.3, 0.1], [0.9, 0.0, 0.1]])
    np.testing.assert_allclose(
        timeline.per_step(Kind.COMPUTE), [[0.2, 0], [0.5, 0.3]]
    )  # step -1 is in no step
    np.testing.assert_allclose(timeline.per_step(Kind.WAIT), [[0.3, 0], [0, 0]])
    assert (timeline.T, timeline.begin_s, timeline.finish_s, timeline.elapsed_s) == (2, 0.0, 1.0, 1.0)
    assert timeline.idle_s == pytest.approx(0.3)
    np.testing.assert_allclose(timeline.utilisation(), [0.2, 0.9])
    np.testing.assert_array_equal(timeline.arrivals_s, [[0.2, NAN], [0.5, 0.9]])
    assert timeline.names == ("all-reduce", "end")


def test_the_share_that_computes_falls_to_zero_at_the_barrier_and_rises_again():
    np.testing.assert_array_equal(two().computing([0.1, 0.3, 0.55, 0.7, 2.0]), [1, 0.5, 0, 0.5, 0])


def test_a_clock_that_does_not_start_at_zero_changes_no_duration():
    shifted = [(r, t, k, a + 1e4, b + 1e4) for r, t, k, a, b in SPANS]
    late, plain = Timeline.from_spans(2, shifted, measured=True, where=""), two()
    np.testing.assert_allclose(late.totals(), plain.totals(), atol=1e-9)
    np.testing.assert_allclose(late.utilisation(), plain.utilisation(), atol=1e-9)


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
    empty = Timeline.from_spans(3, [], measured=False, where="nowhere")
    assert (empty.T, empty.finish_s, empty.idle_s) == (0, 0.0, 0.0)
    assert empty.totals().shape == (3, 3) and empty.per_step(Kind.WAIT).shape == (3, 0)
    assert empty.arrivals_s.shape == (3, 0) and "3 workers" in str(empty)


def test_a_timeline_cannot_be_changed_behind_its_back():
    rank = np.zeros(1, dtype=int)
    times = np.zeros(1)
    timeline = Timeline(1, rank, rank, rank, times, times + 1, np.zeros((1, 0)), (), False, "")
    times[0] = 9
    assert timeline.start_s[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        timeline.start_s[0] = 1


def test_printed_forms_are_compact_and_say_where_the_times_come_from():
    many = Synchronous().timeline(np.ones((100, 2)))
    assert len(str(many).splitlines()) < 14 and "92 more" in str(many)
    assert "simulated: recurrence of sync" in str(many) and "measured on here" in str(two())
    page = two(where="<b>")._repr_html_()
    assert "&lt;b&gt;" in page and page.count("<tr>") == 3


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Timeline.from_spans(0, [], measured=True, where=""), "K must be a whole number >= 1, got 0"),
        (
            lambda: Timeline.from_spans(1, SPANS, measured=True, where=""),
            "rank must be between 0 and 0, got .*1",
        ),
        (lambda: Timeline.from_spans(2, [(0, -2, 0, 0, 1)], measured=True, where=""), "step must be .*-2"),
        (lambda: Timeline.from_spans(2, [(0, 0.5, 0, 0, 1)], measured=True, where=""), "step must be whole"),
        (lambda: Timeline.from_spans(2, [(0, 0, 3, 0, 1)], measured=True, where=""), "kind must be .*3"),
        (
            lambda: Timeline.from_spans(2, [(0, 0, 0, NAN, 1)], measured=True, where=""),
            "start_s must be finite",
        ),
        (
            lambda: Timeline.from_spans(2, [(0, 0, 0, 1, 0.5)], measured=True, where=""),
            "no earlier than .*0.5",
        ),
        (lambda: Timeline.from_spans(2, [(0, 0, 0, 1)], measured=True, where=""), "spans must be tuples"),
        (lambda: two(arrivals=[("a", [0.1])]), "arrivals must give K = 2 times for 'a'"),
        (lambda: two(arrivals=[("a", [0.1, np.inf])]), "arrivals_s must be seconds, or nan"),
        (
            lambda: Timeline.from_marks([[0.0]], [[1.0, 2.0]], [[1.0]], [[1.0]], where=""),
            "marks must be 4 matrices",
        ),
        (lambda: Timeline.from_marks([[1.0]], [[0.0]], [[1.0]], [[1.0]], where=""), "no earlier than"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, words):
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
