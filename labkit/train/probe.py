"""What a recording is held against, measured between the same workers: computing alone, and what all-reduces take.

A forward and backward pass is repeated on each worker without communication: ``autograd.grad`` makes the gradients
and accumulates none, so that nothing which waits for a gradient (a DDP's hooks) is called. The workers of a host take turns,
then all compute together, round after round; the difference is what they lose by sharing it. A pass of half the examples
says what a batch costs however small it is, on a straight line. All-reduces are clocked from a few bytes to the longest
message of a step, one after the other, and the step's own messages all at once, as a DDP sends them. What is compared with
mean steps is a mean.

Symbols: K ranks, n bytes. Times are seconds.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves, tree_map

from labkit import machine

ROUNDS = 6, 30  # at least, and at most, as far as SECONDS allow
SECONDS = 0.6
SHORT = 64.0
CPU = torch.device("cpu")


def probe(
    model: Any, inputs: Any, n: int, group: Any, messages: Sequence[float], device: torch.device
) -> dict[str, Any]:
    """What this rank measures: seconds of passes, ``alone``, ``together`` and of ``half`` the examples; of
    each gradient that ``came``, (bytes, share of the backward pass): nothing where some rank's model can't be asked again;
    ``sizes``, ``times`` of all-reduces; ``inside``, ranks on the fullest host. inputs: (args, kwargs) of the model with n
    examples, or None. device: the model's, and the messages'. A collective.
    """
    with _on(device):
        hosts = said(socket.gethostname(), group)
        rank = dist.get_rank(group) if len(hosts) > 1 else 0
        inside = max(map(hosts.count, hosts))
        found = _alone(model, inputs, n, group, hosts[:rank].count(hosts[rank]), inside)
        if model is None and len(hosts) > 1:  # what the group takes
            device = torch.device(dist.distributed_c10d._get_object_coll_device(group))
        sizes, times = _all_reduces(group, messages, device) if len(hosts) > 1 else ([], [[0.0, 0.0]])
    return {**found, "messages": messages, "sizes": sizes, "times": times, "inside": inside}


def _alone(model: Any, inputs: Any, n: int, group: Any, turn: int, turns: int) -> dict[str, Any]:
    """Passes when it is this rank's turn, with all others, and with all others on half the examples."""
    came, seconds = _tried(model, inputs)
    # a compiled model would be compiled anew for another length
    few = n // 2 if came and not any(map(_compiled, model.modules())) else 0
    half = tree_map(
        lambda x: x[:few] if isinstance(x, torch.Tensor) and x.ndim and len(x) == n else x, inputs
    )
    longest, few_s = np.max(said((seconds, _tried(model, half)[1] if few else math.nan), group), axis=0)
    own, both, halves = [], [], []
    for _ in range(0 if math.isnan(longest) else _rounds(longest * (turns + 2))):  # nan if anybody's is
        for i in range(turns):
            _barrier(group)
            if i == turn:
                own.append(_pass(model, inputs)[0])
        _barrier(group)
        both.append(_pass(model, inputs)[0])
        if not math.isnan(few_s):
            _barrier(group)
            less = _pass(model, half)[0]
            halves.append(less + (both[-1] - less) * (n / 2 - few) / (n - few))  # exact on a straight line
    return {"alone": own, "together": both, "half": halves, "came": came if own else []}


def _compiled(module: Any) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def _rounds(seconds: float) -> int:
    """How many of so many seconds each."""
    return int(np.clip(SECONDS / max(seconds, 1e-9), *ROUNDS))


def _tried(model: Any, inputs: Any) -> tuple[list[tuple[float, float]], float]:
    """What came when, and the seconds of a pass; nothing and nan where there can be none."""
    if inputs is None:
        return [], math.nan
    try:
        _pass(model, inputs)
        return _pass(model, inputs, note=True)[1], _pass(model, inputs)[0]
    except Exception:  # whatever a stranger's model raises on being asked twice
        return [], math.nan


def _pass(model: Any, inputs: Any, note: bool = False) -> tuple[float, list[tuple[float, float]]]:
    """Seconds of one forward and backward pass, and, to note, what came when (``alone``). Nothing stays changed."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    device = parameters[0].device
    gpus = [device] if device.type == machine.ACCELERATOR else []
    args, kwargs = tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, inputs)
    kept = [(b, b.clone()) for b in model.buffers()]
    came: list[tuple[float, float]] = []

    def arrived(p: torch.Tensor, _: torch.Tensor) -> None:
        came.append((float(p.nbytes), time.perf_counter()))

    handles = [p.register_hook(lambda g, p=p: arrived(p, g)) for p in parameters if note]
    try:
        with torch.random.fork_rng(gpus, device_type=machine.ACCELERATOR), torch.enable_grad():
            _done(device)
            begun = time.perf_counter()
            out = model(*args, **kwargs)
            losses = [x.sum() for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.requires_grad]
            middle = time.perf_counter()
            torch.autograd.grad(sum(losses), parameters, allow_unused=True)
            _done(device)
            ended = time.perf_counter()
    finally:
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)
    return ended - begun, [(n, (at - middle) / max(ended - middle, 1e-9)) for n, at in came]


def _all_reduces(
    group: Any, messages: Sequence[float], device: torch.device
) -> tuple[list[float], list[list[float]]]:
    """Bytes, rising, and round after round the seconds of all-reduces of so many here, of all ``messages`` at once, and
    of only sending these.
    """
    sizes = np.geomspace(SHORT, max([*messages, 4e4]), 5).tolist()

    def one_round() -> list[float]:
        singles = [_sent([n], group, device, 10 if n < 1e5 else 1)[0] for n in sizes]
        return [*singles, *_sent(messages, group, device)]

    one_round()  # warms up
    rounds = _rounds(max(said(sum(one_round()), group)))
    return sizes, [one_round() for _ in range(rounds)]


def _sent(messages: Sequence[float], group: Any, device: torch.device, times: int = 1) -> tuple[float, float]:
    """Seconds of all-reduces that are sent at once, and seconds until they have been sent; means of several times."""
    vectors = [torch.zeros(max(1, round(n / 4)), device=device) for n in messages]
    _barrier(group)
    sending, begun = 0.0, time.perf_counter()
    for _ in range(times):
        again = time.perf_counter()
        works = [dist.all_reduce(x, group=group, async_op=True) for x in vectors]
        sending += time.perf_counter() - again
        for work in works:
            work.wait()
        _done(device)
    return (time.perf_counter() - begun) / times, sending / times


def said(mine: Any, group: Any, device: torch.device = CPU) -> list[Any]:
    """What every rank says; only this one without a group. device: this rank's, which nccl sends from. A collective."""
    if not dist.is_available() or not dist.is_initialized():
        return [mine]
    everyone: list[Any] = [None] * dist.get_world_size(group)
    with _on(device):
        dist.all_gather_object(everyone, mine, group=group)
    return everyone


def _barrier(group: Any) -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier(group)


def _done(device: torch.device) -> None:
    if device.type == machine.ACCELERATOR:
        torch.get_device_module(device).synchronize(device)


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Within it ``device`` is torch's current one, on which nccl gathers objects and waits at barriers."""
    gpu = device.type == machine.ACCELERATOR
    return torch.get_device_module(device).device(device) if gpu else nullcontext()
