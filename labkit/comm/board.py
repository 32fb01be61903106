"""The blackboard: what each worker process is doing, in memory that all of them and the launcher share.

It lets the launcher say *who* is to blame when a group stands still, and lets the two ends of a message see before any harm
that they disagree on its size. A worker writes only its own rows, and the counters only grow, so no lock is needed.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from labkit.comm.base import Described
from labkit.comm.errors import Mismatch
from labkit.comm.run import FINISHED, MEETING, OPPOSITE, RECEIVING, RUNNING, SENDING

ANY = -1  # the peer of a receive from anyone

WINDOW, POINTS, TEXT = 16, 8, 88
# A rank's state: what it does, with whom, the number of that message; how many synchronisation points it has reached, and
# whether it is inside the last; when it was ready to start.
OP, PEER, SEQ, POINT, INSIDE, READY = range(6)


@dataclass(frozen=True)
class State:
    """What one rank is doing.

    op: RUNNING, SENDING, RECEIVING, MEETING (in a barrier) or FINISHED. peers: the ranks it cannot go on without (one of
    them is enough for a receive from anyone). point: how many synchronisation points it has reached; name: of the last one.
    """

    op: int
    peers: tuple[int, ...] = ()
    point: int = 0
    name: str = ""
    inside: bool = False

    @property
    def stuck(self) -> bool:
        return bool(self.peers) and self.op in (SENDING, RECEIVING, MEETING)


class Board:
    """A view of ``words(K)`` shared words, ``raw``. rank: the row this process writes (-1: the launcher only reads)."""

    def __init__(self, raw: Any, K: int, rank: int = -1) -> None:
        self.K, self.rank = K, rank
        self._words = np.frombuffer(raw, np.int64)
        parts = self._words.view(_layout(K))[0]
        # By rank: what it does; what it takes from anyone; the last synchronisation points, and what it brought there.
        self._state, anyone, self._reached, self._texts, *of_messages = parts
        # Each message reads and writes a dozen words: a memoryview takes a quarter of the time that numpy takes for one.
        self._mine, self._anyone = self._state[rank].data, anyone.data
        # By rank and peer: how many messages have been posted, and the sizes of the last.
        views = [each.data for each in of_messages]
        self._posted = dict(zip((SENDING, RECEIVING), views[:2], strict=True))
        self._sizes = dict(zip((SENDING, RECEIVING), views[2:], strict=True))

    @staticmethod
    def words(K: int) -> int:
        """How many int64 a board for K workers takes."""
        return _layout(K).itemsize // 8

    def clear(self) -> None:
        """Forget the last run (by the launcher, while no worker runs)."""
        self._words[:] = 0

    def ready(self, stamp_ns: int) -> None:
        """This worker stands at the start line."""
        self._mine[READY] = stamp_ns

    def started(self) -> int:
        """When the last worker reached the start line (ns), or 0 while one is still missing."""
        stamps = self._state[:, READY].tolist()
        return max(stamps) if all(stamps) else 0

    def post(self, op: int, peer: int, size: Described) -> int:
        """Note a message posted; returns its number on this ordered pair and direction. Mismatch if the other end has
        brought something else."""
        posted, rank = self._posted[op], self.rank
        seq = posted[rank, peer]
        for i, word in enumerate(size):
            self._sizes[op][rank, peer, seq % WINDOW, i] = word
        posted[rank, peer] = seq + 1
        other = self._size(OPPOSITE[op], peer, rank, seq)
        if op == SENDING and self._posted[RECEIVING][peer, rank] == seq:
            # It may be waiting for anyone.
            other = Described(*(self._anyone[peer, i] for i in range(3)))
        if other.dtype and other != size:
            if op == SENDING:
                raise Mismatch.of_message(self.rank, peer, size, other)
            raise Mismatch.of_message(peer, self.rank, other, size)
        return seq

    def enter_any(self, size: Described) -> None:
        """This worker waits for a message from anyone; Mismatch if a rank has posted one of another size."""
        for i in (0, 2, 1):  # the dtype last: it says that the others are there
            self._anyone[self.rank, i] = size[i]
        self.enter(RECEIVING, ANY)
        for k in range(self.K):
            seq = self._posted[RECEIVING][self.rank, k]
            sent = self._size(SENDING, k, self.rank, seq)
            if sent.dtype and sent != size:
                raise Mismatch.of_message(k, self.rank, sent, size)

    def leave_any(self, source: int, size: Described) -> int:
        """The message came from ``source``; returns its number."""
        self.leave()
        # First, or the sender's next message would be compared with this one.
        self._anyone[self.rank, 1] = 0
        return self.post(RECEIVING, source, size)

    def enter(self, op: int, peer: int = ANY, seq: int = 0) -> None:
        """This worker starts to wait."""
        self._mine[PEER] = peer
        self._mine[SEQ] = seq
        self._mine[OP] = op

    def leave(self, op: int = RUNNING) -> None:
        """This worker goes on (or has finished)."""
        self._mine[OP] = op

    def arrive(self, point: int, name: str, size: Described | None) -> bool:
        """Note arrival at a synchronisation point, and what with; False if a rank there brought something else."""
        slot, text = point % POINTS, _label(name, size)
        # Nobody is to read the text while it is written.
        self._reached[self.rank, slot] = 0
        self._texts[self.rank, slot] = text
        self._reached[self.rank, slot] = point
        self._mine[POINT] = point
        self._mine[INSIDE] = 1
        reached = enumerate(self._reached[:, slot].tolist())
        return all(self._texts[k, slot] == text for k, at in reached if at == point)

    def depart(self) -> None:
        """This worker is through the synchronisation point."""
        self._mine[INSIDE] = 0

    def states(self) -> list[State]:
        """What every rank is doing, and whom it cannot go on without."""
        found = []
        for k, (op, peer, seq, point, inside, _) in enumerate(self._state.tolist()):
            peers = self._missing(k, op, peer, seq)
            name = self._text(k, point) if point else ""
            there = bool(inside) and op != FINISHED
            found.append(State(op, peers, point, name, there))
        return found

    def _missing(self, k: int, op: int, peer: int, seq: int) -> tuple[int, ...]:
        """The ranks that rank k cannot go on without."""
        others = tuple(j for j in range(self.K) if j != k)
        if op == MEETING:
            points = self._state[:, POINT]
            return tuple(j for j in others if points[j] < points[k])
        if op not in OPPOSITE:
            return ()
        sent, received = self._posted[SENDING], self._posted[RECEIVING]
        if peer == ANY:
            came = any(sent[j, k] > received[k, j] for j in others)
            return () if came else others
        return (peer,) if self._posted[OPPOSITE[op]][peer, k] <= seq else ()

    def mismatch(self) -> Mismatch | None:
        """What is wrong, if the ranks disagree at a synchronisation point."""
        for point in np.unique(self._reached).tolist():
            there, _ = np.nonzero(self._reached == point)
            brought = {k: self._text(k, point) for k in there.tolist() if point}
            if len(set(brought.values())) > 1:
                return Mismatch.at_point(point, brought)
        return None

    def _size(self, op: int, rank: int, peer: int, seq: int) -> Described:
        """Size of the message ``seq`` that ``rank`` has posted; of no dtype if it is not one of the last."""
        if not seq < self._posted[op][rank, peer] <= seq + WINDOW:
            return Described(0, 0, 0)
        sizes, slot = self._sizes[op], seq % WINDOW
        return Described(*(sizes[rank, peer, slot, i] for i in range(3)))

    def _text(self, rank: int, point: int) -> str:
        """What ``rank`` brought to a synchronisation point, one of the last."""
        return bytes(self._texts[rank, point % POINTS]).decode(errors="replace")


def _layout(K: int) -> np.dtype:
    """Of the parts of a board, as it names them; all of them whole words."""
    by_rank = f"({K},6)i8, ({K},3)i8, ({K},{POINTS})i8, ({K},{POINTS})S{TEXT}"
    sizes = f"({K},{K},{WINDOW},3)i8"
    return np.dtype(f"{by_rank}, ({K},{K})i8, ({K},{K})i8, {sizes}, {sizes}")


@lru_cache(maxsize=256)
def _label(name: str, size: Described | None) -> bytes:
    """What a rank brings to a synchronisation point, as the board stores it."""
    return (name if size is None else f"{name} of {size}").encode()[:TEXT]
