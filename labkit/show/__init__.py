"""Plots, predictions and interactive figures. matplotlib and ipywidgets are imported on first use."""

from labkit.show import palette
from labkit.show.compare import predicted_measured
from labkit.show.explorer import explorer
from labkit.show.figures import Figure, figure
from labkit.show.lanes import lanes, late
from labkit.show.palette import style, use_style
from labkit.show.predict import Prediction, predict

__all__ = [
    "Figure", "Prediction", "explorer", "figure", "lanes", "late", "palette", "predict", "predicted_measured", "style",
    "use_style",
]  # fmt: skip
