"""Tells when all gradients of a group of parameters have come, during the backward pass and at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

run_at_end_of_backward: Callable[[Callable[[], None]], None] = (
    torch.autograd.Variable._execution_engine.queue_callback
)


class Arrivals:
    """Hooks on groups of parameters.

    arrived(i, j): called when the gradient of parameter j of group i has come.
    complete(i, missing): called once in each backward pass for every group, when its last gradient has come; at the end of
        the pass for groups of which some parameters took no part, ``missing`` (empty before that). With ``in_order``, i is
        called only after i - 1, so that workers whose graphs differ still do the same things in the same order.
    finish(): called after that. All run inside ``backward()``. A backward pass inside another (a checkpoint that is
        recomputed with use_reentrant=True) is one of its own: nothing is lost, but more is sent.
    paused: while it is true, nothing is noticed.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[nn.Parameter]],
        complete: Callable[[int, set[int]], None],
        finish: Callable[[], None],
        arrived: Callable[[int, int], None] | None = None,
        in_order: bool = True,
    ) -> None:
        self._groups, self._complete, self._finish, self._in_order = groups, complete, finish, in_order
        self._tell = arrived
        self.paused = False
        self.reset()
        self._hooks = [
            p.register_post_accumulate_grad_hook(partial(self._arrived, i, j))
            for i, group in enumerate(groups)
            for j, p in enumerate(group)
        ]

    def reset(self) -> None:
        """Forget a backward pass that did not come to its end."""
        self._running = False
        self._missing = [set(range(len(group))) for group in self._groups]
        self._done = [False] * len(self._groups)

    def begin(self) -> None:
        """A backward pass is on: see to its end. (The first gradient does this by itself.)"""
        if not self._running:
            self._running = True
            run_at_end_of_backward(self._end)

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()

    def _arrived(self, i: int, j: int, p: Tensor) -> Any:
        if self.paused:
            return
        self.begin()
        self._missing[i].discard(j)
        if self._tell is not None:
            self._tell(i, j)
        self._call(at_the_end=False)

    def _call(self, at_the_end: bool) -> None:
        for i, done in enumerate(self._done):
            if done:
                continue
            if not self._missing[i] or at_the_end:
                self._done[i] = True
                self._complete(i, self._missing[i])
            elif self._in_order:
                return

    def _end(self) -> None:
        self._call(at_the_end=True)
        self.reset()
        self._finish()
