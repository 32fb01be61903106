"""The straggler recorder: who keeps a synchronous training job waiting, seen from inside the job itself.

Two lines in any loop, on one machine or many, also under torchrun:

    recorder = StragglerRecorder(model)   # before DistributedDataParallel wraps it, if you use that
    ...                                   # the loop as it is: forward, backward, all-reduce, optimizer.step()
    print(recorder.report())              # on every rank

A rank has *arrived* when its backward pass has its last gradient, before it waits for anybody. It *leaves* when the
backward pass has ended, if that sums the gradients (a DDP), and else when the optimizer steps (after the step where that
calls the backward pass itself, as a closure). All leave one synchronisation together, so the seconds from leaving to
arriving compare ranks without comparing clocks, also of different machines. Who arrives last waits for nobody: its time
from arriving to leaving is communication, and whatever others stay longer is waiting. Hooks in the model cut the way from
leaving to arriving into phases, and the group's sequence number tells how many collectives were called in each.
Symbols: K ranks, T recorded steps. Times are seconds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._pytree import tree_leaves

from labkit import machine
from labkit.checks import FloatArray
from labkit.timing import StragglerReport, Timeline, straggler_report
from labkit.train.buckets import run_at_end_of_backward
from labkit.train.ddp import DDP, batch_length

KEEP = 10_000  # of the latest steps
SAMPLE_S = 0.2  # between two readings of a GPU's clock, at least


class Phase(IntEnum):
    """What a rank does between two events of its step; all before STAY is work. AFTER: between sums and optimizer."""

    AFTER, OPTIMIZER, BETWEEN, FORWARD, LOSS, BACKWARD, STAY = range(7)


class _Mark(NamedTuple):
    """A phase ended then; so many collectives had been begun."""

    phase: Phase
    at: Any
    calls: int


@dataclass
class _Step:
    """From leaving to leaving: the marks, the examples, and the GPU's clock if it was read."""

    trail: list[_Mark] = field(default_factory=list)
    examples: int = 0
    clock: machine.Clock | None = None

    def per_phase(self) -> tuple[FloatArray, FloatArray]:
        """Seconds (7,) and collectives (7,) of each phase."""
        seconds, calls = np.zeros(len(Phase)), np.zeros(len(Phase))
        for begin, end in pairwise(self.trail):
            seconds[end.phase] += _seconds(begin.at, end.at)
            calls[end.phase] += end.calls - begin.calls
        return seconds, calls


class StragglerRecorder:
    """Record when this rank arrives at, and leaves, each synchronisation of a training loop.

    model: the module whose gradients are synchronised before its optimizer steps; None for a loop that marks its
        synchronisations itself with ``with recorder.synchronising(): ...``. What waits at the end of the backward pass
        must come to the model after the recorder: wrap it afterwards. Models that step in turn (a GAN) go in together,
        as ``torch.nn.ModuleList([G, D])``.
    group: the process group that synchronises; None: the default one, or a world of one where there is none.

    The first step is not recorded: nobody knows yet when the others began it. Where the model is on a GPU, arriving and
    leaving are events there, and five times a second at most that GPU's clock is read as well.
    Where ranks already wait for one another during forward or backward (FSDP, ZeRO-3, SyncBatchNorm, a loss that is
    all-reduced for the log, gradients accumulated without ``no_sync``, a labkit DDP that counts examples), that wait counts
    as computing and hides who is slow: mark one synchronisation by hand instead. Where gradients are summed after the
    backward pass, what a rank does there beside (clipping, logging) counts as communication.

    wrapper: the DDP around the model, once seen, or the model. usual: (examples, (args, kwargs)) of a batch of usual length.
    """

    def __init__(
        self, model: torch.nn.Module | None = None, group: Any = None
    ) -> None:
        self.wrapper: Any = model
        while isinstance(model, DistributedDataParallel | DDP):
            model = model.module
        self.model, self.group, self.device = model, group, torch.device("cpu")
        self.usual: tuple[int, Any] = (0, None)
        self._steps: deque[_Step] = deque(maxlen=KEEP)
        self._step = _Step()
        self._lengths: deque[int] = deque(maxlen=20)
        self._paused = False
        self._left = self._arrived = None  # times
        self._last = None  # when the latest gradient came
        self._complete = True  # arrived since then
        self._sums: _Mark | None = (
            None  # the end of a backward pass that had collectives
        )
        self._backward = -1  # autograd's number of the pass
        self._calls_before = 0  # collectives before it
        self._clock: Callable[[], Any] = time.perf_counter
        self._gpu_clock: Callable[[], machine.Clock | None] | None = None
        self._due = 0.0
        self._handles: list[Any] = []
        if model is not None:
            self._watch(model)

    def _watch(self, model: torch.nn.Module) -> None:
        mine = [p for p in model.parameters() if p.requires_grad]
        if not mine:
            raise ValueError(
                "model must have a parameter that takes a gradient, got none"
            )
        self._mine = set(mine)
        self._go_by(mine[0].device)
        self._handles = [
            p.register_post_accumulate_grad_hook(self._on_gradient) for p in mine
        ]
        self._handles += [
            register_optimizer_step_pre_hook(self._on_step),
            register_optimizer_step_post_hook(self._on_step),
            model.register_forward_pre_hook(self._on_forward, with_kwargs=True),
            model.register_forward_hook(self._on_output),
        ]

    def _go_by(self, device: torch.device) -> None:
        """Take times, and the clock's rate, on this device."""
        gpu, self.device = device.type == machine.ACCELERATOR, device
        self._clock = partial(_event, device) if gpu else time.perf_counter
        self._gpu_clock = machine.clock_of(device) if gpu else None

    def _mark(self, phase: Phase, at: Any = None) -> Any:
        """What ends now, or ended at a time noted, was this phase."""
        now = at or self._clock()
        if self._step.trail:
            self._step.trail.append(_Mark(phase, now, self._collectives()))
        return now

    def _collectives(self) -> int:
        """How many collectives this group has begun."""
        group = self.group or dist.group.WORLD
        try:
            return int(group._get_sequence_number_for_group())
        except (AttributeError, RuntimeError):  # no group, or one that does not count
            return 0

    def _on_forward(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self._paused or not torch.is_grad_enabled():
            return
        b = batch_length((args, kwargs))
        self._lengths.append(b)
        mean = sum(self._lengths) / len(self._lengths)
        if self.usual[1] is None or abs(b - mean) <= abs(self.usual[0] - mean):
            self.usual = b, (args, kwargs)
        self.wrapper = DistributedDataParallel._active_ddp_module or self.wrapper
        self._step.examples += b
        self._mark(Phase.BETWEEN)

    def _on_output(self, model: torch.nn.Module, args: Any, out: Any) -> None:
        if self._paused or not torch.is_grad_enabled():
            return
        self._mark(Phase.FORWARD)
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.requires_grad:
                # Its gradient will say that the loss is behind us.
                x.register_hook(self._on_loss)
                return

    def _on_loss(self, gradient: torch.Tensor) -> None:
        if not self._paused:
            self._mark(Phase.LOSS)

    def _on_gradient(self, p: torch.Tensor) -> None:
        self._complete = False
        if p.device != self.device and self._left is None and self._arrived is None:
            self._go_by(p.device)  # the model has been moved since
        backward = torch._C._current_graph_task_id()
        if backward != self._backward:
            # The first gradient of this pass: ask to be called when it has them all.
            self._backward, self._calls_before = backward, self._collectives()
            run_at_end_of_backward(self._on_arrival)
        # A DDP is told next, and sends: what that takes is none of the backward pass's. A GPU's queue is long past it.
        self._last = self._clock() if self._clock is time.perf_counter else None

    def _on_arrival(self) -> None:
        # A recomputed segment may have had the last gradient, in a backward pass of its own inside this one.
        if not self._complete:
            self._arrived, self._complete = (
                self._mark(Phase.BACKWARD, self._last),
                True,
            )
            # After those who asked before: a DDP that waits for its sums.
            run_at_end_of_backward(self._on_sums)

    def _on_sums(self) -> None:
        now, calls = self._mark(Phase.STAY), self._collectives()
        self._sums = (
            _Mark(Phase.STAY, now, calls) if calls > self._calls_before else None
        )

    def _on_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if any(
            not self._mine.isdisjoint(g["params"]) for g in optimizer.param_groups
        ):
            self._leave(Phase.AFTER)

    def _leave(self, phase: Phase) -> None:
        if self._arrived is None:
            # After the step, or a second optimizer of the same model.
            self._mark(Phase.OPTIMIZER)
            return
        # On their own from the sums on, if the backward pass had them: what follows is the next step's work.
        start = self._sums
        wrapped = isinstance(self.wrapper, DistributedDataParallel | DDP)
        summed = start is not None and (wrapped or start.calls == self._collectives())
        if start is None or not summed or phase != Phase.AFTER:
            start = _Mark(Phase.STAY, self._mark(Phase.STAY), self._collectives())
        if self._left is not None:
            self._step.clock = self._sampled()
            self._steps.append(self._step)
        self._left, self._arrived, self._sums = start.at, None, None
        self._step = _Step([start])
        if phase == Phase.AFTER:
            self._mark(phase)

    def _sampled(self) -> machine.Clock | None:
        """The GPU's clock, if it is time to read it again."""
        if self._gpu_clock is None or time.perf_counter() < self._due:
            return None
        self._due = time.perf_counter() + SAMPLE_S
        with suppress(Exception):  # a driver that fails must not end a job
            return self._gpu_clock()
        return None

    @contextmanager
    def synchronising(self) -> Iterator[None]:
        """Mark a synchronisation by hand: this rank arrives on entering and leaves at the end."""
        self._arrived = self._mark(Phase.BACKWARD)
        yield
        self._leave(Phase.STAY)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Forward and backward passes in here are not the job's; within, ``device`` is torch's current one."""
        self._paused = True
        try:
            with self._on_device():
                yield
        finally:
            self._paused = False

    def _on_device(self) -> AbstractContextManager[Any]:
        """Within it ``device`` is torch's current one, on which nccl gathers objects and waits at barriers."""
        if self.device.type != machine.ACCELERATOR:
            return nullcontext()
        return torch.get_device_module(self.device).device(self.device)

    def close(self) -> None:
        """Take the recorder off the model; what it recorded stays."""
        while self._handles:
            self._handles.pop().remove()

    def gathered(self, mine: Any) -> list[Any]:
        """What every rank brings; only this one's without a group. A collective."""
        if not dist.is_available() or not dist.is_initialized():
            return [mine]
        everyone: list[Any] = [None] * dist.get_world_size(self.group)
        with self._on_device():
            dist.all_gather_object(everyone, mine, group=self.group)
        return everyone

    def report(self, false_alarm: float = 0.01) -> Recording:
        """What all ranks recorded, the latest steps that all have. A collective. ValueError if some rank has no step.

        false_alarm: probability, at most, of naming a straggler where all ranks are alike and their steps independent.
        """
        steps = [(*step.per_phase(), step.examples) for step in self._steps]
        clocks = [step.clock for step in self._steps if step.clock is not None]
        everyone = self.gathered(
            (steps, clocks, machine.describe((str(self.device),)))
        )
        lengths = [len(theirs) for theirs, *_ in everyone]
        T = min(lengths)
        if T == 0:
            raise ValueError(
                f"report needs at least two steps on every rank, but rank {lengths.index(0)} recorded none after its first; "
                f"where no torch optimizer steps the model's own parameters, mark them: with recorder.synchronising()"
            )
        seconds, calls, examples = (
            np.array([[step[i] for step in theirs[-T:]] for theirs, *_ in everyone])
            for i in range(3)
        )
        work, stay = seconds[..., : Phase.STAY].sum(axis=-1), seconds[..., Phase.STAY]
        where = f"{everyone[0][2]}, {len(everyone)} ranks"
        seen: Any = {"seconds": seconds, "calls": calls, "examples": examples}
        seen["clocks"] = tuple(theirs for _, theirs, _ in everyone)
        return Recording.of(work, stay, where, false_alarm, **seen)


@dataclass(frozen=True, eq=False)
class Recording:
    """What the ranks of a job recorded. ``str()`` is a table and the verdict.

    timeline: of each rank and step; a step begins where the slowest rank ended the one before. ranks: the straggler report
    of its arrivals. clocks: of each rank's GPU, as often as it was read. Where a recorder made it: seconds, calls: (K, T, 7)
    of each ``Phase``, and collectives called in it; examples: (K, T).
    """

    timeline: Timeline
    ranks: StragglerReport
    clocks: tuple[Sequence[machine.Clock], ...] = ()
    seconds: FloatArray | None = None
    calls: FloatArray | None = None
    examples: FloatArray | None = None

    @classmethod
    def of(
        cls, work: Any, stay: Any, where: str, false_alarm: float = 0.01, **seen: Any
    ) -> Recording:
        """From (K, T) seconds from leaving to arriving, and from arriving to leaving. seen: the other fields."""
        work, stay = np.asarray(work), np.asarray(stay)
        last, communicate = work.max(axis=0), stay.min(axis=0)
        end = np.cumsum(last + communicate)
        begin = np.append(0.0, end[:-1])
        marks = begin, begin + work, begin + last, begin + last + communicate
        of_ranks = [np.broadcast_to(at, work.shape) for at in marks]
        timeline = Timeline.from_marks(*of_ranks, where=where, measured=True)
        return cls(timeline, straggler_report(timeline, false_alarm), **seen)

    @property
    def step_s(self) -> float:
        """Mean seconds of a step."""
        return self.timeline.elapsed_s / self.timeline.T

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of all ranks' time spent computing, waiting for others and communicating; they sum to 1."""
        totals = self.timeline.totals().sum(axis=0)
        if not totals.any():
            return 1.0, 0.0, 0.0
        compute, wait, communicate = (totals / totals.sum()).tolist()
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
            held = "".join(
                _held_down(k, self.clocks[k])
                for k in self.ranks.stragglers
                if self.clocks
            )
            return f"{self.ranks.verdict} It costs everybody {1e3 * lost:.1f} ms {step}.{held}"
        if communicate > max(compute, wait):
            said = f"No rank is persistently slow; {100 * communicate:.0f} % {step} is communication that all ranks share: "
            return f"{said}look at the link, or send less; and at what a rank does between its backward pass and its step."
        return f"{self.ranks.verdict} Waiting takes {100 * wait:.0f} % {step}."

    def __str__(self) -> str:
        compute, wait, communicate = (100 * share for share in self.shares)
        shares = f"{compute:.1f} % compute, {wait:.1f} % wait, {communicate:.1f} % communicate"
        table = str(self.ranks).removesuffix(self.ranks.verdict)
        step = f"A step takes {1e3 * self.step_s:.2f} ms: {shares}."
        return f"{table}{step}\n{self.verdict}"

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
