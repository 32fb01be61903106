"""What can go wrong in a launch, each with the rank that is to blame.

``RankError.ranks`` never names a rank that merely waited for another one.
"""

from __future__ import annotations


class LaunchError(RuntimeError):
    """The launch could not be made, or did not come to its end. Nothing is left running."""


class RankError(LaunchError):
    """One or more ranks failed.

    ranks: those to blame, ascending.
    trace: where they were, as text to print (may be empty).

    >>> try:
    ...     launch(lambda comm: 1 / (comm.rank - 2), 4)
    ... except RankError as error:
    ...     print(error.ranks)
    (2,)
    """

    def __init__(self, message: str, ranks: tuple[int, ...] = (), trace: str = "") -> None:
        super().__init__(f"{message}\n\n{trace.rstrip()}" if trace.strip() else message)
        self.message = message
        self.ranks = tuple(sorted(ranks))
        self.trace = trace


class RankDied(RankError):
    """A worker process ended before it returned a result: killed, or left through exit."""


class Deadlock(RankError):
    """Ranks wait for something that can no longer happen.

    >>> def everybody_sends_first(comm):
    ...     comm.send(np.ones(1), 1 - comm.rank)
    ...     comm.recv(np.empty(1), 1 - comm.rank)
    >>> try:
    ...     launch(everybody_sends_first, 2)
    ... except Deadlock as error:
    ...     print(error.ranks)
    (0, 1)
    """


class RankTimeout(RankError, TimeoutError):
    """The deadline passed."""


class Mismatch(RankError):
    """Two ends of a message, or the ranks in a collective, disagree on how much of what is sent."""


def ranks_phrase(ranks: list[int] | tuple[int, ...]) -> str:
    """``rank 2``, ``ranks 0 and 3``, ``ranks 0, 1 and 3``; more than six are shortened."""
    r = [str(k) for k in sorted(ranks)]
    if len(r) == 1:
        return f"rank {r[0]}"
    if len(r) > 6:
        return f"ranks {', '.join(r[:4])}, … and {r[-1]} ({len(r)} in all)"
    return f"ranks {', '.join(r[:-1])} and {r[-1]}"
