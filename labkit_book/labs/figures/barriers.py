"""Figure "barriers": who waits for whom, as lanes, with a barrier, some slack, none, spare workers, or local steps.

Compute times are labkit's own draws: the uniform numbers of ranks 0 to 11 travel with the figure, and the browser pushes
them through the same inverse of the law, so a run there is the run that `labkit.timing` makes of the same seed.
All laws have the mean ``mean_s`` and the standard deviation ``spread * mean_s``; they differ in their tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labkit.checks import integer, number, one_of
from labkit.show.figures.base import Figure, parameter

K_MOST, SEEDS = 12, 4
LAWS = ("constant", "uniform", "exponential", "pareto")
#: By the first word of the policy's text, as in `labkit.timing.POLICIES`.
METHODS = ("sync", "ssp", "async", "backup", "local")


@dataclass(frozen=True, repr=False)
class Barriers(Figure):
    """K workers take T steps each; rank 0 is ``slowdown`` times slower. A step communicates for ``comm_s``.

    method: one of `METHODS`; its dial is ``slack`` (ssp), ``server_s`` (async: seconds of a server's time for each
    gradient), ``backups`` (below K) or ``H`` (local). law: one of `LAWS`. seed: 0 to 3, of the compute times.
    """

    name: ClassVar[str] = "barriers"
    K: int = parameter(4, integer, least=1, most=K_MOST)
    slowdown: float = parameter(1.0, number, least=1, most=100)
    law: str = parameter("exponential", one_of, allowed=LAWS)
    spread: float = parameter(0.5, number, least=0.01, most=0.57)
    mean_s: float = parameter(0.02, number, least=1e-9)
    method: str = parameter("sync", one_of, allowed=METHODS)
    slack: int = parameter(1, integer)
    server_s: float = parameter(0.0, number, least=0)
    backups: int = 1
    H: int = parameter(4, integer, least=1)
    comm_s: float = parameter(0.002, number, least=0)
    T: int = parameter(10, integer, least=1, most=40)
    seed: int = parameter(0, integer, most=SEEDS - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("backups", self.backups, most=self.K - 1 if self.method == "backup" else None)

    def state(self) -> dict[str, Any]:
        """u[seed][rank][t]: the uniform numbers from which labkit's laws make compute times."""
        draws = [[np.random.default_rng([s, k]).random(self.T) for k in range(K_MOST)] for s in range(SEEDS)]
        return {**super().state(), "u": np.array(draws).tolist()}
