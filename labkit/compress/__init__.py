"""What travels instead of the gradient: compressors, schemes that remember, and what they cost."""

from labkit.compress.base import Compressor, Crossing
from labkit.compress.bits import pack, packed_bytes, unpack
from labkit.compress.dgc import DGC
from labkit.compress.exchange import OverComm, compressed_mean, sent_bytes
from labkit.compress.feedback import ErrorFeedback, residue
from labkit.compress.identity import Identity
from labkit.compress.powersgd import PowerSGD, orthogonal
from labkit.compress.price import Pays, exchange_time, pays, wire_time
from labkit.compress.qsgd import QSGD
from labkit.compress.randomk import RandomK
from labkit.compress.scheme import Dice, Exchanged, Plain, Scheme, Spent, Wire, as_scheme, dice
from labkit.compress.sgd import Trained, compressed_sgd
from labkit.compress.sign import Sign
from labkit.compress.topk import TopK

__all__ = [
    "DGC", "QSGD", "Compressor", "Crossing", "Dice", "ErrorFeedback", "Exchanged", "Identity", "OverComm", "Pays",
    "Plain", "PowerSGD", "RandomK", "Scheme", "Sign", "Spent", "TopK", "Trained", "Wire", "as_scheme", "compressed_mean",
    "compressed_sgd", "dice", "exchange_time", "orthogonal", "pack", "packed_bytes", "pays", "residue", "sent_bytes",
    "unpack", "wire_time",
]  # fmt: skip
