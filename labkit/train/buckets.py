"""Buckets: gradients that travel together, in the order in which the backward pass makes them; and hooks that tell when.

The backward pass ends with the first layer, so buckets are filled from the last parameter to the first (Li et al. 2020,
section 3.2.3). A bucket is one vector; each gradient in it is a view, so what was summed is where the optimizer looks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

#: torch's own sizes: small enough to start early, then large enough to be worth a message.
FIRST_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20


def assign(
    nbytes: Sequence[int],
    limits: Sequence[float],
    kinds: Sequence[Hashable] | None = None,
) -> list[list[int]]:
    """Which parameters go together: lists of indices, in the order in which the buckets will be complete.

    nbytes: (P,) sizes in order of registration. limits: a bucket is closed when it holds as many bytes; the i-th of a kind
    by ``limits[i]``, later ones by the last. kinds: (P,) what must not be mixed, such as dtypes; None: all alike.
    """
    kinds = [None] * len(nbytes) if kinds is None else kinds
    open_now: dict[Hashable, list[int]] = {}
    closed = []
    count: dict[Hashable, int] = {}
    for i in reversed(range(len(nbytes))):
        bucket = open_now.setdefault(kinds[i], [])
        bucket.append(i)
        made = count.get(kinds[i], 0)
        if sum(nbytes[j] for j in bucket) >= limits[min(made, len(limits) - 1)]:
            closed.append(open_now.pop(kinds[i]))
            count[kinds[i]] = made + 1
    return sorted([*closed, *open_now.values()], key=lambda bucket: -bucket[-1])


@dataclass
class Bucket:
    """One vector, and the parameters whose gradients it holds as ``views``."""

    parameters: list[nn.Parameter]
    flat: Tensor
    views: list[Tensor]

    @classmethod
    def fill(
        cls, parameters: Sequence[nn.Parameter], bucket_bytes: float
    ) -> list[Bucket]:
        """The buckets of a model's parameters (in order of registration), their vectors full of zeros."""
        limits = [min(FIRST_BYTES, bucket_bytes), bucket_bytes]
        kinds = [(p.dtype, p.device) for p in parameters]
        made = []
        for chosen in assign([p.nbytes for p in parameters], limits, kinds):
            own = [parameters[i] for i in chosen]
            sizes = [p.numel() for p in own]
            flat = own[0].new_zeros(sum(sizes), requires_grad=False)
            views = [
                part.view(p.shape)
                for part, p in zip(flat.split(sizes), own, strict=True)
            ]
            made.append(cls(own, flat, views))
        return made

    @torch.no_grad()
    def take(self, i: int, share: float) -> None:
        """Bring the i-th gradient here, times ``share``, as soon as it comes, while it is in the cache; from now on it lives
        here."""
        p, view = self.parameters[i], self.views[i]
        g = p.grad
        if g is None:
            view.zero_()
            return
        if g.is_sparse:
            got = f"a sparse one of shape {tuple(p.shape)}"
            raise ValueError(
                f"gradients must be dense, got {got}: make it with sparse=False"
            )
        if g.data_ptr() == view.data_ptr() and g.shape == view.shape:
            view.mul_(share)
        else:
            torch.mul(g, share, out=view)
        p.grad = view


run_at_end_of_backward: Callable[[Callable[[], None]], None] = (
    torch.autograd.Variable._execution_engine.queue_callback
)


class Arrivals:
    """Hooks on groups of parameters. While ``paused`` is true, nothing is noticed; ``running``: a backward pass is on.

    complete(i, missing): called once in each backward pass for every group, when its last gradient has come, or at the end
    of the pass where the parameters ``missing`` took no part. ``in_order``: only after i - 1, so that workers whose graphs
    differ do the same in the same order. finish(): called after that. arrived(i, j): the gradient of parameter j of group i
    has come.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[nn.Parameter]],
        complete: Callable[[int, set[int]], None],
        finish: Callable[[], None],
        arrived: Callable[[int, int], None] = lambda i, j: None,
        in_order: bool = True,
    ) -> None:
        self._groups, self._complete, self._finish, self._in_order = (
            groups,
            complete,
            finish,
            in_order,
        )
        self._tell = arrived
        self.paused = False
        self.reset()
        self._hooks = []
        for i, group in enumerate(groups):
            for j, p in enumerate(group):
                hook = partial(self._arrived, i, j)
                self._hooks.append(p.register_post_accumulate_grad_hook(hook))

    def reset(self) -> None:
        """Forget a backward pass that did not come to its end."""
        self.running = False
        self._missing = [set(range(len(group))) for group in self._groups]
        self._done = [False] * len(self._groups)

    def begin(self) -> None:
        """A backward pass is on: see to its end. (The first gradient does this by itself.)"""
        if not self.running:
            self.running = True
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
