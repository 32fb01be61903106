"""The blackboard: what each worker process is doing, in memory that all of them and the launcher share.

It carries no data of the algorithm. It lets the launcher say *who* is to blame when a group stands still, and lets the
two ends of a message see before any harm that they disagree on its size. A few integers per operation; a worker writes
only its own rows, and the counters only grow, so no lock is needed: a reader that sees an old value sees an old truth.

Rows of int64: state (op, peer, sequence number, synchronisation points, inside, start stamp), one counter per
ordered pair and direction of messages posted, the sizes of the last ``WINDOW`` of them, and the texts of the last
``POINTS`` synchronisation points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from labkit.comm.base import DTYPES, Described
from labkit.comm.errors import Mismatch
from labkit.comm.run import FINISHED, MEETING, RECEIVING, RUNNING, SENDING

ANY = -1  # the peer of a receive from anyone

WINDOW, POINTS, TEXT = 16, 8, 88
_STATE, _SLOT = 8, 2 + TEXT // 8
OP, PEER, SEQ, POINT, INSIDE, READY, ANY_N, ANY_TYPE = range(8)


@dataclass(frozen=True)
class State:
    """What one rank is doing.

    op: one of RUNNING, SENDING, RECEIVING, MEETING (in a barrier), FINISHED.
    peers: the ranks it cannot go on without (empty: nothing is missing, it will go on by itself). A receive from
        anyone names all that may still come, and one of them is enough.
    point: how many synchronisation points it has reached; name: of the last one; inside: whether it is still in it.
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
    """A view of the shared words. ``rank`` is the row this process writes (-1: the launcher only reads).

    raw: None for workers that share nothing with a launcher of ours: this one's own words, which nobody else reads.
    """

    def __init__(self, raw: Any, K: int, rank: int = -1) -> None:
        self.K, self.rank = K, rank
        self._bytes = memoryview(bytearray(8 * self.words(K)) if raw is None else raw).cast("B")
        self._q = self._bytes.cast("q")
        self._pairs = K * _STATE
        self._points = self._pairs + 2 * K * K * (1 + 2 * WINDOW)
        self._mine = rank * _STATE
        both = [(op, peer) for op in (SENDING, RECEIVING) for peer in range(K)]
        self._posts = {(op, peer): self._pair(op, rank, peer) for op, peer in both}
        self._others = {(op, peer): self._pair(SENDING + RECEIVING - op, peer, rank) for op, peer in both}

    @staticmethod
    def words(K: int) -> int:
        """How many int64 a board for K workers takes."""
        return K * _STATE + 2 * K * K * (1 + 2 * WINDOW) + K * POINTS * _SLOT

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
        return self._size(at, seq)

    def enter_any(self, size: Described) -> Mismatch | None:
        """This worker waits for a message from anyone; returns what is wrong if a rank has posted one of another size."""
        q, at = self._q, self._mine
        q[at + ANY_N], q[at + ANY_TYPE] = size.n, size.dtype
        self.enter(RECEIVING, ANY)
        for k in range(self.K):
            if k != self.rank:
                sent = self.other_end(RECEIVING, k, q[self._posts[RECEIVING, k]])
                if sent is not None and sent[:2] != size[:2]:
                    return Mismatch.of_message(k, self.rank, sent, size)
        return None

    def leave_any(self, source: int, size: Described) -> None:
        """The message came from ``source``."""
        self.leave()
        # Before the post, or the sender's next message would be compared with this one.
        self._q[self._mine + ANY_TYPE] = 0
        self.post(RECEIVING, source, size)

    def enter(self, op: int, peer: int = ANY, seq: int = 0) -> None:
        """This worker starts to wait."""
        q, at = self._q, self._mine
        q[at + PEER], q[at + SEQ] = peer, seq
        q[at + OP] = op

    def leave(self, op: int = RUNNING) -> None:
        """This worker goes on (or has finished)."""
        self._q[self._mine + OP] = op

    def arrive(self, point: int, name: str, size: Described | None) -> bool:
        """Note arrival at a synchronisation point, and what with; False if a rank there brought something else."""
        q, at, text = self._q, self._slot(self.rank, point), _label(name, size)
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
        op, peer, seq, point, inside = self._q[k * _STATE : k * _STATE + 5]
        peers: tuple[int, ...] = ()
        if op == RECEIVING and peer == ANY:
            others = tuple(j for j in range(self.K) if j != k)
            if all(self._posted(SENDING, j, k) <= self._posted(RECEIVING, k, j) for j in others):
                peers = others
        elif op in (SENDING, RECEIVING) and self._posted(SENDING + RECEIVING - op, peer, k) <= seq:
            peers = (peer,)
        elif op == MEETING:
            peers = tuple(j for j in range(self.K) if self._q[j * _STATE + POINT] < point)
        return State(op, peers, point, self._text(k, point), bool(inside) and op != FINISHED)

    def mismatch(self) -> Mismatch | None:
        """What is wrong, if two ends of a message or a synchronisation point disagree."""
        reached = max(self._q[k * _STATE + POINT] for k in range(self.K))
        for point in range(max(1, reached - POINTS + 1), reached + 1):
            there = [k for k in range(self.K) if self._q[self._slot(k, point)] == point]
            brought = {k: self._text(k, point) for k in there}
            if len(set(brought.values())) > 1:
                return Mismatch.at_point(point, brought)
        for i in range(self.K):
            for j in range(self.K):
                posted = self._posted(SENDING, i, j)
                for seq in range(max(0, posted - WINDOW), posted):
                    sent = self._size(self._pair(SENDING, i, j), seq)
                    wanted = self._size(self._pair(RECEIVING, j, i), seq)
                    if sent and wanted and sent[:2] != wanted[:2]:
                        return Mismatch.of_message(i, j, sent, wanted)
        return None

    # -- where things stand -----------------------------------------------------------------------------------

    def _pair(self, op: int, rank: int, peer: int) -> int:
        return self._pairs + (((op == RECEIVING) * self.K + rank) * self.K + peer) * (1 + 2 * WINDOW)

    def _posted(self, op: int, rank: int, peer: int) -> int:
        """How many messages ``rank`` has posted to or from ``peer``."""
        return self._q[self._pair(op, rank, peer)]

    def _size(self, at: int, seq: int) -> Described | None:
        """Size of message ``seq`` of the pair whose counter stands ``at``, if it is one of the last posted."""
        q = self._q
        if not seq < q[at] <= seq + WINDOW:
            return None
        slot = at + 1 + 2 * (seq % WINDOW)
        n, dtype = q[slot], q[slot + 1]
        return Described(n, dtype if 0 <= dtype < len(DTYPES) else 0, 0)

    def _slot(self, rank: int, point: int) -> int:
        return self._points + (rank * POINTS + point % POINTS) * _SLOT

    def _text(self, rank: int, point: int) -> str:
        at = self._slot(rank, point)
        if self._q[at] != point or point == 0:
            return ""
        return bytes(self._bytes[8 * at + 16 : 8 * at + 16 + TEXT]).rstrip(b"\0").decode(errors="replace")


@lru_cache(maxsize=256)
def _label(name: str, size: Described | None) -> bytes:
    """What a rank brings to a synchronisation point, as the board stores it."""
    return (name if size is None else f"{name} of {size}").encode()[:TEXT].ljust(TEXT, b"\0")
