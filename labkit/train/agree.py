"""Before the first step: do all workers hold the same model, and may it be wrapped? Then everyone takes rank 0's.

What is compared is a fingerprint of names, shapes and dtypes, K numbers of 8 bytes; only where fingerprints differ are
the descriptions themselves sent, to say what differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit.collectives import broadcast, naive
from labkit.comm.base import Comm
from labkit.comm.errors import Mismatch

_OWNED = "_labkit_owner"


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that want a gradient; one entry for tied ones. ValueError if there are none."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    found = [p for p in model.parameters() if p.requires_grad]
    if not found:
        frozen = sum(1 for _ in model.parameters())
        why = f"all of its {frozen} are frozen" if frozen else "it has none"
        raise ValueError(f"model must have parameters that want a gradient, but {why}: nothing to train")
    return found


def adopt(comm: Comm, model: nn.Module, owner: str) -> None:
    """Look after ``model`` as ``owner``: everyone takes rank 0's parameters and buffers. All ranks must call it.

    ValueError if somebody does already, whose hooks would average it a second time; Mismatch, naming rank and line, unless
    all ranks bring the same names, shapes and dtypes, and train the same of them.
    """
    mine = trainable(model)
    for p in mine:
        if hasattr(p, _OWNED):
            raise ValueError(
                f"model must be wrapped once, but a {getattr(p, _OWNED)} looks after its parameters already"
            )
    named = [("parameter", *each) for each in model.named_parameters()]
    named += [("buffer", *each) for each in model.named_buffers()]
    _agree(
        comm,
        [
            f"{kind} {name} {tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}"
            f"{' (frozen)' if kind == 'parameter' and not t.requires_grad else ''}"
            for kind, name, t in named
        ],
    )
    share_inplace(comm, [t for _, _, t in named])
    for p in mine:
        setattr(p, _OWNED, owner)


def release(parameters: Iterable[nn.Parameter]) -> None:
    """Undo ``adopt``."""
    for p in parameters:
        if hasattr(p, _OWNED):
            delattr(p, _OWNED)


def _agree(comm: Comm, lines: list[str]) -> None:
    """Raise Mismatch, naming rank and line, unless all workers bring the same ``lines``."""
    if comm.K == 1:
        return
    text = "\n".join(lines).encode()
    mine = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    row = np.zeros(comm.K, np.int64)
    row[comm.rank] = mine
    row = naive.allreduce(comm, row)
    values, counts = np.unique(row, return_counts=True)
    if len(values) == 1:
        return
    # the majority is right; where there is none, rank 0's party is
    usual = row[0] if counts.max() == counts[values == row[0]][0] else values[counts.argmax()]
    right = int(np.argmax(row == usual))
    odd = tuple(int(k) for k in np.flatnonzero(row != usual))
    theirs = [_tell(comm, text, k) for k in (right, odd[0])]
    raise Mismatch(_difference(theirs, right, odd[0]), odd)


def _tell(comm: Comm, text: bytes, root: int) -> list[str]:
    """The lines of rank ``root``, on every rank."""
    length = int(broadcast(comm, np.array([len(text)]), root)[0])
    raw = np.frombuffer(text, np.uint8).copy() if comm.rank == root else np.empty(length, np.uint8)
    return broadcast(comm, raw, root).tobytes().decode().split("\n")


def _difference(theirs: list[list[str]], right: int, odd: int) -> str:
    a, b = theirs
    for ours, other in zip(a, b, strict=False):
        if ours != other:
            return f"the ranks must hold the same model, but rank {odd} has {other} where rank {right} has {ours}"
    longer, more = (right, a[len(b) :]) if len(a) > len(b) else (odd, b[len(a) :])
    return (
        f"the ranks must hold the same model, but rank {odd} has {len(b)} parameters and buffers where rank {right} "
        f"has {len(a)}: {more[0]} is on rank {longer} only"
    )


@torch.no_grad()
def share_inplace(comm: Comm, tensors: Iterable[Tensor], root: int = 0) -> None:
    """Replace all ``tensors`` by rank ``root``'s, those of one dtype in one message."""
    if comm.K == 1:
        return
    alike: dict[Any, list[Tensor]] = {}
    for t in tensors:
        alike.setdefault((t.dtype, t.device), []).append(t.detach())
    for group in alike.values():
        together = torch.cat([t.reshape(-1) for t in group])
        broadcast.inplace(comm, together, root)
        for t, part in zip(group, together.split([t.numel() for t in group]), strict=True):
            t.copy_(part.view(t.shape))


#: ``zeros(like, n)``: a new vector of n zeros of the kind of a tensor.
Zeros = Callable[[Tensor, int], Tensor]


def plain_zeros(like: Tensor, n: int) -> Tensor:
    """Zeros anywhere."""
    return like.new_zeros(n, requires_grad=False)


def symmetric_zeros(comm: Comm) -> Zeros:
    """A way to zeros in symmetric memory, which all ranks must go together; for tensors on the CPU."""

    def zeros(like: Tensor, n: int) -> Tensor:
        raw = comm.windows.empty(n * like.element_size(), np.uint8)
        return torch.from_numpy(raw).view(like.dtype).zero_()

    return zeros
