"""Alpha and beta of the machine or network in front of you: clock messages and all-reduces between real workers, then fit.

A ping-pong (Hockney 1994, section 2) sends n bytes there and back; half of its time is one message's. A ring all-reduce is
clocked beside it, because it is what training does: every worker sends, receives and adds at once, and where workers share
cores that costs far more than the messages would one by one. So each of the two gets a link of its own
(``labkit.network.fit``): plan all-reduces with the second, and read off the difference what the model leaves out.

Symbols: K workers; n ``nbytes`` of a vector of float32; ``alpha`` s per message, ``beta`` bytes per second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit import machine
from labkit.checks import integer
from labkit.collectives.ring import ring
from labkit.network.fit import Fit, Sample, fit
from labkit.network.linear import terms
from labkit.network.link import Link

if TYPE_CHECKING:
    from labkit.comm import Comm, Emulated, Processes

#: Bytes from where latency is everything to where it is nothing; and to where a longer vector gets no more bytes a second.
SIZES = (64, 4_000, 40_000, 400_000, 4_000_000)
UP_TO_FLAT = (*SIZES, 16_000_000, 64_000_000)
#: Launches, at most, until the times determine a link: on a busy machine the first may not.
ATTEMPTS = 4


@dataclass(frozen=True)
class Measured:
    """A link as it was measured, twice: by single messages, and by ring all-reduces among K workers.

    message, allreduce: ``Fit``: alpha, beta, their intervals and the scatter. where: machine, backend and date.
    """

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


def _one_message(K: int, nbytes: float, link: Link) -> float:
    """Seconds of one message of ``nbytes`` bytes, however many workers there are: half a ping-pong."""
    return link.seconds(nbytes)


def _ping_pong(comm: Comm, x: Any) -> None:
    """Rank 0 sends ``x`` to rank 1 and gets it back; other ranks look on."""
    if comm.rank == 0:
        comm.send(x, 1)
        comm.recv(x, 1)
    elif comm.rank == 1:
        comm.recv(x, 0)
        comm.send(x, 0)


def measure_link(
    K: int = 2,
    sizes: Sequence[int] = SIZES,
    rounds: int = 3,
    repeats: int = 9,
    world: Processes | Emulated | None = None,
    timeout_s: float = 60.0,
) -> Measured:
    """Clock ping-pongs and ring all-reduces of ``sizes`` bytes between K real workers and fit a link to them.

    K: workers, >= 2; the ping-pong is between two of them. sizes: bytes, at least 4 each, of at least three lengths.
    rounds: times that all sizes are clocked, so that the fit sees how they scatter; repeats: of each size in a round, the
    least disturbed of which counts (a fifth of them for 1 MB and more, one of more than 4 MB, in three
    rounds at most). world: ``Processes()``, or ``Emulated(rate=...)``.
    Returns a ``Measured``. Where the times determine no link, all is clocked again and added, ``ATTEMPTS`` times at most.
    ValueError for arguments that make no sense and for times that determine no link even then, ``LaunchError`` where this
    machine can't run it; nothing is left running.
    """
    from labkit.comm import Processes, launch

    integer("K", K, least=2)
    integer("rounds", rounds, least=1)
    integer("repeats", repeats, least=1)
    if len(set(sizes)) < 3 or min(sizes) < 4:
        raise ValueError(
            f"sizes must be at least three different numbers of bytes >= 4, got {tuple(sizes)!r}"
        )
    world = Processes() if world is None else world
    messages: list[Sample] = []
    allreduces: list[Sample] = []
    left = ATTEMPTS
    while True:
        left -= 1
        run = launch(_clocked, K, tuple(sizes), rounds, repeats, world=world, timeout_s=timeout_s)
        for rows in zip(*run.results, strict=True):  # the same point on every rank
            nbytes, there, _ = rows[0]  # rank 0 sees a message go and come back
            messages.append(Sample(_one_message, K, nbytes, there / 2))
            allreduces.append(Sample(ring, K, nbytes, max(around for _, _, around in rows)))
        try:
            return Measured(_fit(messages), _fit(allreduces), K, run.where)
        except ValueError:
            if not left:
                raise


def _fit(samples: list[Sample]) -> Fit:
    """The link. What disturbs a time makes it longer, so where all samples together determine none, the least disturbed
    of each size do; and where alpha is lost even there, the shortest messages, nearly all latency, give it."""
    try:
        return fit(samples)
    except ValueError:
        sizes = sorted({s.nbytes for s in samples})
        calm = [min((s for s in samples if s.nbytes == n), key=lambda s: s.seconds) for n in sizes]
    try:
        return fit(calm)
    except ValueError:
        short = calm[0]
        return fit(calm, alpha=short.seconds / terms(short.form, short.K, short.nbytes).messages)


def _clocked(comm: Comm, sizes: tuple[int, ...], rounds: int, repeats: int) -> list[tuple[int, float, float]]:
    """This rank's (bytes, seconds of a ping-pong, of an all-reduce) for every size, in every round."""
    import torch

    def least_s(way: Any, x: Any, times: int) -> float:
        spent = math.inf
        for i in range(1 + times):
            x.fill_(0)
            comm.barrier()
            begun = time.perf_counter()
            way(comm, x)
            if comm.device != "cpu":
                machine.gpu_module().synchronize()
            if i:  # the first one warms up
                spent = min(spent, time.perf_counter() - begun)
        return spent

    found = []
    for i in range(rounds):
        for nbytes in sizes:
            if nbytes > SIZES[-1] and i >= 3:
                continue
            x = torch.zeros(nbytes // 4, device=comm.device)
            times = repeats if nbytes < 1_000_000 else max(1, repeats // 5) if nbytes <= SIZES[-1] else 1
            there, around = least_s(_ping_pong, x, times), least_s(ring.allreduce_inplace, x, times)
            found.append((4 * len(x), there, around))
    return found
