"""What a link costs: alpha and beta, what no all-reduce can beat, and both fitted from measurements."""

from labkit.network.bounds import least_bytes, least_rounds, least_time
from labkit.network.fit import Fit, Sample, fit
from labkit.network.linear import Form, Terms, terms
from labkit.network.link import Link, goodput

__all__ = [
    "Fit", "Form", "Link", "Sample", "Terms", "fit", "goodput", "least_bytes", "least_rounds", "least_time", "terms",
]  # fmt: skip
