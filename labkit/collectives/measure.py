"""Alpha and beta of the machine or network in front of you: clock messages and all-reduces between real workers, then fit.

Half the time of a ping-pong (Hockney 1994, section 2) is one message's. In a ring all-reduce every worker sends, receives
and adds at once, which costs far more where workers share cores. So each gets a link of its own: plan with the second.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit import machine
from labkit.checks import integer
from labkit.collectives.ring import ring
from labkit.comm.base import Comm
from labkit.network.fit import Fit, Sample, fit
from labkit.network.link import Link

#: Bytes from where latency is everything to where it is nothing; and to where a longer vector gets no more bytes a second.
SIZES = (64, 4_000, 40_000, 400_000, 4_000_000)
UP_TO_FLAT = (*SIZES, 16_000_000, 64_000_000)
#: Launches, at most, until the times determine a link: on a busy machine the first may not.
ATTEMPTS = 4


@dataclass(frozen=True)
class Measured:
    """A link as it was measured, by single messages and by ring all-reduces of K workers; on what machine."""

    message: Fit
    allreduce: Fit
    K: int
    where: str

    @property
    def link(self) -> Link:
        """The link to plan all-reduces with: the one that their times say."""
        return self.allreduce.link

    def __str__(self) -> str:
        return f"messages    {self.message}\nall-reduce  {self.allreduce}\n  {self.where}"


def measure_link(
    K: int = 2,
    sizes: Sequence[int] = SIZES,
    rounds: int = 3,
    repeats: int = 9,
    world: Any = None,
    timeout_s: float = 60.0,
) -> Measured:
    """Clock ping-pongs (of two) and ring all-reduces of K real workers, for ``sizes`` bytes, and fit a link to each.

    sizes: at least three lengths, 4 bytes or more. rounds: times that all are clocked, so that the fit sees how they
    scatter; repeats: of each in a round, the least disturbed of which counts (fewer of long vectors). world:
    ``Processes()``, or ``Emulated(rate=...)``. Raises ValueError for times that determine no link.
    """
    from labkit.comm import Processes, launch

    integer("K", K, least=2)
    integer("rounds", rounds, least=1)
    integer("repeats", repeats, least=1)
    sizes = tuple(sizes)
    if len(set(sizes)) < 3 or min(sizes) < 4:
        raise ValueError(
            f"sizes must be three or more different numbers >= 4, got {sizes}"
        )
    world = world or Processes()
    messages, allreduces = [], []
    for _ in range(ATTEMPTS):
        run = launch(
            _clocked, K, sizes, rounds, repeats, world=world, timeout_s=timeout_s
        )
        seconds = np.array(run.results)  # (rank, point, way)
        for i, nbytes in enumerate(rounds * sizes):
            messages.append(Sample(_one_message, K, nbytes, seconds[0, i, 0] / 2))
            allreduces.append(Sample(ring, K, nbytes, seconds[:, i, 1].max()))
        try:
            return Measured(_fit(messages), _fit(allreduces), K, run.where)
        except ValueError as error:
            why = error
    raise why


def _one_message(K: int, nbytes: float, link: Link) -> float:
    return link.seconds(nbytes)


def _fit(samples: list[Sample]) -> Fit:
    """The link. A disturbance makes a time longer, so where all samples determine none, the shortest of each size do."""
    try:
        return fit(samples)
    except ValueError:
        slowest_first = sorted(samples, key=lambda s: -s.seconds)
        return fit({s.nbytes: s for s in slowest_first}.values())


def _clocked(
    comm: Comm, sizes: tuple[int, ...], rounds: int, repeats: int
) -> list[list[float]]:
    """This rank's seconds of a ping-pong and of an all-reduce, for every size in every round."""
    import torch

    found = []
    for nbytes in rounds * sizes:
        x = torch.zeros(nbytes // 4, device=comm.device)
        times = max(1, round(repeats * min(1, 4e5 / nbytes)))
        found.append(
            [
                _least_s(comm, way, x, times)
                for way in (_ping_pong, ring.allreduce_inplace)
            ]
        )
    return found


def _least_s(
    comm: Comm, way: Callable[[Comm, Any], None], x: Any, times: int
) -> float:
    """The least disturbed of so many times, after one to warm up."""
    spent = []
    for _ in range(1 + times):
        x.fill_(0)
        comm.barrier()
        begun = time.perf_counter()
        way(comm, x)
        if comm.device != "cpu":
            machine.gpu_module().synchronize()
        spent.append(time.perf_counter() - begun)
    return min(spent[1:])


def _ping_pong(comm: Comm, x: Any) -> None:
    if comm.rank == 0:
        comm.send(x, 1)
        comm.recv(x, 1)
    elif comm.rank == 1:
        comm.recv(x, 0)
        comm.send(x, 0)
