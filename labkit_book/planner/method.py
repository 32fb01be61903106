"""A way to train: a barrier policy, and what is known of its price. In a few letters: "ssp:3", "overlapped:8".

What a method costs in *steps* is known for few of them: each says what is assumed, and takes a ``steps_factor`` that the
reader may have measured; `break_even` says how large it could be before the method loses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from labkit.checks import integer, number
from labkit.timing.policy import POLICIES, LocalSteps, Policy, StaleSynchronous, Synchronous, parse_policy

#: Of sharded training's gradient, so many buckets are summed while the backward pass goes on.
SHARDS = 8
METHODS = {
    **{form: said for form, said in POLICIES.items() if form != "async"},
    "overlapped:L": "sync, summed in L buckets, or in such of 25MB, during the backward pass",
    "zero1": "sync, the optimizer's state sharded (ZeRO stage 1)",
    "zero2": "sync, state and gradients sharded (ZeRO stage 2)",
    "zero3": "sync, the parameters too (ZeRO stage 3, FSDP)",
}
#: What is compared if nothing else is said: those whose number of steps is known.
DEFAULTS = ("sync", "overlapped:25MB", "zero1", "zero2", "zero3")
_OPTIMISTIC = {
    LocalSteps: "optimistic: H local steps are worth H steps of sync",
    StaleSynchronous: "optimistic: as many steps as sync; stale gradients may need a smaller step size",
    Synchronous: "only the gradients in time count; that no kind of example is dropped is assumed",
}


@dataclass(frozen=True, kw_only=True)
class Method:
    """policy: who waits for whom. Servers that hold w back are sharded over the workers; the rest is summed.

    buckets: > 0: the gradient is summed in as many equal ones while the backward pass goes on (Li et al. 2020, section
    3.2.3). bucket_MB: > 0: in as many as it takes when each has so many 1e6 bytes, or at once where that is sooner. These
    are for plain synchronous training only. stage: 1 to 3: what ZeRO shards over the workers (`memory.py`). steps_factor:
    how many times the steps of sync are needed, > 0. ValueError for anything else.
    """

    policy: Policy = field(default_factory=Synchronous)
    buckets: int = 0
    bucket_MB: int = 0
    stage: int = 0
    steps_factor: float = 1.0

    def __post_init__(self) -> None:
        number("steps_factor", self.steps_factor, above=0)
        if not isinstance(self.policy, tuple(_OPTIMISTIC)):
            raise ValueError(f"policy must be sync, backup:b, ssp:s or local:H, got {self.policy}")
        overlapped = integer("buckets", self.buckets) + integer("bucket_MB", self.bucket_MB) > 0
        if overlapped and self.policy != Synchronous():
            raise ValueError(f"policy must be sync where gradients are overlapped, got {self.policy}")

    @property
    def name(self) -> str:
        """What tables call it, and `parse_method` reads."""
        if self.stage:
            return f"zero{self.stage}"
        if self.bucket_MB:
            return f"overlapped:{self.bucket_MB}MB"
        return f"overlapped:{self.buckets}" if self.buckets else str(self.policy)

    @property
    def assumption(self) -> str:
        """One sentence: what is assumed of its number of steps."""
        if self.policy != Synchronous():
            return _OPTIMISTIC[type(self.policy)]
        return "exact: the steps of one worker with the batch B"


def parse_method(given: str | Mapping[str, Any] | Method) -> Method:
    """The method that ``given`` names, as in ``METHODS``, or that an object with method, steps_factor describes.

    ValueError for another.

    >>> parse_method("ssp:3").policy, parse_method("overlapped:8").buckets
    (StaleSynchronous(slack=3), 8)
    """
    if isinstance(given, Method):
        return given
    more = dict(given) if isinstance(given, Mapping) else {"method": given}
    text = more.pop("method", None)
    if not isinstance(text, str) or more.keys() - {"steps_factor"}:
        right = "a name such as local:8, or have method, steps_factor"
        raise ValueError(f"a method must be {right}, got {given!r}")
    word, _, argument = text.strip().partition(":")
    found = re.fullmatch(r"(\d+)(MB)?", argument)
    if word == "overlapped" and found:
        made: dict[str, Any] = {"bucket_MB" if found[2] else "buckets": integer("L", int(found[1]), least=1)}
    elif text in ("zero1", "zero2", "zero3"):
        made = {"buckets": SHARDS, "stage": int(text[-1])}
    elif word in {form.partition(":")[0] for form in POLICIES}:
        made = {"policy": parse_policy(text)}
    else:
        raise ValueError(f"methods must be of {', '.join(METHODS)}, got {text!r}")
    return Method(**made, **more)
