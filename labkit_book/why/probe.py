"""What a recording is held against, measured between the same workers: computing alone, and what all-reduces take.

``autograd.grad`` makes gradients and accumulates none, so that nothing which waits for one (a DDP's hooks) is called. The
workers of a host take turns, then all compute together: the difference is what they lose by sharing it. All-reduces are
clocked from a few bytes to the longest message of a step, one by one, and the step's own messages all at once.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves, tree_map

from labkit import machine
from labkit.train.recorder import Phase, Recording, StragglerRecorder

_ROUNDS = 6, 30  # at least, and at most, as far as _SECONDS allow
_SECONDS = 0.6
_SHORT = 64.0

#: A gradient that came: its bytes, and the share of the backward pass after which it did.
Came = tuple[float, float]


@dataclass(frozen=True)
class Probe:
    """What one rank measured, in seconds. alone, together: a pass of each round, with so many examples; empty where some
    model can't be asked again. came: its gradients. messages: bytes of a step's. sizes: bytes of all-reduces; times: of each
    round, what those take, all messages at once, and only sending these."""

    alone: list[float]
    together: list[float]
    came: list[Came]
    examples: int
    messages: list[float]
    sizes: list[float]
    times: list[list[float]]


def probe(recorder: StragglerRecorder, recording: Recording) -> Probe:
    """Measure, with the recorder's model and usual batch. A collective."""
    messages = _messages(recorder, recording)
    hosts = recorder.gathered(socket.gethostname())
    with recorder.paused():
        passes = _passes(recorder, hosts)
        prices = _all_reduces(recorder, messages) if len(hosts) > 1 else ([], [[0.0, 0.0]])
    return Probe(*passes, recorder.usual[0], messages, *prices)


def _messages(recorder: StragglerRecorder, recording: Recording) -> list[float]:
    """Bytes of each gradient message of a step: what a DDP says, and else as many alike as there were collectives."""
    if isinstance(recorder.wrapper, torch.nn.parallel.DistributedDataParallel):
        known = recorder.wrapper._get_ddp_logging_data()
        text = known.get("rebuilt_bucket_sizes") or known.get("bucket_sizes", "")
        if sizes := [float(n) for n in str(text).split(",") if n.strip()]:
            return sizes
    if recorder.model is None or recording.calls is None:
        return []
    total = float(sum(p.nbytes for p in recorder.model.parameters() if p.requires_grad))
    calls = max(1, int(recording.calls[0, -1, [Phase.BACKWARD, Phase.STAY]].sum()))
    return [total / calls] * calls


def _passes(recorder: StragglerRecorder, hosts: list[str]) -> tuple[list[float], list[float], list[Came]]:
    """Seconds of passes when it is this rank's turn, and with all others; and its gradients."""
    rank = dist.get_rank(recorder.group) if len(hosts) > 1 else 0
    turn, turns = hosts[:rank].count(hosts[rank]), max(map(hosts.count, hosts))
    model, (examples, inputs) = recorder.model, recorder.usual
    seconds, came = _tried(model, inputs) if examples else (math.nan, [])
    longest = np.max(recorder.gathered(seconds))
    if math.isnan(longest):  # it is if anybody's is
        return [], [], []
    alone, together = [], []
    for _ in range(_rounds(longest * (turns + 1))):
        for i in range(turns):
            _barrier(recorder.group)
            if i == turn:
                alone.append(_pass(model, inputs)[0])
        _barrier(recorder.group)
        together.append(_pass(model, inputs)[0])
    return alone, together, came


def _rounds(seconds: float) -> int:
    return int(np.clip(_SECONDS / max(seconds, 1e-9), *_ROUNDS))


def _tried(model: Any, inputs: Any) -> tuple[float, list[Came]]:
    """A pass after one that warms up; nan seconds and no gradients where there can be none."""
    try:
        return min(_pass(model, inputs) for _ in range(3))
    except Exception:  # whatever a stranger's model raises on being asked twice
        return math.nan, []


def _pass(model: Any, inputs: Any) -> tuple[float, list[Came]]:
    """Seconds of one forward and backward pass, and the gradients that came. Nothing stays changed."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    device = parameters[0].device
    gpus = [device] if device.type == machine.ACCELERATOR else []
    args, kwargs = tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, inputs)
    kept = [(b, b.clone()) for b in model.buffers()]
    came: list[Came] = []
    note = lambda p: lambda gradient: came.append((float(p.nbytes), time.perf_counter()))  # noqa: E731
    handles = [p.register_hook(note(p)) for p in parameters]
    try:
        with torch.random.fork_rng(gpus, device_type=machine.ACCELERATOR), torch.enable_grad():
            _finish(device)
            begun = time.perf_counter()
            out = model(*args, **kwargs)
            losses = [x.sum() for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.requires_grad]
            middle = time.perf_counter()
            torch.autograd.grad(sum(losses), parameters, allow_unused=True)
            _finish(device)
            ended = time.perf_counter()
    finally:
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)
    return ended - begun, [(n, (at - middle) / max(ended - middle, 1e-9)) for n, at in came]


def _all_reduces(recorder: StragglerRecorder, messages: list[float]) -> tuple[list[float], list[list[float]]]:
    """``sizes`` and ``times`` of a probe."""
    group, device = recorder.group, recorder.device
    if recorder.model is None:  # what the group takes
        device = torch.device(dist.distributed_c10d._get_object_coll_device(group))
    sizes = np.geomspace(_SHORT, max([*messages, 4e4]), 5).tolist()

    def one_round() -> list[float]:
        singles = [_sent([n], group, device, 10 if n < 1e5 else 1)[0] for n in sizes]
        return [*singles, *_sent(messages, group, device)]

    one_round()  # warms up
    rounds = _rounds(max(recorder.gathered(sum(one_round()))))
    return sizes, [one_round() for _ in range(rounds)]


def _sent(messages: Sequence[float], group: Any, device: torch.device, times: int = 1) -> tuple[float, float]:
    """Seconds of all-reduces that are sent at once, and of only sending them; means of several times."""
    vectors = [torch.zeros(max(1, round(n / 4)), device=device) for n in messages]
    _barrier(group)
    sending, begun = 0.0, time.perf_counter()
    for _ in range(times):
        again = time.perf_counter()
        works = [dist.all_reduce(x, group=group, async_op=True) for x in vectors]
        sending += time.perf_counter() - again
        for work in works:
            work.wait()
        _finish(device)
    return (time.perf_counter() - begun) / times, sending / times


def _barrier(group: Any) -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier(group)


def _finish(device: torch.device) -> None:
    """Wait until a GPU has done what it was told."""
    if device.type == machine.ACCELERATOR:
        torch.get_device_module(device).synchronize(device)
