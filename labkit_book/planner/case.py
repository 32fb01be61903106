"""A whole question to the planner: one `Case`, whose fields are the keys of a job file, each known here and nowhere else.

Everything is in SI units, and a field's name says which. A file (``--from`` reads it, ``--json`` writes it as ``inputs``)
puts the fields into the objects job, cluster and target; an argument of the command line is a field's ``option``, whose
text `labkit_book.planner.units` reads.

Symbols: P parameters, b examples per worker and step, B = K b all workers' together, K workers, alpha and beta of a link.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from labkit.checks import integer, number, one_of
from labkit.network.link import Link
from labkit.timing import Fleet
from labkit_book.planner import units
from labkit_book.planner.goals import Goal, parse_goal
from labkit_book.planner.laws import format_law, parse_law
from labkit_book.planner.method import DEFAULTS, Method, parse_methods
from labkit_book.planner.network import ON_FLAT, ON_HOSTS, Network, measured
from labkit_book.planner.sweep import Sweep, read_sweep


class _Quantity(NamedTuple):
    """What is known of a field: the file's ``section``, the command line's ``option``, with an example, a help and a reader.

    check: refuses, by (name, value), what is out of bounds; None: it is no number.
    """

    section: str
    option: str
    example: str
    help: str
    read: Callable[[str, str], Any]
    check: Callable[[str, Any], object] | None


def _quantity(where: str, kind: tuple[Any, Any], help: str, default: Any = MISSING) -> Any:
    section, option, example = where.split()
    about = _Quantity(section.strip("."), option, example, help, *kind)
    return field(default=default, metadata={"quantity": about})


#: Kinds of quantities: how an option's text is read, and what is refused.
_WHOLE, _POSITIVE, _AMOUNT = partial(integer, least=1), partial(number, above=0), partial(number, least=0)
_COUNT, _NUMBER, _BYTES = (units.COUNT.read, _WHOLE), (units.COUNT.read, _POSITIVE), (units.precision, _WHOLE)
_SECONDS, _PRICE = (units.SECONDS.read, _AMOUNT), (units.PRICE.read, _AMOUNT)
_RATE = (units.RATE.read, _POSITIVE)
_MS, _MS_MORE = (units.MILLISECONDS.read, _POSITIVE), (units.MILLISECONDS.read, _AMOUNT)
_SIZE, _MEAN_S = (units.SIZE.read, _POSITIVE), (units.SECONDS.read, _POSITIVE)
_SHARE = (units.SHARE.read, partial(number, least=0, most=1))
_SOME = (units.SHARE.read, partial(number, above=0, most=1))
_TEXT = (lambda text, name: text, None)
_SWEEP = (lambda text, name: _sweep_of(text, name), None)
_LIST = (lambda text, name: text.split(","), None)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that `plan` asks for; ``case.json`` has the same names.

    parameters: P. element_bytes: of an element of the gradient on the wire. example_s: seconds that one worker computes for
    one example, forward and backward. overhead_s: seconds of a step that don't depend on b. b_examples or B_examples:
    examples per step, of each worker (weak scaling: B = K b grows with K) or of all (strong scaling: b = B / K).
    backward_share: the share of the computation that is the backward pass, in which the gradient appears layer by layer.
    hidden_share: of that, behind which sums can hide; sending_slows: of a hidden sum's time, by which computing gets longer.
    law: of the *factor* by which a worker's step is longer than ``compute_s(b)``, a Fleet or its text ("lognormal:0.1").
    alpha_s, beta_bytes_per_s: the link between any two workers, or between hosts of ``per_host_workers`` workers, which
    share the host's port and have the link inside_alpha_s, inside_beta_bytes_per_s among themselves.
    rate_share, inside_share: of the links' rates that sums get. transport: "rdma" or "tcp": the rates are a data sheet's,
    and fields that are not given are `USUAL` in published jobs; "measured": the rates are what sums get.
    measured: (workers, seconds) of steps that were measured, as of synchronous training in buckets; a plan is corrected by
    what the one with the nearest number of workers took over its own.
    passes: m, backward passes to a step; each worker's b examples are computed b / m at a time, with the overhead in each.
    layers, hidden, heads, tokens, recompute: a transformer's, for the bytes of an example's activations; or these,
    activation_bytes. memory_bytes: of a worker (`memory.py`). mtbf_s, checkpoint_s, restart_s: one worker's mean
    time between failures, the seconds to write a checkpoint and to come back to it (`failures.py`).
    sweep: all-reduces as measured, a `Sweep` or its points [K, bytes, seconds], in place of the links' price of them; where
    beta_bytes_per_s is not given, what the longest vector measured says of it.
    price_per_worker_hour: in any currency. allreduce: "best", whichever costs least, or the name of one.
    S_min_steps and B_crit_examples: the hyperbola of steps to the accuracy, S_min (1 + B_crit / B) with batches of B; or
    total_examples: so many in all, whatever the batch, which is right far below the critical batch size and optimistic
    beyond it. A subclass with a ``steps`` of its own may know better.
    K_workers: a number of workers or several. methods: `Method`s or their texts ("local:8"). goal: what "best" means, a
    `Goal` or its text. Texts are read once: what the case holds are the objects.
    ValueError, in a sentence, for anything else.
    """

    # fmt: off
    parameters: int = _quantity("job --parameters 25.6M", _COUNT, "parameters of the model")
    element_bytes: int = _quantity("job --precision fp32", _BYTES,
        "of the gradient on the wire: fp32 (default), bf16, ... or bytes", 4)
    example_s: float = _quantity("job --example-ms 4", _MS,
        "computation of one example, forward and backward, on one worker")
    overhead_s: float = _quantity("job --overhead-ms 2", _MS_MORE,
        "the part of a step that does not depend on the batch", 0.0)
    b_examples: int | None = _quantity("job --b 32", _COUNT, "examples per worker and step: weak scaling, B = K b", None)
    B_examples: int | None = _quantity("job --B 1024", _COUNT,
        "or: examples per step of all workers: strong scaling, b = B / K", None)
    backward_share: float = _quantity("job --backward-share 0.67", _SHARE,
        "share of the computation that is the backward pass", 2 / 3)
    passes: int = _quantity("job --accumulate 4", _COUNT,
        "backward passes, of b / 4 examples each, whose gradients make a step", 1)
    layers: int | None = _quantity("job --layers 80", _COUNT, "of a transformer, for its activations", None)
    hidden: int | None = _quantity("job --hidden 8192", _COUNT, "its width", None)
    heads: int | None = _quantity("job --heads 64", _COUNT, "its attention heads", None)
    tokens: int | None = _quantity("job --tokens 4096", _COUNT, "tokens of an example", None)
    recompute: str = _quantity("job --recompute full", _TEXT,
        "activations: none, selective (default; flash attention), full", "selective")
    activation_bytes: float | None = _quantity("job --activations 1.2GB", _SIZE, "instead: activations of one example", None)
    hidden_share: float = _quantity("job --hidden-share 0.8", _SHARE, "of the backward pass, behind which sums hide", None)
    sending_slows: float = _quantity("job --sending-slows 0.05", _SHARE,
        "share of a hidden sum's time by which computing gets longer", 0.0)
    law: Fleet = _quantity("job --stragglers LAW", _TEXT,  # noqa: RUF009
        "law of the workers' speeds, below; none is the default", None)
    beta_bytes_per_s: float | None = _quantity("cluster --network 25Gbit/s", _RATE,
        "rate of a link (between hosts): bit or B; bare numbers are bytes/s", None)
    sweep: Sweep | None = _quantity("cluster --sweep FILE", _SWEEP,  # noqa: RUF009
        "what nccl-tests, gloo or doctor --json printed, in place of the price; FILE@K says K; or FILE,FILE", None)
    alpha_s: float = _quantity("cluster --latency 20us", _SECONDS, "of a message on it; bare numbers are seconds", None)
    transport: str = _quantity("cluster --transport tcp", _TEXT,
        "rates are a data sheet's, over rdma (default) or tcp, so published jobs say the rest; or: measured", "measured")
    rate_share: float = _quantity("cluster --rate-share 0.9", _SOME, "share of its rate that a link gives to a sum", None)
    inside_share: float = _quantity("cluster --inside-share 0.2", _SOME, "and that one inside a host gives", None)
    inside_beta_bytes_per_s: float | None = _quantity("cluster --inside 10GB/s", _RATE,
        "rate of a link inside a host of several workers", None)
    inside_alpha_s: float | None = _quantity("cluster --inside-latency 5us", _SECONDS, "of a message inside a host", None)
    per_host_workers: int | None = _quantity("cluster --per-host 4", _COUNT, "workers of a host, which share its port", None)
    price_per_worker_hour: float = _quantity("cluster --price 2.5/h", _PRICE, "of one worker, in any currency", 0.0)
    memory_bytes: float | None = _quantity("cluster --memory 80GB", _SIZE,
        "of one worker; a method that does not fit is refused", None)
    mtbf_s: float | None = _quantity("cluster --mtbf 50000h", _MEAN_S, "mean time between failures of one worker", None)
    checkpoint_s: float | None = _quantity("cluster --checkpoint 60s", _MEAN_S, "to write a checkpoint", None)
    restart_s: float | None = _quantity("cluster --restart 300s", _SECONDS,
        "from a failure to the last checkpoint's state", None)
    allreduce: str = _quantity("cluster --allreduce best", _TEXT,
        "best, or ring, halving, ...; on hosts ring, hierarchical or torus", "best")
    measured: tuple[tuple[int, float], ...] = _quantity("cluster --measured K=16:220ms", (units.steps, None),
        "steps that were measured, on one number of workers or several", ())
    S_min_steps: float | None = _quantity("target --steps-min 7000", _NUMBER,
        "steps to the accuracy asked with batches without limit", None)
    B_crit_examples: float | None = _quantity("target --critical-batch 4096", _NUMBER,
        "the batch that needs twice as many", None)
    total_examples: float | None = _quantity("target --examples 115M", _NUMBER,
        "or: examples to compute, whatever the batch", None)
    K_workers: tuple[int, ...] = _quantity(". --K 1-64", (units.workers, None),
        "numbers of workers: 8, or 1,2,4, or 1-64 (powers of two and both ends)")
    methods: tuple[Method, ...] = _quantity(". --methods LIST", _LIST,
        "of those below, with commas; default: one of each", DEFAULTS)
    goal: Goal = _quantity(". --goal time", _TEXT,  # noqa: RUF009
        "time (default), price, knee (least time x price) or 'efficiency>=0.8'", "time")
    # fmt: on

    def __post_init__(self) -> None:
        for name, value in checked(vars(self)).items():
            object.__setattr__(self, name, value)

    @property
    def nbytes(self) -> int:
        """Bytes of one gradient."""
        return self.parameters * self.element_bytes

    @property
    def network(self) -> Network:
        curve = measured(self.sweep) if self.sweep else None
        beta = self.beta_bytes_per_s or (curve.bandwidth if curve else math.inf)
        most = TCP_MOST if self.transport == "tcp" else math.inf
        link = Link(self.alpha_s, min(self.rate_share * beta, most))
        if self.inside_alpha_s is None or self.inside_beta_bytes_per_s is None:
            return Network(link, link, curve=curve)
        inside = Link(self.inside_alpha_s, self.inside_share * self.inside_beta_bytes_per_s)
        return Network(link, inside, self.per_host_workers or 1, curve, self.transport != "measured")

    def batch(self, K: int) -> int:
        """Examples that the busiest of K workers computes in a step: b, or B / K rounded up."""
        return self.b_examples if self.b_examples is not None else -(-self.total(K) // K)

    def total(self, K: int) -> int:
        """B, the examples that K workers compute in a step."""
        return self.B_examples if self.B_examples is not None else K * self.batch(K)

    def compute_s(self, b: float) -> float:
        """Seconds that one undisturbed worker computes for b examples: ``passes overhead_s + b example_s``."""
        return self.passes * self.overhead_s + b * self.example_s

    def steps(self, B: float) -> float:
        """Steps to the accuracy asked with B examples each: S_min (1 + B_crit / B), or total_examples / B."""
        if self.S_min_steps is not None and self.B_crit_examples is not None:
            return self.S_min_steps * (1 + self.B_crit_examples / B)
        assert self.total_examples is not None  # `checked` has seen to it
        return self.total_examples / B

    @classmethod
    def from_json(cls, text: str) -> Case:
        """The case of a job file, or of all that ``--json`` printed."""
        return cls(**checked(read(text)))

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it, and ``from_json`` reads it. ValueError for a law without a text."""
        out: dict[str, Any] = {"job": {}, "cluster": {}, "target": {}}
        for name, quantity in QUANTITIES.items():
            if (value := getattr(self, name)) is not None:
                (out[quantity.section] if quantity.section else out)[name] = value
        out["job"]["law"] = format_law(self.law)
        if self.sweep:
            out["cluster"]["sweep"] = [list(point) for point in self.sweep.points]
        out |= {"K_workers": list(self.K_workers), "methods": [each.to_dict() for each in self.methods]}
        return out | {"goal": self.goal.text}


#: All fields of a case: name -> what is known of it.
QUANTITIES: dict[str, _Quantity] = {each.name: each.metadata["quantity"] for each in fields(Case)}
_DEFAULTS = {each.name: each.default for each in fields(Case)}
_NOTHING = {"rate_share": 1.0, "inside_share": 1.0, "hidden_share": 1.0, "law": "none"}
_SHEET = {"rate_share": 0.95, "inside_share": 0.2, "hidden_share": 0.7, "law": "lognormal:0.044"}
#: What fields are where nobody says, by transport: nothing is lost; or, as a data sheet does not say either, what fits
#: published jobs best (lab 10.10), rounded.
USUAL: dict[str, dict[str, Any]] = {
    "measured": {**_NOTHING, "alpha_s": 0.0},
    "rdma": {**_SHEET, "alpha_s": 3e-6},
    "tcp": {**_SHEET, "alpha_s": 25e-6},
}
#: And the share of a batch's time that does not shrink with the batch.
FIXED_SHARE = 0.043
#: Bytes a second that sums of GPUs get from a host through its kernel's TCP, whatever the port could.
TCP_MOST = 3e9
#: Of each of these pairs one is given, in full; and all or none of those that make hosts, failures.
EITHER = ((("b_examples",), ("B_examples",)), (("S_min_steps", "B_crit_examples"), ("total_examples",)))
_TOGETHER = (
    ("per_host_workers", "inside_beta_bytes_per_s", "inside_alpha_s"),
    ("mtbf_s", "checkpoint_s", "restart_s"),
)


def read(text: str) -> dict[str, Any]:
    """The fields of a case from JSON text: a job file, or all that ``--json`` printed. ValueError for other keys."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the job file must be JSON, but {error}") from None
    whole = found.get("inputs", found) if isinstance(found, dict) else found
    parts: dict[str, list[str]] = {}
    for name, quantity in QUANTITIES.items():
        parts.setdefault(quantity.section, []).append(name)
    sections = sorted(parts.keys() - {""})
    out: dict[str, Any] = {}
    for section in ("", *sections):
        where, known = section or "inputs", parts[section] + (sections if not section else [])
        given = whole.get(section, {}) if section else whole
        if not isinstance(given, dict):
            raise ValueError(f"{where} must be an object with {', '.join(known)}, got {given!r}")
        for name in given.keys() - set(known):
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; is {near[0]} meant?" if near else f"; it may have {', '.join(known)}"
            raise ValueError(f"{where} must not have {name!r}{hint}")
        out |= {name: value for name, value in given.items() if name in QUANTITIES}
    return out


def _sweep_of(text: str, name: str) -> Sweep:
    """The sweep in the files that ``text`` names, FILE or FILE@K, with commas between."""
    found = []
    for path, _, K in (each.partition("@") for each in text.split(",")):
        with units.naming(f"{name} must name files that can be read", path):
            found.append(read_sweep(Path(path).read_text(), K=int(units.COUNT.read(K, name)) if K else None))
    return sum(found[1:], found[0])


def checked(given: Mapping[str, Any], call: Callable[[str], str] = str) -> dict[str, Any]:
    """``given``, some fields of a case, with what is a text read into an object.

    call: what people who gave them call a field, where not by its name. ValueError, in a sentence, for what makes no case.
    """
    out = {name: given.get(name, default) for name, default in _DEFAULTS.items()}

    def refuse(right: str, got: object = MISSING) -> NoReturn:
        raise ValueError(right if got is MISSING else f"{right}, got {got}")

    for name, known in (("transport", USUAL), ("recompute", ("none", "selective", "full"))):
        if out[name] not in known:
            refuse(f"{call(name)} must be one of {', '.join(known)}", repr(out[name]))
    out |= {name: usual for name, usual in USUAL[out["transport"]].items() if out[name] is None}
    for name, value in out.items():
        if value is MISSING:
            refuse(f"{call(name)} must be given: {QUANTITIES[name].help}")
        check = QUANTITIES[name].check
        if check is not None and not (value is None and _DEFAULTS[name] is None):
            check(call(name), value)
    for ways in EITHER:
        there = tuple(name for way in ways for name in way if out[name] is not None)
        if there not in ways:
            said = [" and ".join(call(name) for name in way) for way in ways]
            got = ", ".join(f"{call(name)} = {out[name]!r}" for name in there) or "neither"
            refuse(f"{said[0]} or {said[1]} must be given, and only one of the two", got)
    transformer = ["layers", "hidden", "tokens"] + ["heads"] * (out["recompute"] == "none")
    wanted = transformer if out["layers"] is not None or out["hidden"] is not None else []
    for group in (*_TOGETHER, wanted):
        missing = [call(name) for name in group if out[name] is None]
        if 0 < len(missing) < len(group):
            refuse(f"{', '.join(map(call, group))} must be given together", f"no {' and no '.join(missing)}")
    if wanted and out["activation_bytes"] is not None:
        refuse(
            f"{call('activation_bytes')} and {call('layers')} say the same thing: give one of them", "both"
        )
    if (b := out["b_examples"]) is not None and b < out["passes"]:
        refuse(f"{call('passes')} must be at most the {b} examples of {call('b_examples')}", out["passes"])
    if out["beta_bytes_per_s"] is None and out["sweep"] is None:
        refuse(f"{call('beta_bytes_per_s')} must be given, or {call('sweep')}, as measured")
    if (sweep := out["sweep"]) is not None:
        out["sweep"] = sweep if isinstance(sweep, Sweep) else Sweep(sweep)
        measured(out["sweep"])  # refuses what makes no curve
    one_of(
        call("allreduce"),
        out["allreduce"],
        ("best", *(ON_FLAT if out["per_host_workers"] in (None, 1) else ON_HOSTS)),
    )
    if isinstance(out["law"], str):
        out["law"] = parse_law(out["law"], call("law"))
    if not isinstance(out["law"], Fleet):
        refuse(
            f"{call('law')} must be a law of compute time or its text, such as lognormal:0.1",
            repr(out["law"]),
        )
    K = out["K_workers"]
    Ks = list(K) if isinstance(K, Iterable) and not isinstance(K, str) else [K]
    if not Ks:
        refuse(f"{call('K_workers')} must hold at least one number of workers", "none")
    out["K_workers"] = tuple(sorted({integer(call("K_workers"), each, least=1) for each in Ks}))
    of_K, of_s = (f"{call('measured')}, {what}" for what in ("workers", "seconds"))
    out["measured"] = tuple((integer(of_K, K, least=2), number(of_s, s, above=0)) for K, s in out["measured"])
    out["methods"] = parse_methods(out["methods"])
    out["goal"] = parse_goal(out["goal"], call("goal"))
    return out
