"""A way to train: a barrier policy, and what is known of its price. In a few letters: "ssp:3", "overlapped:8", "topk:0.01".

What a method costs in *steps* is known for few of them: each says in a sentence what is assumed, takes a ``steps_factor``
that the reader may have measured, and the plan says how large it could be before the method loses
(`labkit_book.planner.break_even`). What tables print is what is read: ``parse_method(text).name == text``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from labkit.checks import integer, number
from labkit.compress import QSGD, ErrorFeedback, RandomK, Scheme, Sign, TopK
from labkit.timing.policy import (
    POLICIES,
    Asynchronous,
    LocalSteps,
    Policy,
    StaleSynchronous,
    Synchronous,
    parse_policy,
)

#: QSGD's norms are of as many coordinates each, as in Alistarh et al. 2017, section 4.
BUCKET = 512
#: Of sharded training's gradient, so many buckets are summed while the backward pass goes on.
SHARDS = 8


def _qsgd(levels: int) -> dict[str, Any]:
    omega = min(BUCKET / levels**2, math.sqrt(BUCKET) / levels)
    return {"how": QSGD(levels, BUCKET), "omega": omega}


def _buckets(text: str) -> tuple[str, int]:
    if size := re.fullmatch(r"(\d+)([kMG]?)B", text):
        return "bucket_bytes", int(size[1]) * 1000 ** " kMG".index(size[2] or " ")
    return "buckets", int(text)


#: What a policy alone does not say: word -> what stands behind it, what it is, and the fields that it makes of that.
_MORE: dict[str, tuple[str, Callable[[str], Any], str, Callable[[Any], dict[str, Any]]]] = {
    "overlapped": (
        "L", _buckets, "sync, summed in L buckets, or in such of 25MB, during the backward pass",
        lambda found: {found[0]: integer("L", found[1], least=1)},
    ),
    "zero1": ("", str, "sync, the optimizer's state sharded (ZeRO stage 1)", lambda _: {"buckets": SHARDS, "stage": 1}),
    "zero2": ("", str, "sync, state and gradients sharded (ZeRO stage 2)", lambda _: {"buckets": SHARDS, "stage": 2}),
    "zero3": ("", str, "sync, the parameters too (ZeRO stage 3, FSDP)", lambda _: {"buckets": SHARDS, "stage": 3}),
    "topk": (
        "share", float, "the largest coordinates, with error feedback",
        lambda share: {"how": ErrorFeedback(TopK(share))},
    ),
    "randomk": (
        "share", float, "random coordinates, the same on all workers, unbiased",
        lambda share: {"how": RandomK(share, unbiased=True), "omega": 1 / share - 1},
    ),
    "qsgd": ("levels", int, f"stochastic rounding, a norm for every {BUCKET} coordinates, unbiased", _qsgd),
    "sign": ("", str, "one bit a coordinate, with error feedback", lambda _: {"how": ErrorFeedback(Sign())}),
}  # fmt: skip
METHODS = {**POLICIES, **{f"{word}:{of}".strip(":"): said for word, (of, _, said, _) in _MORE.items()}}
#: What is assumed of the steps of policies under which they are not known.
_OPTIMISTIC: dict[type, str] = {
    LocalSteps: "optimistic: H local steps are worth H steps of sync",
    StaleSynchronous: "optimistic: as many steps as sync; stale gradients may need a smaller step size",
    Asynchronous: "optimistic: as many steps as sync, however stale the gradients are",
}
#: What is compared if nothing else is said: one of each.
DEFAULTS = ("sync", "overlapped:25MB", "zero1", "zero2", "zero3", "backup:1", "ssp:3", "local:8", "topk:0.01")


@dataclass(frozen=True, kw_only=True)
class Method:
    """policy: who waits for whom. Servers that hold w back are sharded over the workers; the rest is summed.

    buckets: > 0: the gradient is summed in as many equal ones while the backward pass goes on (Li et al. 2020, section
    3.2.3). bucket_bytes: > 0: in as many as there are when each has so many bytes, or at once where that is sooner, as a
    framework may choose. how: what is sent instead of a gradient, summed in flight where that is possible, else gathered.
    Both are for plain synchronous training only.
    stage: 1 to 3: what ZeRO shards over the workers, with ``buckets`` of the gradient (`memory.py`); 0: nothing.
    coding_s: seconds to encode and decode a step's gradient; 0 is optimistic. omega: the variance that an unbiased
    compressor adds, E ||Q(x) - x||^2 <= omega ||x||^2; 0 for a biased one with error feedback.
    steps_factor: how many times the steps that are stated are needed, > 0; measured or guessed.
    label: what tables call it; None: made of the rest. ValueError for anything else.
    """

    policy: Policy = field(default_factory=Synchronous)
    buckets: int = 0
    bucket_bytes: int = 0
    stage: int = 0
    how: Scheme | None = None
    coding_s: float = 0.0
    omega: float = 0.0
    steps_factor: float = 1.0
    label: str | None = None

    def __post_init__(self) -> None:
        number("steps_factor", self.steps_factor, above=0)
        number("coding_s", self.coding_s, least=0)
        number("omega", self.omega, least=0)
        if not isinstance(self.policy, Synchronous | StaleSynchronous | Asynchronous | LocalSteps):
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {self.policy!r}")
        overlapped = [integer(each, getattr(self, each)) > 0 for each in ("buckets", "bucket_bytes")]
        if (self.how is not None) + (self.policy != Synchronous()) + sum(overlapped) > 1:
            raise ValueError(
                f"policy must be sync where gradients are overlapped or compressed, and they can't be both, got "
                f"{self.policy}, buckets = {self.buckets}, bucket_bytes = {self.bucket_bytes}, how = {self.how!r}"
            )
        if integer("stage", self.stage, most=3) and not self.buckets:
            raise ValueError(f"buckets must be 1 at least where stage = {self.stage} shards, got 0")
        if self.how is not None:
            Scheme.of(self.how)
        elif self.coding_s:
            raise ValueError(f"coding_s must be 0 where nothing is compressed, got {self.coding_s!r}")

    @property
    def name(self) -> str:
        """What tables call it."""
        if self.label is not None:
            return self.label
        if self.how is not None:
            return type(self.how).__name__.lower()
        if size := self.bucket_bytes:
            power = max(i for i in range(4) if size % 1000**i == 0)
            return f"overlapped:{size // 1000**power}{' kMG'[power].strip()}B"
        overlapped = f"zero{self.stage}" if self.stage else f"overlapped:{self.buckets}"
        return overlapped if self.buckets else str(self.policy)

    @property
    def certain(self) -> bool:
        """Whether its number of steps is known: it takes those of one worker, or somebody gave its ``steps_factor``."""
        return self.steps_factor != 1 or (self.how is None and self.policy == Synchronous())

    @property
    def simulated(self) -> bool:
        """Whether chance is averaged over simulated steps, because there is no closed form."""
        policy = self.policy
        return policy != Synchronous() and not isinstance(policy, Asynchronous)

    @property
    def assumption(self) -> str:
        """One sentence: what is assumed of its number of steps."""
        if self.how is not None:
            free = "" if self.coding_s else ", and coding takes no time"
            if self.omega:
                return f"at worst as gradients noisier by omega = {self.omega:.3g} need{free}"
            return f"optimistic: as many steps as sync{free}"
        if backups := getattr(self.policy, "backups", 0):
            return f"(K - {backups}) / K of the batch counts; that no kind of example is dropped is assumed"
        if self.policy != Synchronous():
            return _OPTIMISTIC[type(self.policy)]
        if self.stage == 3:
            return "exact, as sync; units are gathered behind others' computation, which is not slowed down"
        if self.stage:
            return "exact, as sync; parameters are gathered after the step, behind nothing"
        if self.buckets or self.bucket_bytes:
            return "exact, as sync; that sending slows no computation down is assumed"
        return "exact: the steps of one worker with the batch B"

    def to_dict(self) -> dict[str, Any]:
        """As a job file holds it, and `parse_method` reads it."""
        coding = {"coding_s": self.coding_s} if self.how is not None else {}
        return {"method": self.name, "steps_factor": self.steps_factor, **coding}


def parse_method(given: str | Mapping[str, Any] | Method) -> Method:
    """The method that ``given`` names, as in ``METHODS``, or that an object with method, steps_factor, coding_s describes.

    ValueError for another.

    >>> parse_method("ssp:3").policy, parse_method("overlapped:8").buckets
    (StaleSynchronous(slack=3), 8)
    """
    if isinstance(given, Method):
        return given
    more = dict(given) if isinstance(given, Mapping) else {"method": given}
    text = more.pop("method", None)
    if not isinstance(text, str):
        raise ValueError(f"a method must have its name under method, such as local:8, got {given!r}")
    for key in more:
        if key not in ("steps_factor", "coding_s"):
            raise ValueError(f"a method must not have {key!r}; it may have method, steps_factor, coding_s")
    word, _, argument = text.strip().partition(":")
    if word in (form.partition(":")[0] for form in POLICIES):
        return Method(policy=parse_policy(text), **more)
    try:
        of, kind, _, make = _MORE[word]
        value = kind(argument)
        if not of and text.strip() != word:
            raise ValueError
    except (KeyError, ValueError):
        raise ValueError(f"methods must be of {', '.join(METHODS)}, got {text!r}") from None
    fields = make(value)
    return Method(**fields, **more, label=text.strip() if "how" in fields else None)


def parse_methods(given: Iterable[str | Mapping[str, Any] | Method]) -> tuple[Method, ...]:
    """Several, each with a name of its own. ValueError for none, and for two of the same name."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ValueError(f"methods must be a list of names such as sync or local:8, got {given!r}")
    found = tuple(parse_method(each) for each in given)
    names = [method.name for method in found]
    if not found or len(set(names)) < len(names):
        raise ValueError(f"methods must be one at least, each with a name of its own, got {names}")
    return found
