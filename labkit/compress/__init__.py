"""What travels instead of the gradient: compressors, schemes that remember, and what they cost."""

from labkit.compress.powersgd import PowerSGD
from labkit.compress.quantise import QSGD, Sign
from labkit.compress.scheme import (
    Compressor,
    Crossing,
    ErrorFeedback,
    Exchanged,
    Identity,
    OverComm,
    Rngs,
    Scheme,
    Wire,
    compressed_mean,
    rngs,
    sent_bytes,
    wire_time,
)
from labkit.compress.sparse import RandomK, TopK
