"""What K ranks recorded of T steps, phase by phase, with what they measured beside it; kept in a file."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from labkit.checks import FloatArray
from labkit.train.recorder import Phase, Recording
from labkit_book.why.probe import Came, Probe

_FORMAT = "labkit recording 3"
_BAD_FILE = (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)
_NONE: Any = ()  # an array without elements, once the steps are made


@dataclass(frozen=True, eq=False)
class Steps:
    """What K ranks recorded in T steps, and what they measured beside it. Bad values are refused with ValueError.

    seconds, calls: (K, T, 7) seconds of each ``Phase``, and collectives called in it. examples: (K, T), 0 where unknown.
    messages: (L,) bytes. ready: (L,) share of the backward pass after which each may leave. Measured R times, or empty:
    alone_s, together_s: (R, K) seconds of a step's passes on a rank alone, and with all others computing. sizes: (S,) bytes
    of an all-reduce, rising; prices: (R, S) its seconds. burst_s, sending_s: (R,) seconds of all messages at once, and how
    many of these it takes to send them off.
    """

    seconds: FloatArray
    calls: FloatArray
    examples: FloatArray
    where: str = ""
    alone_s: FloatArray = _NONE
    together_s: FloatArray = _NONE
    messages: FloatArray = _NONE
    ready: FloatArray = _NONE
    sizes: FloatArray = _NONE
    prices: FloatArray = _NONE
    burst_s: FloatArray = _NONE
    sending_s: FloatArray = _NONE

    def __post_init__(self) -> None:
        for f in fields(self):
            if f.name == "where":
                continue
            value = np.asarray(getattr(self, f.name), dtype=np.float64)
            if not (np.isfinite(value) & (value >= 0)).all():
                raise ValueError(f"{f.name} must hold finite numbers >= 0, got {value.min()}")
            object.__setattr__(self, f.name, value)
        K, T = self.examples.shape if self.examples.ndim == 2 else (0, 0)
        for name in ("seconds", "calls"):
            if (shape := getattr(self, name).shape) != (K, T, len(Phase)) or not K * T:
                raise ValueError(f"{name} must have shape (K, T, 7) where examples have (K, T), got {shape}")

    @property
    def K(self) -> int:
        return len(self.seconds)

    @property
    def T(self) -> int:
        return self.seconds.shape[1]

    @property
    def step_s(self) -> float:
        """Seconds of the mean step."""
        return float(self.seconds.sum(axis=-1).mean(axis=0).mean())

    @classmethod
    def of(cls, recording: Recording, probes: Sequence[Probe]) -> Steps:
        """What a recorder recorded, and what each rank's probe measured. ValueError where there are arrivals only."""
        if recording.seconds is None or recording.calls is None or recording.examples is None:
            raise ValueError("recording must be one that StragglerRecorder made, got one of arrivals only")
        seen = cls(recording.seconds, recording.calls, recording.examples, recording.timeline.where)
        replayed = np.array([p.examples for p in probes])
        passes = seen.examples.mean(axis=1) / np.maximum(replayed, 1)  # of a step, on each rank
        times = np.array([p.times for p in probes]).max(axis=0)  # when the last has it
        return replace(
            seen, messages=(messages := np.array(probes[0].messages)), ready=seen._ready(messages, probes[0].came),
            alone_s=passes * np.array([p.alone for p in probes]).T, sizes=np.array(probes[0].sizes),
            together_s=passes * np.array([p.together for p in probes]).T,
            prices=times[:, :-2], burst_s=times[:, -2], sending_s=times[:, -1],
        )  # fmt: skip

    def _ready(self, messages: FloatArray, came: Sequence[Came]) -> FloatArray:
        """(L,) share of the backward pass after which each message may leave."""
        if not came or not messages.sum() or not self.calls[..., Phase.BACKWARD].any():
            return np.ones(len(messages))  # all behind the backward pass
        nbytes, share = np.array(sorted(came, key=lambda c: c[1])).T
        needed = messages.cumsum() * nbytes.sum() / messages.sum()
        last = np.searchsorted(nbytes.cumsum(), needed * (1 - 1e-9))
        ready = share[np.minimum(last, len(share) - 1)]
        return np.maximum.accumulate(np.clip(ready, 0, 1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it into an npz file of exactly that name. Every rank has the same: let one of them write."""
        with open(path, "wb") as file:
            what = {f.name: getattr(self, f.name) for f in fields(self)}
            np.savez_compressed(file, format=_FORMAT, **what)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Steps:
        """What ``save`` wrote. ValueError, in a sentence, for a file that is something else; OSError where there is none."""
        try:
            with np.load(path, allow_pickle=False) as file:
                if str(file["format"]) != _FORMAT:
                    raise ValueError("another format")
                what: dict[str, Any] = {f.name: file[f.name] for f in fields(cls)}
            return cls(**what | {"where": str(what["where"])})
        except _BAD_FILE:  # numpy's own words advise to load unsafely: they are not passed on
            raise ValueError(f"{path} must be a whole recording that Steps.save wrote ({_FORMAT})") from None
