"""Before the first step: do all workers hold the same model, and may it be wrapped? Then everyone takes rank 0's.

What is compared is a fingerprint of names, shapes and dtypes, K numbers of 8 bytes; only where fingerprints differ are
the descriptions themselves sent, to say what differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit.collectives.naive import naive_allreduce
from labkit.collectives.parts import broadcast, broadcast_inplace
from labkit.comm.base import Comm
from labkit.comm.errors import Mismatch

_OWNED = "_labkit_owner"


def trainable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Names and parameters that want a gradient; one entry for tied ones. ValueError if there are none."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    found = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not found:
        frozen = sum(1 for _ in model.parameters())
        why = f"all of its {frozen} are frozen" if frozen else "it has none"
        raise ValueError(f"model must have parameters that want a gradient, but {why}: nothing to train")
    return found


def refuse_owned(parameters: Iterable[nn.Parameter]) -> None:
    """ValueError if somebody looks after one of the parameters already: two sets of hooks would average it twice."""
    for p in parameters:
        other = getattr(p, _OWNED, None)
        if other is not None:
            raise ValueError(f"model must be wrapped once, but a {other} looks after its parameters already")


def claim(parameters: Iterable[nn.Parameter], owner: str) -> None:
    """Mark parameters as looked after by ``owner``."""
    for p in parameters:
        setattr(p, _OWNED, owner)


def release(parameters: Iterable[nn.Parameter]) -> None:
    """Undo ``claim``."""
    for p in parameters:
        if hasattr(p, _OWNED):
            delattr(p, _OWNED)


def describe_model(model: nn.Module) -> list[str]:
    """One line a parameter and a buffer: name, shape, dtype, and whether it is trained."""
    lines = [
        f"parameter {name} {tuple(p.shape)} {str(p.dtype).removeprefix('torch.')}"
        f"{'' if p.requires_grad else ' (frozen)'}"
        for name, p in model.named_parameters()
    ]
    return lines + [
        f"buffer {name} {tuple(b.shape)} {str(b.dtype).removeprefix('torch.')}"
        for name, b in model.named_buffers()
    ]


def agree(comm: Comm, lines: list[str]) -> None:
    """Raise Mismatch, naming rank and line, unless all workers bring the same ``lines``. Everyone must call it."""
    if comm.K == 1:
        return
    text = "\n".join(lines).encode()
    mine = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    row = np.zeros(comm.K, np.int64)
    row[comm.rank] = mine
    row = naive_allreduce(comm, row)
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
        broadcast_inplace(comm, together, root)
        for t, part in zip(group, together.split([t.numel() for t in group]), strict=True):
            t.copy_(part.view(t.shape))
