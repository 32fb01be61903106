"""Compressed gradients in torch's DistributedDataParallel: our schemes as communication hooks (Li et al. 2020, section 6).

DDP flattens gradients into buckets and hands each full bucket to a hook, which returns the mean over the workers. Ours lets
a scheme of ``labkit.compress`` do it, with one memory a bucket:

    model = DistributedDataParallel(net)
    model.register_comm_hook(Compression(ErrorFeedback(TopK(0.01))), compression_hook)

The first two steps are not compressed, because DDP makes its buckets anew after the first one, and a memory must not change
owner. Schemes are numpy: gradients on a GPU come to the host and go back, and the hook blocks the backward pass meanwhile.
"""

# No `from __future__ import annotations` here: DDP compares the hook's annotations with the types themselves.
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from labkit.checks import integer
from labkit.compress import Rngs, Scheme, Wire, rngs
from labkit.compress.wire import Array

#: Makes a scheme for a bucket from the shapes of the parameters in it, as ``lambda shapes: PowerSGD(shapes, r=4)``.
ForShapes = Callable[[tuple[tuple[int, ...], ...]], Scheme]


class _OverTorch(Wire):
    """The wire of a process in a torch process group; numpy vectors cross on the group's own device."""

    def __init__(self, group: Any = None, device: str | torch.device = "cpu") -> None:
        super().__init__(dist.get_world_size(group))
        self.group, self.device = group, device
        self.nbytes = 0

    def _sum(self, x: Array) -> Array:
        tensor = torch.tensor(x, device=self.device)
        self.nbytes += x.nbytes
        dist.all_reduce(tensor, group=self.group)
        return tensor.cpu().numpy()

    def _gather(self, message: Array) -> Array:
        tensor = torch.tensor(message, device=self.device)
        self.nbytes += message.nbytes
        everyone = [torch.empty_like(tensor) for _ in range(self.K)]
        dist.all_gather(everyone, tensor, group=self.group)
        return np.stack([theirs.cpu().numpy() for theirs in everyone])


class Compression:
    """The state of a hook on one worker.

    how: a scheme or a compressor for every bucket, or a function from the shapes of a bucket's parameters to one.
    group: the process group; None: the default one. seed: the same on every rank. plain_steps: how many steps to begin with
    are plain all-reduces, at least 2.
    nbytes: bytes of messages that this worker has brought to the wire so far; what a ring or a gather makes of them is
    ``labkit.compress.sent_bytes``. memories: what is remembered, by number of bucket.
    """

    def __init__(
        self, how: Scheme | ForShapes, group: Any = None, seed: int = 0, plain_steps: int = 2
    ) -> None:
        self._how = how if callable(how) else Scheme.of(how)
        self.group, self.seed, self.plain_steps = group, seed, integer("plain_steps", plain_steps, least=2)
        self.step = self.nbytes = 0
        self.memories: dict[int, Any] = {}
        self._kept: dict[int, tuple[Scheme, Rngs]] = {}

    def mean(self, bucket: dist.GradBucket) -> torch.Tensor:
        """The mean over the workers of what they say of this bucket, in its buffer."""
        buffer, index = bucket.buffer(), bucket.index()
        wire = _OverTorch(self.group, buffer.device)
        if self.step < self.plain_steps:
            buffer.div_(wire.K)
            dist.all_reduce(buffer, group=self.group)
            self.nbytes += buffer.nbytes
        else:
            g = buffer.detach().cpu().numpy()
            scheme, draws = self._for(bucket, g)
            out, self.memories[index] = scheme.mean(wire, g, self.memories[index], draws)
            self.nbytes += wire.nbytes
            buffer.copy_(torch.from_numpy(out.mean))
        self.step += bucket.is_last()
        return buffer

    def _for(self, bucket: dist.GradBucket, g: Array) -> tuple[Scheme, Rngs]:
        index = bucket.index()
        if index not in self._kept:
            shapes = tuple(tuple(part.shape) for part in bucket.gradients())
            scheme = self._how if isinstance(self._how, Scheme) else Scheme.of(self._how(shapes))
            draws = rngs(self.seed + index, dist.get_rank(self.group))
            self._kept[index] = scheme, draws
            self.memories[index] = scheme.start(len(g), g.dtype, draws)
        return self._kept[index]


def compression_hook(state: Compression, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook: ``model.register_comm_hook(Compression(...), compression_hook)``."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(state.mean(bucket))
    return done
