"""Data-parallel training, the naive way: after the backward pass, sum the gradients, and divide.

A training loop becomes data-parallel by two lines (``ddp`` need not wait for the whole backward pass):

      model = make_model()
    + share_parameters(comm, model)
      for x, y in my_batches:
          optimizer.zero_grad()
          loss(model(x), y).backward()
    +     average_gradients(comm, model)
          optimizer.step()

Every worker must bring equally many examples, for the mean of the workers' means is then the mean over all of them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labkit.collectives import ring
from labkit.comm.base import Comm
from labkit.train.agree import share_inplace


def share_parameters(comm: Comm, model: nn.Module) -> None:
    """Everyone takes rank 0's parameters and buffers."""
    share_inplace(comm, [*model.parameters(), *model.buffers()])


def average_gradients(
    comm: Comm,
    model: nn.Module,
    allreduce: Callable[[Comm, Tensor], Any] = ring.allreduce_inplace,
    flat: bool = False,
) -> None:
    """Replace each gradient by the workers' mean; a parameter without one counts as zero, and gets one on every worker.

    flat: all gradients in one vector and one all-reduce, in place of one a parameter. ValueError if the parameters are of
    several dtypes, which do not add up in one vector.

    >>> from labkit import launch
    >>> def worker(comm):
    ...     model = torch.nn.Linear(1, 1, bias=False)
    ...     model.weight.grad = torch.full((1, 1), float(comm.rank))
    ...     average_gradients(comm, model)
    ...     return model.weight.grad.item()
    >>> launch(worker, 3).results
    [1.0, 1.0, 1.0]
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = []
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
        gradients.append(p.grad.mul_(1 / comm.K))
    if not flat:
        for g in gradients:
            allreduce(comm, g)
        return
    dtypes = sorted({str(g.dtype) for g in gradients})
    if len(dtypes) > 1:
        raise ValueError(
            f"model must have parameters of one dtype to be summed flat, got {dtypes}"
        )
    together = torch.cat([g.reshape(-1) for g in gradients])
    allreduce(comm, together)
    parts = together.split([g.numel() for g in gradients])
    for g, part in zip(gradients, parts, strict=True):
        g.copy_(part.view(g.shape))
