"""What K ranks recorded of T steps, phase by phase, with what they measured beside it; kept in a file.

Symbols: K ranks, T steps, L messages, R rounds of measuring. Times are seconds.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np

from labkit.checks import FloatArray

_FORMAT = "labkit recording 2"
_BAD_FILE = (ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, zipfile.BadZipFile)
_NONE = np.empty(0)


class Phase(IntEnum):
    """What a rank does between two events of its step; all before STAY is work. AFTER: between sums and optimizer."""

    AFTER = 0
    OPTIMIZER = 1
    BETWEEN = 2
    FORWARD = 3
    LOSS = 4
    BACKWARD = 5
    STAY = 6


@dataclass(frozen=True, eq=False)
class Steps:
    """What K ranks recorded in T steps, and what they measured beside it. Bad values are refused with ValueError.

    seconds, calls: (K, T, 7) seconds of each ``Phase``, and collectives called in it. examples: (K, T), 0 where unknown.
    where: the machine. messages: (L,) bytes. ready: (L,) share of the backward pass after which each may leave.
    Measured R times, or empty: alone_s, together_s: (R, K) seconds of a step's forward and backward passes on a rank alone,
    and with all others computing. half_s: (R, K) as the latter, of half the examples. sizes: (S,)
    bytes of an all-reduce, rising; prices: (R, S) its seconds. burst_s, sending_s: (R,) seconds of all messages at once, and
    how many of these it takes to send them off.
    inside: ranks on the fullest host. cores: ranks that a host's cores have room for.
    """

    seconds: FloatArray
    calls: FloatArray
    examples: FloatArray
    where: str = ""
    alone_s: FloatArray = field(default_factory=lambda: _NONE)
    together_s: FloatArray = field(default_factory=lambda: _NONE)
    half_s: FloatArray = field(default_factory=lambda: _NONE)
    messages: FloatArray = field(default_factory=lambda: _NONE)
    ready: FloatArray = field(default_factory=lambda: _NONE)
    sizes: FloatArray = field(default_factory=lambda: _NONE)
    prices: FloatArray = field(default_factory=lambda: _NONE)
    burst_s: FloatArray = field(default_factory=lambda: _NONE)
    sending_s: FloatArray = field(default_factory=lambda: _NONE)
    inside: float = 1.0
    cores: float = 1.0

    def __post_init__(self) -> None:
        for f in fields(self):
            if f.name != "where":
                object.__setattr__(self, f.name, np.asarray(getattr(self, f.name), dtype=np.float64))
        K, T = self.seconds.shape[:2] if self.seconds.ndim == 3 else (0, 0)
        shapes = {"seconds": (K, T, len(Phase)), "calls": (K, T, len(Phase)), "examples": (K, T)}
        rounds, clocked = self.alone_s.shape[:1], self.prices.shape[:1]
        shapes |= {
            "ready": self.messages.shape,
            "alone_s": (*rounds, K),
            "together_s": (*rounds, K),
            "half_s": (*rounds, K),
        }
        if self.sizes.size:
            shapes |= {"prices": (*clocked, *self.sizes.shape), "burst_s": clocked, "sending_s": clocked}
        for name, shape in shapes.items():
            have = getattr(self, name)
            none = name in ("messages", "ready", "alone_s", "together_s", "half_s") and not have.size
            if (not none and (have.shape != shape or 0 in have.shape[:2] * (have.ndim > 1))) or not K:
                raise ValueError(f"{name} must have shape {shape} with K, T >= 1, got {have.shape}")
            if not (np.isfinite(have) & (have >= 0)).all():
                raise ValueError(f"{name} must hold finite numbers >= 0, got {have.min()}")

    @property
    def K(self) -> int:
        return len(self.seconds)

    def with_probes(self, probes: Sequence[Mapping[str, Any]], passes: Any) -> Steps:
        """With what each rank's probe measured; passes: (K, T) forward passes in a step."""
        many = np.asarray(passes, dtype=np.float64).mean(axis=1)
        replayed = np.array([p["examples"] for p in probes], dtype=np.float64)
        if replayed.all():
            many = self.examples.mean(axis=1) / replayed
        messages = np.array(probes[0]["messages"], dtype=np.float64)
        ready = np.ones(len(messages))
        came = np.array(sorted(probes[0]["came"], key=lambda c: c[1])).reshape(-1, 2)
        if len(came) and messages.sum() and self.calls[..., Phase.BACKWARD].any():
            here, need = came[:, 0].cumsum(), messages.cumsum() * came[:, 0].sum() / messages.sum()
            ready = came[np.minimum(np.searchsorted(here, need * (1 - 1e-9)), len(came) - 1), 1]
        times = np.array([p["times"] for p in probes], dtype=np.float64).max(axis=0)  # when the last has it
        return replace(
            self,
            alone_s=many * np.array([p["alone"] for p in probes]).T,
            together_s=many * np.array([p["together"] for p in probes]).T,
            half_s=many * np.array([p["half"] for p in probes]).T,
            messages=messages,
            ready=np.maximum.accumulate(np.clip(ready, 0, 1)),
            sizes=np.array(probes[0]["sizes"]),
            prices=times[:, :-2],
            burst_s=times[:, -2],
            sending_s=times[:, -1],
            inside=max(p["inside"] for p in probes),
            cores=min(p["cores"] for p in probes),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it into an npz file of exactly that name."""
        with open(path, "wb") as file:
            what = {f.name: getattr(self, f.name) for f in fields(self)}
            np.savez_compressed(file, format=_FORMAT, **what)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Steps:
        """What ``save`` wrote. ValueError, in a sentence, for a file that is something else; OSError where there is none."""
        try:
            with np.load(path, allow_pickle=False) as file:
                if str(file["format"]) != _FORMAT:
                    raise ValueError(f"it says {str(file['format'])[:40]!r}, not {_FORMAT!r}")
                what: dict[str, Any] = {f.name: file[f.name] for f in fields(cls)}
                return cls(**what | {"where": str(what["where"])})
        except _BAD_FILE as error:
            said = " ".join(str(error).split())
            raise ValueError(f"{path} must be a recording as Recording.save writes it: {said}") from None
