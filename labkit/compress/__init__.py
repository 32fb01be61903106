"""What travels instead of the gradient: compressors, schemes that remember, and what they cost."""

from labkit.compress.dgc import DGC
from labkit.compress.exchange import Pays, compressed_mean, pays, sent_bytes, wire_time
from labkit.compress.powersgd import PowerSGD
from labkit.compress.quantise import QSGD, Sign
from labkit.compress.scheme import (
    Compressor,
    Crossing,
    ErrorFeedback,
    Exchanged,
    Identity,
    Rngs,
    Scheme,
    rngs,
)
from labkit.compress.sgd import Trained, compressed_sgd
from labkit.compress.sparse import RandomK, TopK
from labkit.compress.wire import OverComm, Spent, Wire

__all__ = [
    "DGC", "QSGD", "Compressor", "Crossing", "ErrorFeedback", "Exchanged", "Identity", "OverComm", "Pays", "PowerSGD",
    "RandomK", "Rngs", "Scheme", "Sign", "Spent", "TopK", "Trained", "Wire", "compressed_mean", "compressed_sgd", "pays",
    "rngs", "sent_bytes", "wire_time",
]  # fmt: skip
