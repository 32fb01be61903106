"""The all-reduce SGD step, at the heart of data-parallel training: in numpy over ``Comm``, and in plain torch.distributed.

K workers hold the same w. Each sums the gradients of its own examples, one all-reduce adds the sums and the counts, and
everybody takes the same step: the one that a single worker would take with all the examples, up to rounding (Bottou, Curtis
and Nocedal 2018, section 4). ``learn.sync_sgd`` is a loop of such steps, ``train.DDP`` what torch's users have of it.

Symbols: w (d,) the parameters, ``eta`` the learning rate, ``mine`` the numbers of this worker's examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.collectives import ring

if TYPE_CHECKING:
    from labkit.comm import Comm


def one_step(
    comm: Comm, problem: Any, w: np.ndarray, eta: float, mine: np.ndarray
) -> np.ndarray:
    """w after one step with everybody's examples, (d,): the same bits on every rank.

    problem: its ``grad_sum(w, mine)`` is the sum of the examples' gradients, (d,). mine: may be empty, but not on all ranks.

    >>> from labkit.learn import LeastSquares
    >>> problem, w = LeastSquares([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0]), np.zeros(1)
    >>> shards = [np.array([0, 1]), np.array([2])]
    >>> together = launch(lambda comm: one_step(comm, problem, w, 0.05, shards[comm.rank]), 2).results
    >>> bool(together[0] == together[1]), np.allclose(together[0], w - 0.05 * problem.grad(w))
    (True, True)
    """
    sum_and_count = np.append(problem.grad_sum(w, mine), len(mine))
    total = ring.allreduce(comm, sum_and_count)
    return w - eta * total[:-1] / total[-1]


def one_step_torch(group: Any, problem: Any, w: Any, eta: float, mine: Any) -> Any:
    """The same with tensors. group: a torch.distributed process group; None is the default one."""
    import torch
    import torch.distributed as dist

    sum_and_count = torch.cat([problem.grad_sum(w, mine), w.new_tensor([len(mine)])])
    dist.all_reduce(sum_and_count, group=group)
    return w - eta * sum_and_count[:-1] / sum_and_count[-1]
