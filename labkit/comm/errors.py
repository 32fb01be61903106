"""What can go wrong in a launch, each with the rank that is to blame: never one that merely waited for another."""

from __future__ import annotations

from collections.abc import Iterable


class LaunchError(RuntimeError):
    """The launch could not be made, or did not come to its end. Nothing is left running."""


class RankError(LaunchError):
    """One or more ranks failed. ranks: those to blame, ascending. trace: where they were, as text (may be empty).

    >>> try:
    ...     launch(lambda comm: 1 / (comm.rank - 2), 4)
    ... except RankError as error:
    ...     print(error.ranks)
    (2,)
    """

    def __init__(
        self, message: str, ranks: tuple[int, ...] = (), trace: str = ""
    ) -> None:
        super().__init__(
            f"{message}\n\n{trace.rstrip()}" if trace.strip() else message
        )
        self.message = message
        self.ranks = tuple(sorted(ranks))
        self.trace = trace

    @staticmethod
    def phrase(ranks: Iterable[int]) -> str:
        """``rank 2``, ``ranks 0 and 3``, ``ranks 0, 1 and 3``; more than six are shortened."""
        *others, last = (str(k) for k in sorted(ranks))
        if not others:
            return f"rank {last}"
        if len(others) > 5:
            return f"ranks {', '.join(others[:4])}, … and {last} ({len(others) + 1} in all)"
        return f"ranks {', '.join(others)} and {last}"


class RankDied(RankError):
    """A worker process ended before it returned a result: killed, or left through exit."""


class Deadlock(RankError):
    """Ranks wait for something that can no longer happen."""


class RankTimeout(RankError, TimeoutError):
    """The deadline passed."""


class Mismatch(RankError):
    """Two ends of a message, or the ranks in a collective, disagree on how much of what is sent."""

    @classmethod
    def of_message(
        cls, source: int, to: int, sent: object, wanted: object
    ) -> Mismatch:
        """The two ends of a message disagree. sent, wanted: what each brings, as it is to be printed."""
        said = f"rank {source} sends {sent} to rank {to}, which expects {wanted}"
        return cls(said, (source, to))

    @classmethod
    def at_point(cls, point: int, brought: dict[int, str]) -> Mismatch:
        """The ranks at a synchronisation point disagree: those outside the largest group of equals are to blame, or, where
        two are equally large, all. brought: per rank, what it came with (``"ring all-reduce of 100 float32"``).
        """
        groups: dict[str, list[int]] = {}
        for k in sorted(brought):
            groups.setdefault(brought[k], []).append(k)
        largest, *others = sorted(groups, key=lambda what: -len(groups[what]))
        tie = len(groups[largest]) == len(groups[others[0]])
        wrong = [largest, *others] if tie else others
        came = (
            f"{cls.phrase(groups[what])} came to {what}"
            for what in [*others[::-1], largest]
        )
        said = f"the ranks disagree at synchronisation point {point}: {', but '.join(came)}"
        return cls(said, tuple(k for what in wrong for k in groups[what]))


def text_of(error: object) -> str:
    """What an error says; nothing where its ``__str__`` fails, as anybody's may."""
    try:
        return str(error)
    except BaseException:  # whatever it is: to tell of the error matters more
        return ""


def described(error: BaseException) -> str:
    """``ValueError: what it says``; the type alone where it says nothing, or its ``__str__`` fails."""
    return ": ".join(filter(None, [type(error).__name__, text_of(error)]))
