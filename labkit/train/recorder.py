"""The straggler recorder: who keeps a synchronous training job waiting, seen from inside the job itself.

Two lines in any loop, on one machine or many, also under torchrun:

    recorder = StragglerRecorder(model)   # before DistributedDataParallel wraps it, if you use that
    ...                                   # the loop as it is: forward, backward, all-reduce, optimizer.step()
    print(recorder.report())              # on every rank

A rank has *arrived* when its backward pass has its last gradient, before it waits for anybody, and *leaves* when the
optimizer steps (after the step where that calls the backward pass itself, as a closure). All leave one synchronisation
together, so the seconds from leaving to arriving compare ranks without comparing clocks, and ranks may live on different
machines. Who arrives last waits for nobody: its time from arriving to
leaving is communication, and whatever others stay longer is waiting.

Symbols: K ranks, T recorded steps. Times are seconds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from labkit import machine
from labkit.checks import integer
from labkit.show.lanes import late
from labkit.timing import Kind, StragglerReport, Timeline, straggler_report
from labkit.train.arrivals import run_at_end_of_backward


class StragglerRecorder:
    """Record when this rank arrives at, and leaves, each synchronisation of a training loop.

    model: the module whose gradients are synchronised before its optimizer steps; None for a loop that marks its
        synchronisations itself with ``with recorder.synchronising(): ...``. What waits at the end of the backward pass
        must come to the model after the recorder: wrap it afterwards.
    group: the process group that synchronises; None: the default one, or a world of one where there is none.
    keep: how many of the latest steps to keep, >= 1.

    The first step is not recorded: nobody knows yet when the others began it. With gradients on a GPU, arriving and
    leaving are CUDA events, so that what counts is when the GPU got there and not when it was told to.
    Raises ValueError for a model without a parameter that takes a gradient. Where ranks already wait for one another
    during forward or backward (FSDP, ZeRO-3, SyncBatchNorm, a loss that is all-reduced for the log, gradients that are
    accumulated without ``no_sync``, a labkit DDP that counts examples), that wait counts as computing and hides who is
    slow: mark one synchronisation by hand instead. What a rank does between its backward pass and its step (clipping,
    logging) counts as communication. Models that step in turn (a GAN) go into one recorder together,
    ``torch.nn.ModuleList([G, D])``: each step is then a synchronisation.
    """

    def __init__(self, model: torch.nn.Module | None = None, group: Any = None, keep: int = 10_000) -> None:
        self._group = group
        self._marks: deque[tuple[Any, Any, Any]] = deque(maxlen=integer("keep", keep, least=1))
        self._left: Any = None
        self._arrived: Any = None
        self._backward = -1
        self._complete = True
        self._handles: list[Any] = []
        self._clock: Any = time.perf_counter
        if model is None:
            return
        mine = [p for p in model.parameters() if p.requires_grad]
        if not mine:
            raise ValueError("model must have a parameter that takes a gradient, got none")
        self._mine = {id(p) for p in mine}
        self._handles = [p.register_post_accumulate_grad_hook(self._on_gradient) for p in mine]
        self._handles += [
            register(self._on_step)
            for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook)
        ]

    def _on_gradient(self, p: torch.Tensor) -> None:
        self._complete = False
        if self._left is None and self._arrived is None:  # the model may have been moved since
            self._clock = _event if p.is_cuda else time.perf_counter
        backward = torch._C._current_graph_task_id()
        if backward != self._backward:  # its first gradient: ask to be called when it has them all
            self._backward = backward
            run_at_end_of_backward(self._on_arrival)

    def _on_arrival(self) -> None:
        if self._complete:
            return  # a recomputed segment had the last gradient, in a backward pass of its own inside this one
        self._arrived, self._complete = self._clock(), True

    def _on_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if any(id(p) in self._mine for g in optimizer.param_groups for p in g["params"]):
            self._leave()

    def _leave(self) -> None:
        if self._arrived is None:
            return  # after the step, or a second optimizer of the same model: they left together
        now = self._clock()
        if self._left is not None:
            self._marks.append((self._left, self._arrived, now))
        self._left, self._arrived = now, None

    @contextmanager
    def synchronising(self) -> Iterator[None]:
        """Mark a synchronisation by hand: this rank arrives on entering and leaves at the end."""
        self._arrived = self._clock()
        yield
        self._leave()

    def close(self) -> None:
        """Take the recorder off the model; what it recorded stays."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> StragglerRecorder:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def report(self, false_alarm: float = 0.01) -> Recording:
        """What all ranks recorded, the same on every rank. A collective: every rank must call it.

        false_alarm: probability, at most, of naming a straggler where all ranks are alike and their steps
            independent; a rank that is slow for a stretch of steps may be named. In (0, 1).
        Ranks that recorded more steps than the others give their latest. Raises ValueError if some rank has none.
        """
        seconds = np.array([[_seconds(a, b), _seconds(b, c)] for a, b, c in self._marks]).reshape(-1, 2)
        device = _device(self._marks)
        mine = (seconds, machine.describe(device), None if device == ("cpu",) else machine.own_clock())
        everyone: list[Any] = [mine]
        if dist.is_available() and dist.is_initialized():
            everyone = [None] * dist.get_world_size(self._group)
            dist.all_gather_object(everyone, mine, group=self._group)
        T = min(len(seconds) for seconds, *_ in everyone)
        if T == 0:
            short = [k for k, (seconds, *_) in enumerate(everyone) if not len(seconds)]
            raise ValueError(
                f"report needs at least two steps on every rank, but rank {short[0]} recorded none after its first; where "
                f"no torch optimizer steps the model's own parameters, mark them: with recorder.synchronising()"
            )
        durations = np.stack([seconds[-T:] for seconds, *_ in everyone])
        where = f"{everyone[0][1]}, {len(everyone)} ranks"
        clocks = tuple(clock for *_, clock in everyone)
        return Recording.of(durations[..., 0], durations[..., 1], where, false_alarm, clocks)


@dataclass(frozen=True)
class Recording:
    """What the ranks of a job recorded. ``str()`` is a table and the verdict.

    timeline: compute, wait and communicate of each rank and step, measured; each step begins where the slowest rank
        ended the one before.
    ranks: the straggler report of its arrivals.
    clocks: of each rank's GPU, when the report was asked for; None without a GPU, or where it does not tell.
    """

    timeline: Timeline
    ranks: StragglerReport
    clocks: tuple[machine.Clock | None, ...] = ()

    @classmethod
    def of(
        cls, work: Any, stay: Any, where: str, false_alarm: float = 0.01, clocks: tuple[Any, ...] = ()
    ) -> Recording:
        """From (K, T) seconds from leaving to arriving, and from arriving to leaving."""
        work, stay = np.asarray(work), np.asarray(stay)
        arrive_in = work.max(axis=0)
        communicate = stay.min(axis=0)
        begin = np.concatenate([[0.0], np.cumsum(arrive_in + communicate)[:-1]])
        everyone = np.ones((len(work), 1))
        timeline = Timeline.from_marks(
            begin * everyone,
            begin + work,
            (begin + arrive_in) * everyone,
            (begin + arrive_in + communicate) * everyone,
            where=where,
            measured=True,
        )
        return cls(timeline, straggler_report(timeline, false_alarm), clocks)

    @property
    def step_s(self) -> float:
        """Mean seconds of a step."""
        return self.timeline.elapsed_s / self.timeline.T

    @property
    def lost_s(self) -> float:
        """Mean seconds by which a step would be shorter if its last rank had come with the last but one."""
        return float(self.ranks.caused_s.sum()) / max(self.ranks.K - 1, 1) / self.timeline.T

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of all ranks' time spent computing, waiting for others and communicating; they sum to 1."""
        totals = self.timeline.totals().sum(axis=0)
        compute, wait, communicate = (totals / totals.sum()).tolist() if totals.sum() else (1.0, 0.0, 0.0)
        return compute, wait, communicate

    @property
    def verdict(self) -> str:
        """One line: who, if anybody, and what it costs; or that it isn't a rank at all."""
        compute, wait, communicate = self.shares
        step = f"of a {1e3 * self.step_s:.1f} ms step"
        if self.ranks.K == 1:
            return self.ranks.verdict
        if self.ranks.stragglers:
            arrive = self.timeline.arrivals_s
            others = np.delete(arrive, self.ranks.stragglers, axis=0)
            lost = (arrive.max(axis=0) - others.max(axis=0)).mean()
            slow = [(k, self.clocks[k]) for k in self.ranks.stragglers if self.clocks]
            held = [f" Rank {k}'s GPU runs at {clock}." for k, clock in slow if clock and clock.throttled]
            return f"{self.ranks.verdict} It costs everybody {1e3 * lost:.1f} ms {step}.{''.join(held)}"
        if communicate > max(compute, wait):
            return (
                f"No rank is persistently slow; {100 * communicate:.0f} % {step} is communication that all ranks "
                f"share: look at the link, or send less; and at what a rank does between its backward pass and its step."
            )
        return f"{self.ranks.verdict} Waiting takes {100 * wait:.0f} % {step}."

    def figure(self, steps: int = 12) -> Any:
        """Two plots, the lanes of the last ``steps`` steps and how often each rank was last. A matplotlib Figure."""
        return late(self.timeline, self.ranks, steps)

    def __str__(self) -> str:
        shares = ", ".join(
            f"{100 * s:.1f} % {k.name.lower()}" for k, s in zip(Kind, self.shares, strict=True)
        )
        table = str(self.ranks).removesuffix(self.ranks.verdict)
        return f"{table}A step takes {1e3 * self.step_s:.2f} ms: {shares}.\n{self.verdict}"

    __repr__ = __str__


def _event() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(a: Any, b: Any) -> float:
    if isinstance(a, float):
        return b - a
    b.synchronize()
    return 1e-3 * a.elapsed_time(b)


def _device(marks: Any) -> tuple[str, ...]:
    return ("cpu",) if not marks or isinstance(marks[0][0], float) else ("cuda",)
