"""Overlap: communication that starts while the backward pass still computes, bucket by bucket.

The backward pass produces the gradient from the last layer to the first. Cut into L buckets, each bucket's all-reduce
may start as soon as all workers have the bucket and the channel is free (Li et al. 2020, *PyTorch Distributed*,
section 3.2.3). A step ends when the last bucket is through. With f_l the share of the backward pass after which
bucket l is ready, p the slowest worker's backward pass and a_l the seconds of bucket l's all-reduce, a step takes

    max over l of (f_l p + a_l + a_(l+1) + ... + a_L):

from some bucket on the channel never rests, and before that bucket it waited for the backward pass.

Symbols: L buckets. All times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.checks import integer, number


@dataclass(frozen=True)
class Overlap:
    """A backward pass and an all-reduce in L buckets, overlapped. Seconds.

    total_s: the step. exposed_s: communication that compute could not hide. hidden_s: the rest of it.
    """

    backward_s: float
    allreduce_s: float
    L: int
    total_s: float

    @property
    def exposed_s(self) -> float:
        return self.total_s - self.backward_s

    @property
    def hidden_s(self) -> float:
        return self.allreduce_s - self.exposed_s

    @property
    def share(self) -> float:
        """Share of the step in which nothing but communication happens; 0 for a step of no time."""
        return self.exposed_s / self.total_s if self.total_s else 0.0

    def __str__(self) -> str:
        return (
            f"L = {self.L}: step {1e3 * self.total_s:.2f} ms, of the all-reduce {1e3 * self.hidden_s:.2f} ms "
            f"hidden and {1e3 * self.exposed_s:.2f} ms exposed ({100 * self.share:.1f} % of the step)"
        )


def overlap(backward_s: float, allreduce_s: float, L: int) -> Overlap:
    """Step time when each of L equal buckets is sent as soon as its gradients are there.

    Bucket l = 1..L is ready at backward_s * l / L; the all-reduces, allreduce_s / L each, run one after
    another on one channel (Li et al. 2020, *PyTorch Distributed*, section 3.2.3).

    >>> round(overlap(backward_s=0.2, allreduce_s=0.06, L=6).total_s, 6)
    0.21
    """
    number("backward_s", backward_s, least=0)
    number("allreduce_s", allreduce_s, least=0)
    integer("L", L, least=1)
    channel_free = 0.0
    for bucket in range(1, L + 1):
        ready = backward_s * bucket / L
        channel_free = max(channel_free, ready) + allreduce_s / L
    return Overlap(backward_s, allreduce_s, L, channel_free)
