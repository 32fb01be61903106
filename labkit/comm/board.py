"""The blackboard: what each worker process is doing, in memory that all of them and the launcher share.

It carries no data of the algorithm. It lets the launcher say *who* is to blame when a group stands still, and lets the
two ends of a message see before any harm that they disagree on its size. A few integers per operation; a worker writes
only its own rows, and the counters only grow, so no lock is needed: a reader that sees an old value sees an old truth.

Rows of int64: state (op, peer, sequence number, synchronisation points, inside, start stamp), one counter per
ordered pair and direction of messages posted, the sizes of the last ``WINDOW`` of them, and the texts of the last
``POINTS`` synchronisation points.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from labkit.comm.base import DTYPES, Described
from labkit.comm.diagnose import (
    ANY,
    FINISHED,
    MEETING,
    RECEIVING,
    RUNNING,
    SENDING,
    State,
    odd_ones,
)

WINDOW, POINTS, TEXT = 16, 8, 88
_STATE, _SLOT = 8, 2 + TEXT // 8
OP, PEER, SEQ, POINT, INSIDE, READY, ANY_N, ANY_TYPE = range(8)


def words(K: int) -> int:
    """How many int64 a board for K workers takes."""
    return K * _STATE + 2 * K * K * (1 + 2 * WINDOW) + K * POINTS * _SLOT


@lru_cache(maxsize=256)
def label(name: str, size: Described | None) -> bytes:
    """What a rank brings to a synchronisation point, as the board stores it."""
    return (name if size is None else f"{name} of {size}").encode()[:TEXT].ljust(TEXT, b"\0")


class Board:
    """A view of the shared words. ``rank`` is the row this process writes (-1: the launcher only reads)."""

    def __init__(self, raw: Any, K: int, rank: int = -1) -> None:
        self.K, self.rank = K, rank
        self._bytes = memoryview(raw).cast("B")
        self._q = self._bytes.cast("q")
        self._pairs = K * _STATE
        self._points = self._pairs + 2 * K * K * (1 + 2 * WINDOW)
        self._mine = rank * _STATE
        both = [(op, peer) for op in (SENDING, RECEIVING) for peer in range(K)]
        self._posts = {(op, peer): self._pair(op, rank, peer) for op, peer in both}
        self._others = {(op, peer): self._pair(SENDING + RECEIVING - op, peer, rank) for op, peer in both}

    def clear(self) -> None:
        """Forget the last run (by the launcher, while no worker runs)."""
        self._bytes[:] = bytes(len(self._bytes))

    # -- written by a worker ----------------------------------------------------------------------------------

    def ready(self, stamp_ns: int) -> None:
        """This worker stands at the start line."""
        self._q[self._mine + READY] = stamp_ns

    def started(self) -> int:
        """When the last worker reached the start line (ns), or 0 while one is still missing."""
        stamps = [self._q[k * _STATE + READY] for k in range(self.K)]
        return max(stamps) if all(stamps) else 0

    def post(self, op: int, peer: int, size: Described) -> tuple[int, Described | None]:
        """Note a message posted; returns its sequence number on this ordered pair and direction, and what the other
        end has brought if it is there already."""
        q, at = self._q, self._posts[op, peer]
        seq = q[at]
        slot = at + 1 + 2 * (seq % WINDOW)
        q[slot], q[slot + 1] = size.n, size.dtype
        q[at] = seq + 1
        return seq, self.other_end(op, peer, seq)

    def other_end(self, op: int, peer: int, seq: int) -> Described | None:
        """What the other end of message ``seq`` expects or sends, if it is known already."""
        q, at = self._q, self._others[op, peer]
        if op == SENDING and q[at] == seq and (code := q[peer * _STATE + ANY_TYPE]):
            return Described(q[peer * _STATE + ANY_N], code, 0)
        if not seq < q[at] <= seq + WINDOW:
            return None
        slot = at + 1 + 2 * (seq % WINDOW)
        return Described(q[slot], q[slot + 1], 0)

    def enter_any(self, size: Described) -> tuple[int, Described] | None:
        """This worker waits for a message from anyone; returns a rank that has posted one of another size, if any."""
        q, at = self._q, self._mine
        q[at + ANY_N], q[at + ANY_TYPE] = size.n, size.dtype
        self.enter(RECEIVING, ANY)
        for k in range(self.K):
            if k == self.rank:
                continue
            sent = self.other_end(RECEIVING, k, q[self._posts[RECEIVING, k]])
            if sent is not None and sent[:2] != size[:2]:
                return k, sent
        return None

    def leave_any(self, source: int, size: Described) -> int:
        """The message came from ``source``; returns its sequence number."""
        self.leave()
        self._q[self._mine + ANY_TYPE] = (
            0  # before the post, or the sender's next message would be compared with this one
        )
        return self.post(RECEIVING, source, size)[0]

    def enter(self, op: int, peer: int = -1, seq: int = 0) -> None:
        """This worker starts to wait."""
        q, at = self._q, self._mine
        q[at + PEER], q[at + SEQ] = peer, seq
        q[at + OP] = op

    def leave(self, op: int = RUNNING) -> None:
        """This worker goes on (or has finished)."""
        self._q[self._mine + OP] = op

    def arrive(self, point: int, text: bytes) -> bool:
        """Note arrival at a synchronisation point with ``label``'s text; False if a rank there brought something else."""
        q, at = self._q, self._slot(self.rank, point)
        q[at] = 0
        self._bytes[8 * at + 16 : 8 * at + 16 + TEXT] = text
        q[at] = point
        q[self._mine + POINT], q[self._mine + INSIDE] = point, 1
        for k in range(self.K):
            other = self._slot(k, point)
            if q[other] == point and self._bytes[8 * other + 16 : 8 * other + 16 + TEXT] != text:
                return False
        return True

    def depart(self) -> None:
        """This worker is through the synchronisation point."""
        self._q[self._mine + INSIDE] = 0

    # -- read by the launcher ---------------------------------------------------------------------------------

    def states(self) -> list[State]:
        """What every rank is doing, and whom it cannot go on without."""
        return [self._state(k) for k in range(self.K)]

    def _state(self, k: int) -> State:
        q, at = self._q, k * _STATE
        op, peer, seq, point, inside = q[at], q[at + PEER], q[at + SEQ], q[at + POINT], bool(q[at + INSIDE])
        peers: tuple[int, ...] = ()
        if op == RECEIVING and peer == ANY:
            others = tuple(j for j in range(self.K) if j != k)
            if not any(q[self._pair(SENDING, j, k)] > q[self._pair(RECEIVING, k, j)] for j in others):
                peers = others
        elif op in (SENDING, RECEIVING) and q[self._pair(SENDING + RECEIVING - op, peer, k)] <= seq:
            peers = (peer,)
        elif op == MEETING:
            peers = tuple(j for j in range(self.K) if q[j * _STATE + POINT] < point)
        return State(op, peers, point, self._text(k, point), inside and op != FINISHED)

    def mismatch(self) -> tuple[tuple[int, ...], str] | None:
        """The ranks and one sentence, if two ends of a message or a synchronisation point disagree."""
        reached = max(self._q[k * _STATE + POINT] for k in range(self.K))
        for point in range(max(1, reached - POINTS + 1), reached + 1):
            brought = {
                k: self._text(k, point) for k in range(self.K) if self._q[self._slot(k, point)] == point
            }
            if len(set(brought.values())) > 1:
                return odd_ones(point, brought)
        for i in range(self.K):
            for j in range(self.K):
                posted = self._q[self._pair(SENDING, i, j)]
                for seq in range(max(0, posted - WINDOW), posted):
                    sent, wanted = self._size(SENDING, i, j, seq), self._size(RECEIVING, j, i, seq)
                    if sent and wanted and sent[:2] != wanted[:2]:
                        return (i, j), f"rank {i} sends {sent} to rank {j}, which expects {wanted}"
        return None

    # -- where things stand -----------------------------------------------------------------------------------

    def _pair(self, op: int, rank: int, peer: int) -> int:
        return self._pairs + (((op == RECEIVING) * self.K + rank) * self.K + peer) * (1 + 2 * WINDOW)

    def _slot(self, rank: int, point: int) -> int:
        return self._points + (rank * POINTS + point % POINTS) * _SLOT

    def _size(self, op: int, rank: int, peer: int, seq: int) -> Described | None:
        at = self._pair(op, rank, peer)
        if not seq < self._q[at] <= seq + WINDOW:
            return None
        slot = at + 1 + 2 * (seq % WINDOW)
        n, dtype = self._q[slot], self._q[slot + 1]
        return Described(n, dtype if 0 <= dtype < len(DTYPES) else 0, 0)

    def _text(self, rank: int, point: int) -> str:
        at = self._slot(rank, point)
        if self._q[at] != point or point == 0:
            return ""
        return bytes(self._bytes[8 * at + 16 : 8 * at + 16 + TEXT]).rstrip(b"\0").decode(errors="replace")


class NoBoard(Board):
    """For workers that some other launcher started, perhaps on several machines: nothing is shared."""

    def __init__(self, K: int, rank: int) -> None:
        super().__init__(bytearray(8 * words(K)), K, rank)
