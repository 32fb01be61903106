"""Measurements that a student hands in: taken by ``take``, pasted as text into the answer, read again by a judge.

What is handed in are the raw values with the machine they come from, so that a judge can ask whether the conclusion follows
from *these* data. A fingerprint finds a line that was cut or changed on its way; it stops a slip, not a thief.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit import checks
from labkit.machine import describe
from labkit_book.problems.exercise import Wrong


@dataclass(frozen=True, eq=False)
class Measurements:
    """machine: where and when. at: the settings, numbers or words. values: (settings, repeats). span_s: from first to last.

    ``print`` shows the line to hand in.
    """

    machine: str
    at: tuple[Any, ...]
    values: NDArray[np.float64]
    span_s: float

    def __str__(self) -> str:
        body = {"machine": self.machine, "at": self.at, "values": self.values.tolist(), "span_s": self.span_s}
        return json.dumps({**body, "seal": _seal(body)})


def take(f: Callable[[Any], float], at: Sequence[Any], repeats: int = 5, *, seed: int = 0) -> Measurements:
    """Call ``f`` at each setting ``repeats`` times, in an order drawn anew each round, so that a drift spoils no comparison.

    f: takes a setting and returns what was measured there, as one number. at: the settings, numbers or words.
    Raises ValueError for fewer than one setting or repeat, or a result that is no finite number.

    >>> take(lambda n: 2.0 * n, at=(1, 3), repeats=2).values.tolist()
    [[2.0, 2.0], [6.0, 6.0]]
    """
    checks.integer("repeats", repeats, 1)
    if not at:
        raise ValueError("at must name one setting at least, got none")
    values, rng, began = np.empty((len(at), repeats)), np.random.default_rng(seed), time.perf_counter()
    for repeat in range(repeats):
        for i in rng.permutation(len(at)):
            values[i, repeat] = checks.number(f"f({at[i]!r})", f(at[i]))
    plain = tuple(x if isinstance(x, str) else x.item() if hasattr(x, "item") else x for x in at)
    return Measurements(describe(), plain, values, time.perf_counter() - began)


def read(text: Any, settings: int, repeats: int) -> Measurements:
    """What was pasted. Wrong unless it is whole, has so many settings and repeats, and repeats that scatter as clocks do."""
    try:
        body = json.loads(text if isinstance(text, str) else str(text))
        seal = body.pop("seal")
        values = np.array(body["values"], float)
        data = Measurements(body["machine"], tuple(body["at"]), values, body["span_s"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Wrong("the data are no line that take has printed: paste the whole line, in quotes") from None
    if seal != _seal(body) or data.values.shape[:1] != (len(data.at),) or not np.isfinite(data.values).all():
        raise Wrong("the data have been cut or changed since take printed them: paste them as they were")
    if len(set(data.at)) < settings or data.values.shape[1] < repeats:
        shape = f"{len(set(data.at))} settings, {data.values.shape[1]} times each"
        raise Wrong(f"the data are of {shape}: too few to conclude anything from, as the task says")
    if (np.ptp(data.values, axis=1) == 0).all():
        raise Wrong("no repeat differs from another: is that a measurement, or a formula?")
    return data


def _seal(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]
