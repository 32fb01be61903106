"""Parameters in one vector, of which every worker owns a chunk: what ZeRO shards (Rajbhandari et al. 2020, section 5).

Rank r owns elements r n // K to (r + 1) n // K, the chunk that ``reduce_scatter`` gives it. An optimizer sees *pieces*:
for each parameter the part of it that lies in the chunk, as a parameter of its own over the same memory. A parameter
that is cut is seen as a vector, which is the same to every optimizer that treats elements alike (SGD, Adam, RMSprop);
laid out ``whole``, none is cut, at the price of padding.

Symbols: K workers, n elements, padding included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.collectives import own_chunk
from labkit.comm.base import Comm
from labkit.train.agree import Zeros, plain_zeros


def lay_out(sizes: Sequence[int], K: int, whole: bool = False) -> tuple[list[int], int]:
    """Where each parameter of ``sizes`` elements begins, and n.

    whole: fill K chunks of one length, largest parameter first, each into the emptiest chunk, so that none is cut.
    """
    if not whole:
        ends = [0]
        for size in sizes:
            ends.append(ends[-1] + size)
        return ends[:-1], ends[-1]
    fill = [0] * K
    place: dict[int, tuple[int, int]] = {}
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        chunk = fill.index(min(fill))
        place[i] = chunk, fill[chunk]
        fill[chunk] += sizes[i]
    length = max(fill)
    return [place[i][0] * length + place[i][1] for i in range(len(sizes))], K * length


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
    def of(cls, comm: Comm, named: Sequence[tuple[str, nn.Parameter]], whole: bool = False) -> Flat:
        """The layout of named parameters."""
        parameters = [p for _, p in named]
        offsets, n = lay_out([p.numel() for p in parameters], comm.K, whole)
        return cls(parameters, [p.shape for p in parameters], offsets, n, *own_chunk(comm, n))

    def views(self, vector: Tensor) -> list[Tensor]:
        """Each parameter's place in ``vector`` (n,), in its own shape."""
        return [
            vector[at : at + shape.numel()].view(shape)
            for at, shape in zip(self.offsets, self.shapes, strict=True)
        ]

    @torch.no_grad()
    def vector(self, zeros: Zeros = plain_zeros) -> Tensor:
        """A new vector (n,) of the parameters' values, where ``zeros`` makes it."""
        together = zeros(self.parameters[0], self.n)
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

    def pieces(self, chunk: Tensor) -> list[tuple[int, Tensor]]:
        """For each parameter that has elements in this rank's ``chunk`` (high - low,): its number, and its part."""
        found = []
        for i, (at, shape) in enumerate(zip(self.offsets, self.shapes, strict=True)):
            begin, end = max(at, self.low), min(at + shape.numel(), self.high)
            if begin < end:
                part = chunk[begin - self.low : end - self.low]
                found.append((i, part.view(shape) if end - begin == shape.numel() else part))
        return found


def storage_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of memory that the tensors keep, each piece of memory once (views share theirs)."""
    kept = {}
    for t in tensors:
        if t is not None:
            storage = t.untyped_storage()
            kept[storage._cdata] = storage.nbytes()
    return sum(kept.values())
