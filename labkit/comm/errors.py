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

    @classmethod
    def of_message(cls, source: int, to: int, sent: object, wanted: object) -> Mismatch:
        """The two ends of a message disagree. sent, wanted: what each brings, as it is to be printed."""
        return cls(f"rank {source} sends {sent} to rank {to}, which expects {wanted}", (source, to))

    @classmethod
    def at_point(cls, point: int, brought: dict[int, str]) -> Mismatch:
        """The ranks at a synchronisation point disagree: by majority, those outside the largest group of equals are to
        blame; where two groups are equally large, all are.

        brought: per rank, what it came with (``"ring all-reduce of 100 float32"``).
        """
        groups: dict[str, list[int]] = {}
        for k in sorted(brought):
            groups.setdefault(brought[k], []).append(k)
        ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
        tie = len(ordered[0][1]) == len(ordered[1][1])
        odd = tuple(k for _, ranks in (ordered if tie else ordered[1:]) for k in ranks)
        parts = [f"{ranks_phrase(r)} came to {what}" for what, r in reversed(ordered)]
        return cls(f"the ranks disagree at synchronisation point {point}: {', but '.join(parts)}", odd)


def text_of(error: object) -> str:
    """What an error says; nothing where its ``__str__`` fails, as anybody's may."""
    try:
        return str(error)
    except BaseException:  # whatever it is: to tell of the error matters more
        return ""


def described(error: BaseException) -> str:
    """``ValueError: what it says``; the type alone where it says nothing, or its ``__str__`` fails."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def ranks_phrase(ranks: list[int] | tuple[int, ...]) -> str:
    """``rank 2``, ``ranks 0 and 3``, ``ranks 0, 1 and 3``; more than six are shortened."""
    r = [str(k) for k in sorted(ranks)]
    if len(r) == 1:
        return f"rank {r[0]}"
    if len(r) > 6:
        return f"ranks {', '.join(r[:4])}, … and {r[-1]} ({len(r)} in all)"
    return f"ranks {', '.join(r[:-1])} and {r[-1]}"
