"""Buckets: gradients that travel together, in the order in which the backward pass makes them.

The backward pass ends with the first layer, so buckets are filled from the last parameter to the first (Li et al. 2020,
*PyTorch Distributed*, section 3.2.3). A bucket is one vector; each gradient in it is a view, so what was summed is where
the optimizer looks for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.train.agree import Zeros, plain_zeros

#: torch's own sizes: small enough to start early, then large enough to be worth a message.
FIRST_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20


def assign(
    nbytes: Sequence[int], limits: Sequence[float], kinds: Sequence[Hashable] | None = None
) -> list[list[int]]:
    """Which parameters go together: lists of indices, in the order in which the buckets will be complete.

    nbytes: (P,) sizes of the parameters, in order of registration. limits: a bucket is closed when it holds as many
    bytes; the i-th closed one of a kind by ``limits[i]``, later ones by the last. kinds: (P,) what must not be mixed,
    such as dtypes; None: all alike. Raises ValueError for a limit that is not positive.
    """
    if not limits or any(limit <= 0 for limit in limits):
        raise ValueError(f"limits must be bytes > 0, got {list(limits)!r}")
    kinds = [None] * len(nbytes) if kinds is None else kinds
    open_now: dict[Hashable, list[int]] = {}
    closed: list[list[int]] = []
    count: dict[Hashable, int] = {}
    for i in reversed(range(len(nbytes))):
        bucket = open_now.setdefault(kinds[i], [])
        bucket.append(i)
        made = count.get(kinds[i], 0)
        if sum(nbytes[j] for j in bucket) >= limits[min(made, len(limits) - 1)]:
            closed.append(open_now.pop(kinds[i]))
            count[kinds[i]] = made + 1
    return sorted([*closed, *open_now.values()], key=lambda bucket: -bucket[-1])


@dataclass
class Bucket:
    """One vector, and the parameters whose gradients it holds as ``views``."""

    parameters: list[nn.Parameter]
    flat: Tensor
    views: list[Tensor]

    @torch.no_grad()
    def take(self, i: int, share: float) -> None:
        """Bring the i-th gradient here, times ``share``. From now on it lives here: nothing is copied that is here already.

        Done as soon as it comes, while it is in the cache; its old place is free for the next.
        """
        p, view = self.parameters[i], self.views[i]
        _refuse_sparse(p)
        g = p.grad
        if g is None or share == 0.0:  # also where the mean of no examples is nan
            view.zero_()
        elif g.data_ptr() == view.data_ptr() and g.shape == view.shape:
            view.mul_(share)
        else:
            torch.mul(g, share, out=view)
        if g is not None:
            p.grad = view

    @property
    def nbytes(self) -> int:
        """Bytes of the vector."""
        return self.flat.nbytes


class _Single(Bucket):
    """A bucket of one parameter. Its vector *is* the gradient that autograd made: nothing is copied at all."""

    @torch.no_grad()
    def take(self, i: int, share: float) -> None:
        """Scale the gradient where it is."""
        p = self.parameters[0]
        _refuse_sparse(p)
        if p.grad is None or share == 0.0:
            g = torch.zeros_like(p, memory_format=torch.contiguous_format)
        else:
            g = p.grad.contiguous().mul_(share)
        if p.grad is not None:
            p.grad = g
        self.flat, self.views = g.view(-1), [g]


def _refuse_sparse(p: nn.Parameter) -> None:
    if p.grad is not None and p.grad.is_sparse:
        raise ValueError(
            f"gradients must be dense to share a bucket, got a sparse one of shape {tuple(p.shape)}: "
            f"make its embedding with sparse=False"
        )


def make(
    parameters: Sequence[nn.Parameter],
    bucket_bytes: float,
    first_bytes: float,
    zeros: Zeros = plain_zeros,
) -> list[Bucket]:
    """The buckets of a model's parameters (in order of registration), their vectors full of zeros, or none yet.

    zeros: makes the vectors. What it does not put anywhere special is let alone where a bucket is one parameter.
    """
    for name, value in (("bucket_bytes", bucket_bytes), ("first_bytes", first_bytes)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"{name} must be a number of bytes > 0, got {value!r}")
    limits = [min(first_bytes, bucket_bytes), bucket_bytes]
    kinds = [(p.dtype, p.device) for p in parameters]
    made: list[Bucket] = []
    for chosen in assign([p.nbytes for p in parameters], limits, kinds):
        own = [parameters[i] for i in chosen]
        if len(own) == 1 and zeros is plain_zeros:
            made.append(_Single(own, own[0].new_zeros(0, requires_grad=False), []))
            continue
        flat = zeros(own[0], sum(p.numel() for p in own))
        parts = flat.split([p.numel() for p in own])
        made.append(Bucket(own, flat, [v.view(p.shape) for v, p in zip(parts, own, strict=True)]))
    return made
