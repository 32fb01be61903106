"""What a link costs: alpha and beta, what no all-reduce can beat, both fitted from measurements; and what was measured."""

from labkit.network.bounds import least_bytes, least_rounds, least_time
from labkit.network.curve import Curve, Prediction
from labkit.network.fit import Fit, Sample, fit
from labkit.network.linear import Form, Terms, terms
from labkit.network.link import Link, goodput
from labkit.network.sweep import Sweep, read_sweep

__all__ = [
    "Curve", "Fit", "Form", "Link", "Prediction", "Sample", "Sweep", "Terms", "fit", "goodput", "least_bytes",
    "least_rounds", "least_time", "read_sweep", "terms",
]  # fmt: skip
