"""What the plots show is what the timeline and the series hold."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from labkit.show import lanes, palette, predicted_measured
from labkit.show.lanes import late
from labkit.timing import Synchronous, Timeline, draw, straggler_report
from labkit.timing.laws import OneStraggler, Uniform

COLOURS = [palette.COMPUTE, palette.WAIT, palette.COMMUNICATE]


def legend(ax):
    boxes = filter(None, (ax.get_legend(), *ax.figure.legends))
    return [text.get_text() for box in boxes for text in box.get_texts()]


def test_the_lanes_cover_what_the_timeline_says_in_milliseconds():
    timeline = Synchronous().timeline(draw(Uniform(0.1, 0.2), 3, 4, 0), 0.05)
    ax = lanes(timeline, title="Three workers")
    areas = dict.fromkeys(map(str.lower, COLOURS), 0.0)
    hatches = set()
    for bars in ax.findobj(PolyCollection):
        hatches.add(bars.get_hatch())
        for path in bars.get_paths():
            low, high = path.get_extents().min, path.get_extents().max
            areas[to_hex(bars.get_facecolor()[0])] += high[0] - low[0]
    np.testing.assert_allclose(list(areas.values()), 1e3 * timeline.totals().sum(axis=0), rtol=1e-9)
    assert ax.get_xlabel() == "time (ms)" and ax.get_ylim() == (2.5, -0.5)
    assert len(hatches) == 3  # who cannot tell the colours apart
    assert sorted(legend(ax)) == ["communicate", "compute", "wait"]


@pytest.mark.parametrize(
    "measured, words", [(True, "measured on lab-7, 3 May"), (False, "simulated: lab-7, 3 May")]
)
def test_the_title_says_where_the_times_come_from(measured, words):
    timeline = Timeline.from_spans(1, [(0, 0, 0, 5.0, 6.0)], measured=measured, where="lab-7, 3 May")
    ax = lanes(timeline, title="One step")
    assert ax.get_title("left") == f"One step\n{words}"
    (bar,) = ax.collections[0].get_paths()
    # A clock that starts at 5 s is drawn from 0.
    assert (bar.get_extents().x0, bar.get_extents().x1) == (0, 1000) == ax.get_xlim()


def test_lanes_on_axes_of_ones_own_and_for_an_empty_or_wide_run():
    _, (a, b) = plt.subplots(2)
    assert lanes(Synchronous().timeline([[1.0, 2.0]]), ax=a) is a and legend(a) == ["compute"]
    assert lanes(Timeline.from_spans(2, [], measured=False, where=""), ax=b).get_title("left") == "simulated"
    assert len(lanes(Synchronous().timeline(np.ones((100, 1)))).get_yticks()) == 15


def test_below_the_last_steps_stands_how_often_each_was_late():
    timeline = Synchronous().timeline(draw(OneStraggler(Uniform(0.1, 0.2), 3.0, rank=2), 4, 20, 0), 0.01)
    above, below = late(timeline, report := straggler_report(timeline), steps=5).axes
    assert above.get_title("left") == "The last 5 steps\nsimulated: recurrence of sync"
    begin = timeline.start_s[timeline.step >= 15].min() - timeline.begin_s
    assert above.get_xlim() == pytest.approx((1e3 * begin, 1e3 * timeline.elapsed_s))
    assert above.get_legend() is None and sorted(legend(above)) == ["communicate", "compute", "wait"]
    assert [bar.get_width() for bar in below.patches] == pytest.approx(100 * report.share)
    colours = [to_hex(bar.get_facecolor()).upper() for bar in below.patches]
    assert colours == [palette.COMPUTE.upper()] * 2 + [palette.WAIT.upper()] + [palette.COMPUTE.upper()]
    assert list(below.lines[0].get_xdata()) == [25, 25] and below.get_ylim() == (3.5, -0.5)
    assert below.get_xlabel() == "steps at which the rank came last (% of 20)"


def test_predicted_simulated_and_measured_differ_in_line_and_marker_and_not_in_colour_alone():
    x = np.array([2, 4, 8])
    launches = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 9.0], [1.5, 2.5, 4.0]])
    series = {"predicted": x / 2, "simulated": x / 2 + 0.1, "measured": launches}
    ax = predicted_measured(x, series, xlabel="workers K", ylabel="time (ms)", title="Ring")
    lines = {line.get_label(): line for line in ax.lines}
    assert lines["predicted"].get_linestyle() == "-" and lines["predicted"].get_marker() == "None"
    assert lines["simulated"].get_linestyle() == "None"
    assert to_hex(lines["simulated"].get_markerfacecolor()) == palette.PAPER.lower()
    (bars,) = ax.containers
    np.testing.assert_array_equal(bars.lines[0].get_ydata(), np.median(launches, axis=0))
    reach = [(segment[0, 1], segment[1, 1]) for segment in bars.lines[2][0].get_segments()]
    np.testing.assert_allclose(reach, [(1, 2), (2, 4), (3, 9)])
    assert to_hex(bars.lines[0].get_markerfacecolor()) == palette.MEASURED.lower()
    assert set(legend(ax)) == {"predicted", "simulated", "measured"} and ax.get_xgridlines()[0].get_visible()
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title("left")) == ("workers K", "time (ms)", "Ring")


def test_what_was_measured_once_has_no_range():
    ax = predicted_measured([1, 2], {"measured": [3, 4]}, xlabel="x", ylabel="y")
    assert not ax.containers[0].lines[2]


def test_two_algorithms_share_axes_under_labels_of_their_own():
    ax = None
    for label, marker in [("ring", "o"), ("naive", "s")]:
        ax = predicted_measured(
            [1, 2], {"predicted": [1, 2]}, ax, xlabel="x", ylabel="y", label=label, marker=marker
        )
    assert legend(ax) == ["ring, predicted", "naive, predicted"]
    assert ax.lines[0].get_linestyle() != ax.lines[1].get_linestyle()


def test_a_series_of_another_name_is_refused():
    says = "series must be one of predicted, simulated, measured, got 'guessed'"
    with pytest.raises(ValueError, match=says):
        predicted_measured([1, 2], {"guessed": [1, 2]}, xlabel="x", ylabel="y")
