"""The interactive figures of the labs: ``figure("ring", K=4)``.

A figure NAME is a frozen dataclass (its parameters, and what labkit has computed for it; here where it is its parameters
alone, else in NAME.py) and NAME.js (computes, draws, puts in words), whose numbers tests in a browser hold against labkit's.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from labkit.checks import integer, number, one_of
from labkit.show.figures import base
from labkit.show.figures.base import Figure, parameter
from labkit_book.labs.figures.barriers import Barriers
from labkit_book.labs.figures.compressors import Compressors

HERE = Path(__file__).parent


@dataclass(frozen=True, repr=False)
class Ring(Figure):
    """The ring all-reduce, round by round (Patarasuk and Yuan 2009), beside a server's bytes and time.

    K workers (2 to 8), n elements of ``itemsize`` bytes, ``alpha`` s and ``beta`` bytes/s; ``round`` rounds are over.
    """

    name: ClassVar[str] = "ring"
    K: int = parameter(4, integer, least=2, most=8)
    n: int = parameter(250_000, integer)
    itemsize: int = parameter(4, integer, least=1)
    alpha: float = parameter(25e-6, number, least=0)
    beta: float = parameter(1.25e9, number, above=0)
    round: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("round", self.round, most=2 * (self.K - 1))


@dataclass(frozen=True, repr=False)
class Stale(Figure):
    """The largest step that a delay allows, and the path of w on either side of it.

    w_{u+1} = w_u - eta L w_{u-tau} settles below eta L = 2 sin(pi / (2 (2 tau + 1))). It swings above
    tau^tau / (tau + 1)^(tau + 1), where the largest two of the roots of z^{tau+1} - z^tau + eta L meet on the real axis.
    A constant delay of ``tau`` versions (0 to 16), a step of ``eta_L`` (in units of 1 / L), ``U`` updates. view: "path", or
    "roots" for the roots in the complex plane.
    """

    name: ClassVar[str] = "stale"
    tau: int = parameter(4, integer, most=16)
    eta_L: float = parameter(0.33, number, least=1e-3, most=3)
    view: str = parameter("path", one_of, allowed=("path", "roots"))
    U: int = parameter(160, integer, least=20, most=2000)


@dataclass(frozen=True, repr=False)
class StepTime(Figure):
    """Computation and communication of a step against the number of workers.

    A step computes ``t_comp`` seconds, of which the backward pass is the share ``backward``, and sums the gradient in so
    many ``buckets``: each as soon as its gradients are there and the bucket before it is through (lab 2.2, overlap); one: no
    overlap. P parameters of ``itemsize`` bytes, a link of ``alpha`` s and ``beta`` bytes/s, K workers.
    """

    name: ClassVar[str] = "step_time"
    P: float = parameter(2e8, number, least=0)
    itemsize: int = parameter(4, integer, least=1)
    t_comp: float = parameter(0.08, number, least=0)
    alpha: float = parameter(0.0, number, least=0)
    beta: float = parameter(1e10, number, above=0)
    K: int = parameter(8, integer, least=1, most=2**53)
    algorithm: str = parameter("ring", one_of, allowed=("ring", "tree", "halving", "doubling", "naive"))
    buckets: int = parameter(1, integer, least=1, most=1024)
    backward: float = parameter(2 / 3, number, least=0, most=1)


KINDS = {kind.name: kind for kind in (Barriers, Compressors, Ring, Stale, StepTime)}


def names() -> tuple[str, ...]:
    """The figures there are."""
    return tuple(KINDS)


def module(name: str) -> str:
    """A figure's ES module."""
    return base.module(HERE / f"{name}.js")


def script(name: str) -> str:
    """The same as a classic script, for a page."""
    return base.script(HERE / f"{name}.js")


def figure(name: str, **parameters: Any) -> Figure:
    """The interactive figure ``name``, starting at ``parameters`` (those not given have defaults).

    Returns a `Figure`, which a notebook shows; ``.values`` are its present settings, ``.numbers`` what it computes of them.
    ValueError, in one sentence, for a figure or a parameter that there is not, or a value that makes no sense.
    """
    one_of("name", name, KINDS)
    for given in parameters:
        one_of(f"parameters of {name!r}", given, [field.name for field in fields(KINDS[name])])
    # numpy's numbers are numbers
    plain = {key: value.item() if hasattr(value, "item") else value for key, value in parameters.items()}
    return KINDS[name](**plain)
