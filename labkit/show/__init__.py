"""Plots, predictions and interactive figures. matplotlib and ipywidgets are imported on first use."""

from labkit.show import palette
from labkit.show.compare import predicted_measured
from labkit.show.explorer import Explorer, explorer
from labkit.show.figures import Figure, figure
from labkit.show.lanes import lanes
from labkit.show.palette import style, use_style
from labkit.show.predict import Prediction, predict

__all__ = [
    "Explorer",
    "Figure",
    "Prediction",
    "explorer",
    "figure",
    "lanes",
    "palette",
    "predict",
    "predicted_measured",
    "style",
    "use_style",
]
