"""A whole question to the planner: one `Case`. Its fields are the keys of a job file, in SI units, as their names say.

Symbols: P parameters, b examples per worker and step, B = K b all workers' together, K workers, alpha and beta of a link.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Any

from labkit.checks import integer, number, one_of
from labkit.network.link import Link
from labkit.timing import Constant, Fleet, LogNormal, OneStraggler
from labkit_book.planner.cluster import ON_FLAT, ON_HOSTS, Cluster
from labkit_book.planner.method import DEFAULTS, Method, parse_method
from labkit_book.planner.sweep import Sweep

#: What fields are where nobody says, by transport: of measured rates nothing is lost; for a data sheet's, what fits
#: published jobs best (lab 10.10), rounded.
_SHEET = {"rate_share": 0.95, "inside_share": 0.2, "hidden_share": 0.7, "spread": 0.044}
USUAL: dict[str, dict[str, float]] = {
    "measured": {"rate_share": 1.0, "inside_share": 1.0, "hidden_share": 1.0, "spread": 0.0, "alpha_s": 0.0},
    "rdma": {**_SHEET, "alpha_s": 3e-6},
    "tcp": {**_SHEET, "alpha_s": 25e-6},
}
#: And the share of a batch's time that does not shrink with the batch.
FIXED_SHARE = 0.043
#: Bytes a second that sums of GPUs get from a host through its kernel's TCP, whatever the port could.
TCP_MOST = 3e9
#: All or none of these.
_TOGETHER = (
    ("per_host_workers", "inside_beta_bytes_per_s", "inside_alpha_s"), ("mtbf_s", "checkpoint_s", "restart_s"),
    ("S_min_steps", "B_crit_examples"), ("layers", "hidden", "tokens"),
)  # fmt: skip


def _checked(check: Callable[..., object], default: Any = MISSING, **bounds: Any) -> Any:
    """A field, and what refuses its value by (name, value). Default None: it may stay unsaid, or is `USUAL` then."""
    return field(default=default, metadata={"check": partial(check, **bounds)})


_whole, _number = partial(_checked, integer, least=1), partial(_checked, number)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that `plan` asks for.

    parameters: P. element_bytes: of an element of the gradient on the wire. example_s: seconds that one worker computes for
    one example, forward and backward. overhead_s: seconds of a pass that don't depend on b. b_examples: per step, of each
    worker. passes: backward passes to a step, among which b is shared out. backward_share: the share of the computation
    that is the backward pass, in which the gradient appears layer by layer; hidden_share: of that, behind which sums can
    hide. spread, slowdown: a worker's step takes exp(spread z) times ``compute_s(b)``, z standard normal; one worker's
    takes slowdown times that.
    alpha_s, beta_bytes_per_s: the link between any two workers, or between hosts of ``per_host_workers`` workers, which
    share the host's port and have the link inside_alpha_s, inside_beta_bytes_per_s among themselves.
    rate_share, inside_share: of the links' rates that sums get. transport: "rdma" or "tcp": the rates are a data sheet's,
    and fields that are not given are `USUAL` in published jobs; "measured": the rates are what sums get.
    measured: (workers, seconds) of steps that were measured, as of synchronous training in buckets; a plan is corrected by
    what the one with the nearest number of workers took over its own. sweep: all-reduces as measured, a `Sweep` or its
    points, in place of the links' price of them, and of beta_bytes_per_s. allreduce: "best" or the name of one.
    layers, hidden, tokens, recompute ("selective" or "full"): a transformer's, for the bytes of its activations.
    memory_bytes: of a worker. mtbf_s, checkpoint_s, restart_s: one worker's mean time between failures, the seconds to
    write a checkpoint and to come back to it. price_per_worker_hour: in any currency.
    S_min_steps and B_crit_examples: the hyperbola of steps to the accuracy, S_min (1 + B_crit / B) with batches of B; or
    total_examples: so many in all, which is right far below the critical batch size and optimistic beyond it.
    K_workers: a number of workers or several. methods: `Method`s or what `parse_method` reads.
    ValueError, in a sentence, for anything else.
    """

    parameters: int = _whole()
    example_s: float = _number(above=0)
    b_examples: int = _whole()
    K_workers: tuple[int, ...]
    element_bytes: int = _whole(4)
    overhead_s: float = _number(0.0, least=0)
    passes: int = _whole(1)
    backward_share: float = _number(2 / 3, least=0, most=1)
    hidden_share: float = _number(None, least=0, most=1)
    spread: float = _number(None, least=0, most=10)
    slowdown: float = _number(1.0, least=1)
    alpha_s: float = _number(None, least=0)
    beta_bytes_per_s: float | None = _number(None, above=0)
    per_host_workers: int | None = _whole(None)
    inside_alpha_s: float | None = _number(None, least=0)
    inside_beta_bytes_per_s: float | None = _number(None, above=0)
    rate_share: float = _number(None, above=0, most=1)
    inside_share: float = _number(None, above=0, most=1)
    transport: str = "measured"
    measured: tuple[tuple[int, float], ...] = ()
    sweep: Sweep | None = None
    allreduce: str = "best"
    layers: int | None = _whole(None)
    hidden: int | None = _whole(None)
    tokens: int | None = _whole(None)
    recompute: str = _checked(one_of, "selective", allowed=("selective", "full"))
    memory_bytes: float | None = _number(None, above=0)
    mtbf_s: float | None = _number(None, above=0)
    checkpoint_s: float | None = _number(None, above=0)
    restart_s: float | None = _number(None, least=0)
    price_per_worker_hour: float = _number(0.0, least=0)
    S_min_steps: float | None = _number(None, above=0)
    B_crit_examples: float | None = _number(None, above=0)
    total_examples: float | None = _number(None, above=0)
    methods: tuple[Method, ...] = DEFAULTS  # type: ignore[assignment]  # texts are read when the case is made

    def __post_init__(self) -> None:
        one_of("transport", self.transport, tuple(USUAL))
        for name, usual in USUAL[self.transport].items():
            if getattr(self, name) is None:
                self._set(name, usual)
        for each in fields(self):
            value = getattr(self, each.name)
            if "check" in each.metadata and (value is not None or each.default is not None):
                each.metadata["check"](each.name, value)
        K = self.K_workers
        Ks = {integer("K_workers", each, least=1) for each in (K if isinstance(K, Iterable) else [K])}
        self._set("K_workers", tuple(sorted(Ks)))
        steps = (
            (integer("measured K", K, 2), number("measured seconds", s, above=0)) for K, s in self.measured
        )
        self._set("measured", tuple(steps))
        self._set("methods", tuple(map(parse_method, self.methods)))
        if self.sweep is not None:
            self._set("sweep", self.sweep if isinstance(self.sweep, Sweep) else Sweep(self.sweep))
        self._check_groups()

    def _check_groups(self) -> None:
        """What is given together, or in place of each other."""
        for group in _TOGETHER:
            given = [name for name in group if getattr(self, name) is not None]
            if given and len(given) < len(group):
                raise ValueError(f"{', '.join(group)} must be given together, got only {' and '.join(given)}")
        if (self.S_min_steps is None) == (self.total_examples is None):
            got = "neither" if self.total_examples is None else "both"
            raise ValueError(f"S_min_steps and B_crit_examples or total_examples must be given, got {got}")
        if self.beta_bytes_per_s is None and self.sweep is None:
            raise ValueError("beta_bytes_per_s must be given, or sweep, as measured, got neither")
        if not self.K_workers:
            raise ValueError("K_workers must hold at least one number of workers, got none")
        if len(names := [method.name for method in self.methods]) != len(set(names)) or not names:
            raise ValueError(f"methods must be one at least, each with a name of its own, got {names}")
        if self.b_examples < self.passes:
            raise ValueError(f"passes must be at most b_examples = {self.b_examples}, got {self.passes}")
        flat = self.per_host_workers in (None, 1)
        one_of("allreduce", self.allreduce, ("best", *(ON_FLAT if flat else ON_HOSTS)))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def nbytes(self) -> int:
        """Bytes of one gradient."""
        return self.parameters * self.element_bytes

    @property
    def law(self) -> Fleet:
        """Of the factor by which a worker's step is longer than ``compute_s(b)``."""
        base = LogNormal(1.0, self.spread) if self.spread else Constant(1.0)
        return base if self.slowdown == 1 else OneStraggler(base, self.slowdown)

    @property
    def cluster(self) -> Cluster:
        """What its messages pass through."""
        beta = self.beta_bytes_per_s or (self.sweep.bandwidth if self.sweep else math.inf)
        most = TCP_MOST if self.transport == "tcp" else math.inf
        link = Link(self.alpha_s, min(self.rate_share * beta, most))
        if self.inside_alpha_s is None or self.inside_beta_bytes_per_s is None:
            return Cluster(link, link, sweep=self.sweep)
        inside = Link(self.inside_alpha_s, self.inside_share * self.inside_beta_bytes_per_s)
        return Cluster(link, inside, self.per_host_workers or 1, self.sweep, self.transport != "measured")

    def compute_s(self, b: float) -> float:
        """Seconds that one undisturbed worker computes for b examples: ``passes overhead_s + b example_s``."""
        return self.passes * self.overhead_s + b * self.example_s

    def steps(self, B: float) -> float:
        """Steps to the accuracy asked with B examples each: S_min (1 + B_crit / B), or total_examples / B."""
        if self.S_min_steps is not None and self.B_crit_examples is not None:
            return self.S_min_steps * (1 + self.B_crit_examples / B)
        return (self.total_examples or 0.0) / B


def job_file(text: str) -> dict[str, Any]:
    """The fields of a case from a job file's text. ValueError for what is no JSON object, and for other keys."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the job file must be JSON, but {error}") from None
    known = [each.name for each in fields(Case)]
    if not isinstance(found, dict) or found.keys() - set(known):
        raise ValueError(f"the job file must be an object with some of {', '.join(known)}, got {text}")
    return found
