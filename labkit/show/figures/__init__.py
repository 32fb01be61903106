"""Interactive figures that need no kernel: ``figure("ring", K=4)``.

In a notebook the figure is a live widget (anywidget); on a page of the book the same code runs without a kernel; and where
neither is there, a still picture with its description stands in its place. Numbers shown are computed in the browser, and
tests there hold them against labkit's.
"""

from labkit.show.figures.base import Interactive
from labkit.show.figures.shown import Figure, figure
from labkit.show.figures.sources import module, names, script

__all__ = ["Figure", "Interactive", "figure", "module", "names", "script"]
