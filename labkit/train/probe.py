"""What a recording is held against, measured between the same workers: computing alone, and what all-reduces take.

A forward and backward pass is repeated on each worker without communication: ``autograd.grad`` makes the gradients
and accumulates none, so that nothing which waits for a gradient (a DDP's hooks) is called. The workers of a host take turns,
then all compute together, round after round; the difference is what they lose by sharing it. All-reduces are clocked from a
few bytes to the longest message of a step, one after the other, and the step's own messages all at once, as a DDP sends
them. What is compared with mean steps is a mean.

Symbols: K ranks, n bytes. Times are seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves, tree_map

ROUNDS = 6
SHORT = 64.0


def alone(model: Any, inputs: Any, group: Any, turn: int, turns: int) -> dict[str, Any]:
    """Seconds of a pass, ``alone`` and ``together``; of each gradient that ``came``, (bytes, share of the backward pass).

    turn, turns: when this rank's turn is, and how many there are. nan and nothing where the model can't be asked again; if
    one rank can't, none is. A collective.
    """
    unknown: dict[str, Any] = {"alone": math.nan, "together": math.nan, "came": []}
    found = {} if inputs is None else _tried(model, inputs)
    if not _all(bool(found), group):
        return unknown
    own, both = [], []
    for _ in range(ROUNDS):
        for i in range(turns):
            _barrier(group)
            if i == turn:
                own.append(_pass(model, inputs)[0])
        _barrier(group)
        both.append(_pass(model, inputs)[0])
    return {"alone": float(np.mean(own)), "together": float(np.mean(both)), "came": found["came"]}


def _tried(model: Any, inputs: Any) -> dict[str, Any]:
    try:
        _pass(model, inputs)
        return {"came": _pass(model, inputs)[1]}
    except Exception:  # whatever a stranger's model raises on being asked twice
        return {}


def _pass(model: Any, inputs: Any) -> tuple[float, list[tuple[float, float]]]:
    """Seconds of one forward and backward pass, and what ``alone`` says of the gradients. Nothing stays changed."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    cuda = parameters[0].is_cuda
    args, kwargs = tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, inputs)
    kept = [(b, b.clone()) for b in model.buffers()]
    came: list[tuple[float, float]] = []

    def note(p: torch.Tensor, _: torch.Tensor) -> None:
        came.append((float(p.nbytes), time.perf_counter()))

    handles = [p.register_hook(lambda g, p=p: note(p, g)) for p in parameters]
    try:
        with torch.random.fork_rng([parameters[0].device] if cuda else []), torch.enable_grad():
            _done(cuda)
            begun = time.perf_counter()
            out = model(*args, **kwargs)
            losses = [x.sum() for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.requires_grad]
            middle = time.perf_counter()
            torch.autograd.grad(sum(losses), parameters, allow_unused=True)
            _done(cuda)
            ended = time.perf_counter()
    finally:
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)
    return ended - begun, [(n, (at - middle) / max(ended - middle, 1e-9)) for n, at in came]


def clock_all_reduces(group: Any, messages: Sequence[float], cuda: bool) -> list[tuple[float, float]]:
    """(bytes, seconds) of all-reduces here; the last two are all ``messages`` at once, and only their sending. A collective.

    Empty for one rank.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size(group) == 1:
        return []
    device = "cuda" if cuda else "cpu"
    longest = max([*messages, 4e4])
    sizes = np.geomspace(SHORT, longest, 5)
    found, bursts = [], []
    for i in range(ROUNDS):
        for n in sizes:
            clocked = [_sent([float(n)], group, device)[0] for _ in range(5 if n < 1e5 else 1)]
            found.append((float(n), float(np.mean(clocked))))
        if i:  # the first warms up
            bursts.append(_sent(messages, group, device))
    total = float(sum(messages))
    return [*found[len(sizes) :], *((total, float(seconds)) for seconds in np.mean(bursts, axis=0))]


def _sent(messages: Sequence[float], group: Any, device: str) -> tuple[float, float]:
    """Seconds of all-reduces that are sent at once, and seconds until they have been sent."""
    vectors = [torch.zeros(max(1, round(n / 4)), device=device) for n in messages]
    _barrier(group)
    begun = time.perf_counter()
    works = [dist.all_reduce(x, group=group, async_op=True) for x in vectors]
    sent = time.perf_counter()
    for work in works:
        work.wait()
    _done(device == "cuda")
    return time.perf_counter() - begun, sent - begun


def _all(fine: bool, group: Any) -> bool:
    """Whether it is so on every rank."""
    if not dist.is_available() or not dist.is_initialized():
        return fine
    said: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(said, fine, group=group)
    return all(said)


def _barrier(group: Any) -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier(group)


def _done(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()
