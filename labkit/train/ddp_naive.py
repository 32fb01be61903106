"""Data-parallel training, the naive way: after the backward pass, sum the gradients, and divide.

Two loops: one all-reduce for each parameter, or one for all of them together, copied into one flat vector. Both wait
for the whole backward pass before the first byte leaves; ``ddp`` does not.

A training loop becomes data-parallel by two lines:

      model = make_model()
    + share_parameters(comm, model)
      for x, y in my_batches:
          optimizer.zero_grad()
          loss(model(x), y).backward()
    +     average_gradients(comm, model)
          optimizer.step()

Symbols: K workers, b_k examples on worker k, g_k the gradient of worker k's mean loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labkit.checks import integer
from labkit.collectives import naive, ring
from labkit.comm.base import Comm
from labkit.train.agree import share_inplace, trainable


def share_parameters(comm: Comm, model: nn.Module) -> None:
    """Everyone takes rank 0's parameters and buffers."""
    share_inplace(comm, [*model.parameters(), *model.buffers()])


def average_gradients(
    comm: Comm,
    model: nn.Module,
    allreduce: Callable[[Comm, Tensor], Any] = ring.allreduce_inplace,
    examples: int | None = None,
) -> None:
    """Replace each gradient by the workers' mean, one all-reduce a parameter.

    examples: this worker's b_k, for the weighted mean sum_k b_k g_k / sum_k b_k; None: all b_k are equal. A parameter
    without a gradient counts as zero here, and gets a gradient on every worker.

    >>> from labkit import launch
    >>> def worker(comm):
    ...     model = torch.nn.Linear(1, 1, bias=False)
    ...     model.weight.grad = torch.full((1, 1), float(comm.rank))
    ...     average_gradients(comm, model)
    ...     return model.weight.grad.item()
    >>> launch(worker, 3).results
    [1.0, 1.0, 1.0]
    """
    share = _share(comm, examples)
    for p in trainable(model):
        g = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
        g.mul_(share)
        allreduce(comm, g)
        p.grad = g


def average_gradients_flat(
    comm: Comm,
    model: nn.Module,
    allreduce: Callable[[Comm, Tensor], Any] = ring.allreduce_inplace,
    examples: int | None = None,
) -> None:
    """The same with one all-reduce for all: the gradients are copied into one vector, and back.

    ValueError if the parameters are of several dtypes, which do not add up in one vector.
    """
    parameters = trainable(model)
    dtypes = {str(p.dtype) for p in parameters}
    if len(dtypes) > 1:
        raise ValueError(f"model must have parameters of one dtype to be summed flat, got {sorted(dtypes)}")
    share = _share(comm, examples)
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    together = torch.cat([g.reshape(-1) for g in gradients]).mul_(share)
    allreduce(comm, together)
    for p, g in zip(parameters, together.split([p.numel() for p in parameters]), strict=True):
        p.grad = g.view(p.shape).clone()


def _share(comm: Comm, examples: int | None) -> float:
    """What this worker's mean counts for in everybody's."""
    if examples is None:
        return 1 / comm.K
    everyone = float(
        naive.allreduce(comm, torch.tensor([float(integer("examples", examples))], dtype=torch.float64))[0]
    )
    if everyone == 0:
        raise ValueError("examples must be at least 1 on some rank, got 0 on every rank")
    return examples / everyone
