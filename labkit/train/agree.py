"""Before the first step: do all workers hold the same model, and may it be wrapped? Then everyone takes rank 0's."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit.collectives import broadcast, naive
from labkit.comm.base import Comm
from labkit.comm.errors import Mismatch

_OWNED = "_labkit_owner"


def adopt(comm: Comm, model: nn.Module, owner: str) -> Callable[[], None]:
    """Look after ``model`` as ``owner``: everyone takes rank 0's parameters and buffers. A collective. Returns what undoes
    it.

    ValueError for a model with nothing to train, or which somebody looks after already; Mismatch, naming rank and line,
    unless all bring and train the same parameters.
    """
    everything = list(model.parameters())
    mine = [p for p in everything if p.requires_grad]
    if not mine:
        why = (
            f"all of its {len(everything)} are frozen"
            if everything
            else "it has none"
        )
        raise ValueError(
            f"model must have parameters that want a gradient, but {why}"
        )
    for p in mine:
        if other := getattr(p, _OWNED, None):
            raise ValueError(
                f"model must be wrapped once, but a {other} looks after it already"
            )
    lines = [_line("parameter", name, p) for name, p in model.named_parameters()]
    lines += [_line("buffer", name, b) for name, b in model.named_buffers()]
    if comm.K > 1:
        _agree(comm, lines)
    share_inplace(comm, [*everything, *model.buffers()])
    for p in mine:
        setattr(p, _OWNED, owner)

    def let_go() -> None:
        for p in mine:
            vars(p).pop(_OWNED, None)

    return let_go


def _line(kind: str, name: str, t: Tensor) -> str:
    frozen = " (frozen)" if kind == "parameter" and not t.requires_grad else ""
    return f"{kind} {name} {tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}{frozen}"


def _agree(comm: Comm, lines: list[str]) -> None:
    """Raise Mismatch, naming rank and line, unless all workers bring the same ``lines``; the majority is right."""
    text = "\n".join(lines).encode()
    row = np.zeros(comm.K, np.int64)
    row[comm.rank] = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    brought = naive.allreduce(comm, row).tolist()
    (usual, many), *_ = Counter(brought).most_common(1)  # of equals rank 0's
    if many == comm.K:
        return
    right = brought.index(usual)
    odd = tuple(k for k in range(comm.K) if brought[k] != usual)
    pairs = zip_longest(
        _lines_of(comm, text, right),
        _lines_of(comm, text, odd[0]),
        fillvalue="nothing more",
    )
    ours, theirs = next(pair for pair in pairs if pair[0] != pair[1])
    said = f"rank {odd[0]} has {theirs} where rank {right} has {ours}"
    raise Mismatch(f"the ranks must hold the same model, but {said}", odd)


def _lines_of(comm: Comm, text: bytes, root: int) -> list[str]:
    """The lines of rank ``root``, on every rank."""
    length = int(broadcast(comm, np.array([len(text)]), root)[0])
    raw = (
        np.frombuffer(text, np.uint8).copy()
        if comm.rank == root
        else np.empty(length, np.uint8)
    )
    return broadcast(comm, raw, root).tobytes().decode().split("\n")


@torch.no_grad()
def share_inplace(comm: Comm, tensors: Iterable[Tensor]) -> None:
    """Replace all ``tensors`` by rank 0's, those of one dtype in one message."""
    if comm.K == 1:
        return
    alike: dict[Any, list[Tensor]] = {}
    for t in tensors:
        alike.setdefault((t.dtype, t.device), []).append(t.detach())
    for group in alike.values():
        together = torch.cat([t.reshape(-1) for t in group])
        broadcast.inplace(comm, together)
        parts = together.split([t.numel() for t in group])
        for t, part in zip(group, parts, strict=True):
            t.copy_(part.view(t.shape))
