"""What a link costs: alpha and beta, what no all-reduce can beat, and both fitted from measurements."""

from labkit.network.fit import Fit, Sample, fit
from labkit.network.link import Form, Link, least_bytes, least_rounds, least_time
