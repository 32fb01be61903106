"""Parameters in one vector, of which every worker owns a chunk: what ZeRO shards (Rajbhandari et al. 2020, section 5).

Rank r owns elements r n // K to (r + 1) n // K, the chunk that ``reduce_scatter`` gives it. An optimizer sees *pieces*:
for each parameter the part of it that lies in the chunk, as a parameter of its own over the same memory. A parameter
that is cut is seen as a vector, which is the same to every optimizer that treats elements alike (SGD, Adam, RMSprop).

Symbols: K workers, n elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from labkit.collectives import own_chunk
from labkit.comm.base import Comm
from labkit.train.agree import plain_zeros


@dataclass
class Flat:
    """Some parameters as parts of one vector of n elements; low to high is this rank's chunk."""

    parameters: list[nn.Parameter]
    shapes: list[torch.Size]
    offsets: list[int]
    n: int
    low: int
    high: int

    @classmethod
    def of(cls, comm: Comm, named: Sequence[tuple[str, nn.Parameter]]) -> Flat:
        """The layout of named parameters."""
        parameters = [p for _, p in named]
        *offsets, n = accumulate((p.numel() for p in parameters), initial=0)
        return cls(parameters, [p.shape for p in parameters], offsets, n, *own_chunk(comm, n))

    def views(self, vector: Tensor) -> list[Tensor]:
        """Each parameter's place in ``vector`` (n,), in its own shape."""
        return [
            vector[at : at + shape.numel()].view(shape)
            for at, shape in zip(self.offsets, self.shapes, strict=True)
        ]

    @torch.no_grad()
    def vector(self) -> Tensor:
        """A new vector (n,) of the parameters' values."""
        together = plain_zeros(self.parameters[0], self.n)
        for p, view in zip(self.parameters, self.views(together), strict=True):
            view.copy_(p)
        return together

    @torch.no_grad()
    def take_gradients(self, share: float) -> Tensor:
        """A new vector (n,) of the gradients times ``share``, each let go as soon as it is copied; None counts as zero."""
        together = plain_zeros(self.parameters[0], self.n)
        for p, view in zip(self.parameters, self.views(together), strict=True):
            if p.grad is not None:
                torch.mul(p.grad, share, out=view)
                p.grad = None
        return together

    def pieces(self, chunk: Tensor) -> list[Tensor]:
        """The part of each parameter that has elements in this rank's ``chunk`` (high - low,)."""
        found = []
        for at, shape in zip(self.offsets, self.shapes, strict=True):
            begin, end = max(at, self.low), min(at + shape.numel(), self.high)
            if begin < end:
                part = chunk[begin - self.low : end - self.low]
                found.append(part.view(shape) if end - begin == shape.numel() else part)
        return found


def storage_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of memory that the tensors keep, each piece of memory once (views share theirs)."""
    kept = {}
    for t in tensors:
        if t is not None:
            storage = t.untyped_storage()
            kept[storage._cdata] = storage.nbytes()
    return sum(kept.values())
