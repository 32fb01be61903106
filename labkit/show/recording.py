"""A recording of a training job in two plots: the lanes of its last steps, and how often each rank was last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.show.lanes import lanes
from labkit.show.palette import COMPUTE, INK, WAIT, WIDTH_IN, style
from labkit.timing.timeline import Timeline

if TYPE_CHECKING:
    from labkit.train.recorder import Recording


def draw(recording: Recording, steps: int = 12) -> Any:
    """The Figure. steps: how many of the last steps the lanes show, >= 1."""
    import matplotlib.pyplot as plt

    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be a whole number >= 1, got {steps!r}")
    K, report = recording.ranks.K, recording.ranks
    with style():
        height = 0.42 * min(K, 12)
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(WIDTH_IN, 3.6 + 1.6 * height), height_ratios=[height + 1, height + 1]
        )
        lanes(
            _last(recording.timeline, steps),
            ax=above,
            title=f"The last {min(steps, recording.timeline.T)} steps",
        )
        above.get_legend().remove()  # it would cover a lane
        figure.legend(*above.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        late = [WAIT if k in report.stragglers else COMPUTE for k in range(K)]
        below.barh(np.arange(K), 100 * report.share, color=late, edgecolor=INK, linewidth=0.4)
        below.axvline(100 / K, color=INK, linestyle="--", linewidth=1, label="workers alike")
        below.set_yticks(range(0, K, max(1, -(-K // 16))))
        below.set_ylim(K - 0.5, -0.5)
        below.set_xlabel(f"steps at which the rank came last (% of {report.S})")
        below.set_ylabel("worker (rank)")
        below.legend()
    return figure


def _last(timeline: Timeline, steps: int) -> Timeline:
    shown = timeline.step >= timeline.T - steps
    points = slice(max(0, timeline.T - steps), None)
    return Timeline(
        timeline.K, timeline.rank[shown], timeline.step[shown], timeline.kind[shown],
        timeline.start_s[shown], timeline.end_s[shown], timeline.arrivals_s[:, points],
        timeline.names[points], timeline.measured, timeline.where,
    )  # fmt: skip
