"""Plots, predictions and interactive figures. matplotlib and ipywidgets are imported on first use."""

from labkit.show import palette
from labkit.show.compare import predicted_measured
from labkit.show.explorer import explorer
from labkit.show.lanes import lanes, late
from labkit.show.palette import style, use_style
from labkit.show.predict import Prediction, predict
