"""The straggler recorder: who keeps a synchronous training job waiting, seen from inside the job itself.

Two lines in any loop, on one machine or many, also under torchrun:

    recorder = StragglerRecorder(model)   # before DistributedDataParallel wraps it, if you use that
    ...                                   # the loop as it is: forward, backward, all-reduce, optimizer.step()
    print(recorder.report())              # on every rank; or recorder.why(): where the step goes, and what would help

A rank has *arrived* when its backward pass has its last gradient, before it waits for anybody, and *leaves* when the
backward pass has ended, if that sums the gradients (a DDP), and else when the optimizer steps (after the step where that
calls the backward pass itself, as a closure). All leave one synchronisation
together, so the seconds from leaving to arriving compare ranks without comparing clocks, and ranks may live on different
machines. Who arrives last waits for nobody: its time from arriving to
leaving is communication, and whatever others stay longer is waiting. On the way from leaving to arriving the model's own
hooks tell apart the optimizer, what comes between steps (loading data), the forward pass, the loss, and the backward pass;
the group's sequence number tells how many collectives were called in each. It costs a dozen readings of a clock a step.

Symbols: K ranks, T recorded steps. Times are seconds.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from labkit import machine
from labkit.checks import integer
from labkit.show.lanes import late
from labkit.timing import Kind, StragglerReport, Timeline, straggler_report
from labkit.train.account import account
from labkit.train.arrivals import run_at_end_of_backward
from labkit.train.ddp import DDP
from labkit.train.probe import CPU, probe, said
from labkit.train.steps import Phase, Steps
from labkit.train.why import Why

SAMPLE_S = 0.2  # between two readings of a GPU's clock, at least


class StragglerRecorder:
    """Record when this rank arrives at, and leaves, each synchronisation of a training loop.

    model: the module whose gradients are synchronised before its optimizer steps; None for a loop that marks its
        synchronisations itself with ``with recorder.synchronising(): ...``. What waits at the end of the backward pass
        must come to the model after the recorder: wrap it afterwards.
    group: the process group that synchronises; None: the default one, or a world of one where there is none.
    keep: how many of the latest steps to keep, >= 1.
    messages: bytes of each gradient message of a step, in the order of their leaving, for ``why``; None: a DDP is asked, and
        otherwise as many alike as there were collectives.

    The first step is not recorded: nobody knows yet when the others began it. Where the model's first parameter is on a
    GPU, arriving and leaving are events there, so that what counts is when the GPU got there and not when it was told to;
    whichever device is torch's current one does not matter. Five times a second at most the GPU's clock is read as well.
    Raises ValueError for a model without a parameter that takes a gradient. Where ranks already wait for one another
    during forward or backward (FSDP, ZeRO-3, SyncBatchNorm, a loss that is all-reduced for the log, gradients that are
    accumulated without ``no_sync``, a labkit DDP that counts examples), that wait counts as computing and hides who is
    slow: mark one synchronisation by hand instead. Where gradients are summed after the backward pass, what a rank does
    there beside (clipping, logging) counts as communication. Models that step in turn (a GAN) go into one recorder together,
    ``torch.nn.ModuleList([G, D])``: each step is then a synchronisation.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        group: Any = None,
        keep: int = 10_000,
        messages: Sequence[float] | None = None,
    ) -> None:
        self._wrapper: Any = model
        while isinstance(model, torch.nn.parallel.DistributedDataParallel | DDP):
            model = model.module
        self._group, self._model, self._messages = group, model, messages
        # of each step: (phase that ends, when, collectives so far), from leaving to leaving; examples, forward passes, GPU
        self._marks: deque[tuple[list[tuple[int, Any, int]], int, int, machine.Clock | None]]
        self._marks = deque(maxlen=integer("keep", keep, least=1))
        self._trail: list[tuple[int, Any, int]] = []
        self._examples = self._passes = 0
        self._inputs: Any = None
        self._seen: deque[int] = deque(maxlen=20)
        self._paused = False
        self._left: Any = None
        self._arrived: Any = None
        self._last: Any = None
        self._sums: tuple[int, Any, int] | None = None
        self._before = 0
        self._backward = -1
        self._complete = True
        self._handles: list[Any] = []
        self._clock: Any = time.perf_counter
        self._gpu_clock: Callable[[], machine.Clock | None] | None = None
        self._device, self._due = CPU, 0.0
        if model is None:
            return
        mine = [p for p in model.parameters() if p.requires_grad]
        if not mine:
            raise ValueError("model must have a parameter that takes a gradient, got none")
        self._first, self._mine = mine[0], {id(p) for p in mine}
        self._go_by(mine[0].device)
        self._handles = [p.register_post_accumulate_grad_hook(self._on_gradient) for p in mine]
        self._handles += [
            register(self._on_step)
            for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook)
        ]
        self._handles += [
            model.register_forward_pre_hook(self._on_forward, with_kwargs=True),
            model.register_forward_hook(self._on_output),
        ]

    def _mark(self, phase: Phase, at: Any = None) -> Any:
        """What ends now, or ended at a time noted, was this phase."""
        now = at or self._clock()
        if self._trail:
            self._trail.append((phase, now, self._collectives()))
        return now

    def _collectives(self) -> int:
        """How many collectives this group has begun."""
        group = self._group or dist.group.WORLD
        try:
            return int(group._get_sequence_number_for_group())
        except (AttributeError, RuntimeError):  # no group, or one that does not count
            return 0

    def _on_forward(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self._paused or not torch.is_grad_enabled():
            return
        self._seen.append(b := _length((args, kwargs)))
        usual = sum(self._seen) / len(self._seen)
        if self._inputs is None or abs(b - usual) <= abs(_length(self._inputs) - usual):
            self._inputs = args, kwargs  # a batch of about the usual length, to be asked again
        around = torch.nn.parallel.DistributedDataParallel._active_ddp_module
        self._wrapper = around or self._wrapper
        self._examples += b
        self._passes += 1
        self._mark(Phase.BETWEEN)

    def _on_output(self, model: torch.nn.Module, args: Any, out: Any) -> None:
        if self._paused or not torch.is_grad_enabled():
            return
        self._mark(Phase.FORWARD)
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.requires_grad:
                x.register_hook(self._on_loss)  # its gradient is there: the loss is behind us
                break

    def _on_loss(self, gradient: torch.Tensor) -> None:
        if not self._paused:
            self._mark(Phase.LOSS)

    def _on_gradient(self, p: torch.Tensor) -> None:
        self._complete = False
        if self._device != self._first.device and self._left is None and self._arrived is None:
            self._go_by(self._first.device)  # the model has been moved since
        backward = torch._C._current_graph_task_id()
        if backward != self._backward:  # its first gradient: ask to be called when it has them all
            self._backward, self._before = backward, self._collectives()
            run_at_end_of_backward(self._on_arrival)
        # a DDP is told next, and sends: what that takes is none of the backward pass's. A GPU's queue is long past it
        self._last = self._clock() if self._clock is time.perf_counter else None

    def _go_by(self, device: torch.device) -> None:
        """Take times, and the clock's rate, on this device."""
        gpu, self._device = device.type == machine.ACCELERATOR, device
        self._clock = partial(_event, device) if gpu else time.perf_counter
        self._gpu_clock = machine.clock_of(device) if gpu else None

    def _on_arrival(self) -> None:
        if self._complete:
            return  # a recomputed segment had the last gradient, in a backward pass of its own inside this one
        self._arrived, self._complete = self._mark(Phase.BACKWARD, self._last), True
        run_at_end_of_backward(self._on_sums)  # after those who asked before: a DDP that waits for its sums

    def _on_sums(self) -> None:
        now, count = self._mark(Phase.STAY), self._collectives()
        self._sums = (Phase.STAY, now, count) if count > self._before else None

    def _on_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if any(id(p) in self._mine for g in optimizer.param_groups for p in g["params"]):
            self._leave(Phase.AFTER)

    def _leave(self, phase: Phase) -> None:
        if self._arrived is None:  # after the step, or a second optimizer of the same model
            self._mark(Phase.OPTIMIZER)
            return
        # on their own from the sums on, if the backward pass had them: what follows is the next step's work
        start, around = self._sums, isinstance(self._wrapper, torch.nn.parallel.DistributedDataParallel | DDP)
        if phase != Phase.AFTER or start is None or not (around or start[2] == self._collectives()):
            start = Phase.STAY, self._mark(Phase.STAY), self._collectives()
        if self._left is not None:
            self._marks.append((self._trail, self._examples, self._passes, self._sampled()))
        self._left, self._arrived, self._sums = start[1], None, None
        self._trail, self._examples, self._passes = [start], 0, 0
        if phase == Phase.AFTER:
            self._mark(phase)

    def _sampled(self) -> machine.Clock | None:
        """The GPU's clock, if it is time to read it again."""
        now = time.perf_counter()
        if self._gpu_clock is None or now < self._due:
            return None
        self._due = now + SAMPLE_S
        with suppress(Exception):  # a driver that fails must not end a job
            return self._gpu_clock()
        return None

    @contextmanager
    def synchronising(self) -> Iterator[None]:
        """Mark a synchronisation by hand: this rank arrives on entering and leaves at the end."""
        self._arrived = self._mark(Phase.BACKWARD)
        yield
        self._leave(Phase.STAY)

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
        return self._recording(None, false_alarm)

    def why(self, false_alarm: float = 0.01) -> Why:
        """Where the steps went and what would help: ``report()``, held against what is measured now. A collective.

        All ranks repeat a forward and backward pass, in turn and together, on a usual batch and without an
        all-reduce (parameters, gradients, buffers and random numbers stay as they are), and clock all-reduces between them:
        some twenty steps' time in all. Where the model can't be asked again, as behind ``checkpoint(use_reentrant=True)``,
        or was never called itself, computing is not told apart. Arguments and errors as ``report``.
        """
        return self.measured(false_alarm).why()

    def measured(self, false_alarm: float = 0.01) -> Recording:
        """``report()`` with what ``why`` measures, for ``save``. A collective."""
        return self._recording(self._probe(), false_alarm)

    def _recording(self, probed: dict[str, Any] | None, false_alarm: float) -> Recording:
        """Everybody's steps, the same on every rank."""
        kept = len(self._marks)
        seconds, calls = np.zeros((kept, len(Phase))), np.zeros((kept, len(Phase)))
        for t, (trail, *_) in enumerate(self._marks):
            for (_, begin, before), (phase, end, after) in pairwise(trail):
                seconds[t, phase] += _seconds(begin, end)
                calls[t, phase] += after - before
        counts = np.array([counts for _, *counts, _ in self._marks]).reshape(kept, 2)
        clocks = [clock for *_, clock in self._marks if clock is not None]
        where = machine.describe((str(self._device),))
        everyone = said((seconds, calls, counts, where, probed, clocks), self._group, self._device)
        T = min(len(seconds) for seconds, *_ in everyone)
        if T == 0:
            short = [k for k, (seconds, *_) in enumerate(everyone) if not len(seconds)]
            raise ValueError(
                f"report needs at least two steps on every rank, but rank {short[0]} recorded none after its first; where "
                f"no torch optimizer steps the model's own parameters, mark them: with recorder.synchronising()"
            )
        seconds, calls, counts = (np.stack([each[i][-T:] for each in everyone]) for i in range(3))
        steps = Steps(seconds, calls, counts[..., 0], where=f"{everyone[0][3]}, {len(everyone)} ranks")
        if probed is not None:
            steps = steps.with_probes([each[4] for each in everyone], counts[..., 1])
        return Recording.from_steps(steps, false_alarm, tuple(each[5] for each in everyone))

    def _probe(self) -> dict[str, Any]:
        """What this rank measures for ``why``. A collective."""
        total = sum(p.nbytes for p in self._model.parameters() if p.requires_grad) if self._model else 0
        messages = self._sizes(float(total))
        self._paused = True
        try:
            n = _length(self._inputs)
            found = probe(self._model, self._inputs, n, self._group, messages, self._device)
        finally:
            self._paused = False
        return {**found, "examples": n, "cores": machine.cores() / torch.get_num_threads()}

    def _sizes(self, total: float) -> list[float]:
        """Bytes of each message, as far as they can be known."""
        if self._messages is not None:
            return [float(n) for n in self._messages]
        if isinstance(self._wrapper, torch.nn.parallel.DistributedDataParallel):
            known = self._wrapper._get_ddp_logging_data()
            text = known.get("rebuilt_bucket_sizes") or known.get("bucket_sizes", "")
            if sizes := [float(n) for n in str(text).split(",") if n.strip()]:
                return sizes
        if isinstance(self._wrapper, DDP):
            return [float(bucket.nbytes) for bucket in self._wrapper.buckets]
        trail = self._marks[-1][0] if self._marks else []
        calls = sum(
            after - before
            for (_, _, before), (phase, _, after) in pairwise(trail)
            if phase in (Phase.BACKWARD, Phase.STAY)
        )
        return [total / calls] * calls if calls and total else [total] * bool(total)


@dataclass(frozen=True)
class Recording:
    """What the ranks of a job recorded. ``str()`` is a table and the verdict.

    timeline: compute, wait and communicate of each rank and step, measured; each step begins where the slowest rank
        ended the one before.
    ranks: the straggler report of its arrivals.
    clocks: of each rank's GPU, as often as it was read while its steps were recorded.
    steps: what was recorded, for ``why``; None where there are times only.
    """

    timeline: Timeline
    ranks: StragglerReport
    clocks: tuple[Sequence[machine.Clock], ...] = ()
    steps: Steps | None = None

    @classmethod
    def from_steps(
        cls, steps: Steps, false_alarm: float = 0.01, clocks: tuple[Sequence[machine.Clock], ...] = ()
    ) -> Recording:
        """From what a recorder gathered."""
        work, stay = steps.seconds[..., : Phase.STAY].sum(axis=-1), steps.seconds[..., Phase.STAY]
        return replace(cls.of(work, stay, steps.where, false_alarm, clocks), steps=steps)

    def why(self) -> Why:
        """Where the steps went, and what would help. Raises ValueError where there is nothing but times."""
        if self.steps is None:
            raise ValueError("steps must be there for why(), as StragglerRecorder records them, got None")
        return account(self.steps, self.ranks.false_alarm)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recording for ``load`` and ``python -m labkit why``. Every rank has the same: let one of them write."""
        if self.steps is None:
            raise ValueError("steps must be there to be saved, as StragglerRecorder records them, got None")
        self.steps.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], false_alarm: float = 0.01) -> Recording:
        """A recording that ``save`` wrote. Raises ValueError, in a sentence, for a file that is none."""
        return cls.from_steps(Steps.load(path), false_alarm)

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
            held = "".join(_held_down(k, self.clocks[k]) for k in self.ranks.stragglers if self.clocks)
            return f"{self.ranks.verdict} It costs everybody {1e3 * lost:.1f} ms {step}.{held}"
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


def _held_down(rank: int, seen: Sequence[machine.Clock]) -> str:
    """What to say of a slow rank's GPU: nothing if its clock was free whenever it was read."""
    down = [clock for clock in seen if clock.throttled]
    if not down:
        return ""
    often = f"{len(down)} of the {len(seen)} times its clock was read"
    return f" Rank {rank}'s GPU was slowed {often}, at worst to {min(down, key=lambda c: c.mhz)}."


def _event(device: torch.device) -> Any:
    gpus = torch.get_device_module(device)
    event = gpus.Event(enable_timing=True)
    event.record(gpus.current_stream(device))
    return event


def _seconds(a: Any, b: Any) -> float:
    if isinstance(a, float):
        return b - a
    b.synchronize()
    return 1e-3 * a.elapsed_time(b)


def _length(inputs: Any) -> int:
    """The length of the first tensor that the model is given; 0 without one."""
    return next((len(x) for x in tree_leaves(inputs) if isinstance(x, torch.Tensor) and x.ndim), 0)
