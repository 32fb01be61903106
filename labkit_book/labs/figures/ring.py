"""Figure "ring": the ring all-reduce, round by round (Patarasuk and Yuan 2009), beside a server's bytes and time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from labkit.checks import integer, number
from labkit.show.figures.base import Figure, parameter


@dataclass(frozen=True, repr=False)
class Ring(Figure):
    """K workers (2 to 8), n elements of ``itemsize`` bytes, ``alpha`` s and ``beta`` bytes/s; ``round`` rounds are over."""

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
