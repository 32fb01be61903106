"""Who is to blame when a group of workers stands still, or a launch failed in another way, and what to say of it.

Each waiting rank points at the ranks it waits for. Following the arrows ends either at a rank that is not waiting
(it returned, or is busy with its own code): that one is missing; or in a circle: a deadlock that all its members share.

Of worker processes ``PostMortem`` reads the blackboard, the exit codes, and the stacks that they dump when asked to.
"""

from __future__ import annotations

import linecache
import os
import re
import signal
import traceback
from contextlib import suppress
from dataclasses import replace
from typing import Any

from labkit.comm.board import Board, State
from labkit.comm.errors import Deadlock, Mismatch, RankDied, RankError, RankTimeout, ranks_phrase
from labkit.comm.run import FINISHED, MEETING, RECEIVING, RUNNING, SENDING


def blame(states: list[State]) -> tuple[tuple[int, ...], str]:
    """The ranks to blame for what the stuck ranks wait for, and one sentence that says so."""
    states = [_still_hoping(s, states) for s in states]
    missing: set[int] = set()
    for k, s in enumerate(states):
        if s.stuck:
            missing |= _roots(states, k)
    if not missing:
        circle = _circle(states)
        chain = ", ".join(f"rank {k} {_doing(states[k])}" for k in circle)
        return tuple(sorted(circle)), (
            f"deadlock: {ranks_phrase(circle)} wait for one another in a circle ({chain}); "
            f"let one side of each pair receive first, or use sendrecv"
        )
    gone = {k for k in missing if states[k].op == FINISHED} or missing
    point, culprit = min((states[k].point, k) for k in gone)
    culprits = tuple(k for k in sorted(gone) if states[k].point == point)
    did = "returned without" if states[culprit].op == FINISHED else "did not come on without"
    waiting = [k for k, s in enumerate(states) if s.stuck]
    late = [k for k in waiting if states[k].inside and states[k].point > point]
    if late:
        s, wait = states[late[0]], "waits" if len(late) == 1 else "wait"
        return culprits, (
            f"{ranks_phrase(culprits)} {did} joining synchronisation point {s.point} ({s.name}), "
            f"in which {ranks_phrase(late)} {wait}"
        )
    k = next(k for k in waiting if culprit in states[k].peers)
    s = states[k]
    if s.op == RECEIVING and len(s.peers) > 1:
        what = f"sending what rank {k} waits to receive from any of them"
        return culprits, f"{ranks_phrase(culprits)} {did} {what}"
    what = f"sending what rank {k} waits to receive from it"
    if s.op == SENDING:
        what = f"receiving what rank {k} waits to send it"
    where = f", at synchronisation point {s.point} ({s.name})" if s.inside else ""
    return culprits, f"rank {culprit} {did} {what}{where}"


def _still_hoping(s: State, states: list[State]) -> State:
    """Who receives from anyone waits for those that have not returned, as long as there are any."""
    there = tuple(k for k in s.peers if states[k].op != FINISHED)
    return replace(s, peers=there) if s.op == RECEIVING and there else s


def _doing(s: State) -> str:
    if s.op == MEETING:
        return "waits in a barrier"
    if len(s.peers) > 1:
        return "waits to receive from anyone"
    return f"waits to {'send to' if s.op == SENDING else 'receive from'} rank {s.peers[0]}"


def _roots(states: list[State], k: int) -> set[int]:
    seen, todo, roots = {k}, [k], set()
    while todo:
        s = states[todo.pop()]
        for p in s.peers:
            if not states[p].stuck:
                roots.add(p)
            elif p not in seen:
                seen.add(p)
                todo.append(p)
    return roots


def _circle(states: list[State]) -> list[int]:
    k = next(k for k, s in enumerate(states) if s.stuck)
    path: list[int] = []
    while k not in path:
        path.append(k)
        k = states[k].peers[0]
    return path[path.index(k) :]


class PostMortem:
    """Knows the workers of one pool. workers: their processes; dumps: where their stack traces arrive."""

    def __init__(self, K: int, board: Board, workers: list[Any], dumps: list[Any]) -> None:
        self.K, self._board, self._workers, self._dumps = K, board, workers, dumps

    def standstill(self, states: list[State]) -> RankError:
        """Nobody can go on."""
        if (mismatch := self._board.mismatch()) is not None:
            return mismatch
        ranks, sentence = blame(states)
        stuck = [k for k, s in enumerate(states) if s.stuck]
        return Deadlock(sentence, ranks, _told(self._stacks(stuck), "waits at"))

    def failure(self, failed: dict[int, tuple]) -> RankError:
        """Ranks have said what went wrong: kind, sentence, frames, and the ranks to blame if the error knows them."""
        order = ["mismatch", "raised", "unpicklable", "exit", "lost"]
        k = min(failed, key=lambda k: (order.index(failed[k][0]), k))
        kind, message, frames, ranks = failed[k]
        if kind in ("mismatch", "raised", "lost") and (mismatch := self._board.mismatch()) is not None:
            return mismatch
        if kind == "mismatch":
            return Mismatch(message, ranks)
        same = tuple(j for j in failed if failed[j][:2] == (kind, message))
        head = "Traceback in the worker (most recent call last):\n"
        trace = head + "".join(_lines(frames)) + message if frames else ""
        return RankError(f"{ranks_phrase(same)} {message}", same, trace)

    def death(self, k: int) -> RankError:
        """The process of rank k has ended."""
        self._workers[k].join(5)
        code = self._workers[k].exitcode
        if (mismatch := self._board.mismatch()) is not None:
            return mismatch
        trace = "".join(self._dump_of(k)) if code not in (0, -signal.SIGKILL) else ""
        if code is not None and code < 0:
            hint = "; the system may have run out of memory" if code == -signal.SIGKILL else ""
            how = f"was killed by {signal.Signals(-code).name} before it returned a result{hint}"
        elif code == 0:
            how = "exited with status 0 before it returned a result (os._exit?)"
        else:
            how = f"exited with status {code} before it returned a result"
        return RankDied(f"rank {k} {how}", (k,), trace)

    def late(self, missing: set[int], timeout_s: float) -> RankError:
        """The deadline has passed without the results of the ranks ``missing``."""
        if (mismatch := self._board.mismatch()) is not None:
            return mismatch
        deadline = f"deadline of {timeout_s:g} s"
        states = self._board.states()
        busy = sorted(k for k in missing if not states[k].stuck and states[k].op == RUNNING)
        if any(s.stuck for s in states):
            ranks, sentence = blame(states)
            busy = [k for k in ranks if states[k].op == RUNNING]
            if not busy:
                return RankTimeout(f"{sentence} ({deadline})", ranks, _told(self._stacks(ranks), "waits at"))
        who = busy or sorted(missing)
        stacks = self._stacks(who)
        # torch's own collectives leave no trace on the blackboard, but on the stack they do.
        waiting = [k for k in who if any("distributed_c10d.py" in line for line in stacks[k])]
        returned = sorted(set(range(self.K)) - missing)
        absent = [k for k in who if k not in waiting] or returned
        if waiting and absent:
            did = "was still running its own code" if absent != returned else "returned"
            message = (
                f"{ranks_phrase(absent)} {did} without joining the torch.distributed call in which "
                f"{ranks_phrase(waiting)} wait{'s' * (len(waiting) == 1)} ({deadline})"
            )
            return RankTimeout(message, tuple(absent), _told(stacks, "is at"))
        was = "was" if len(who) == 1 else "were"
        message = f"{ranks_phrase(who)} {was} still running at the {deadline}"
        return RankTimeout(message, tuple(who), _told(stacks, "is at"))

    def _stacks(self, ranks: Any) -> dict[int, list[str]]:
        """The stacks of ranks that are alive, fetched with a signal; empty where there are no signals."""
        stacks: dict[int, list[str]] = {k: [] for k in ranks}
        for k in ranks:
            pid = self._workers[k].pid
            if pid is not None and hasattr(signal, "SIGUSR1"):
                with suppress(OSError):
                    os.kill(pid, signal.SIGUSR1)
                    stacks[k] = self._dump_of(k)
        return stacks

    def _dump_of(self, k: int) -> list[str]:
        """What faulthandler wrote for rank k, from the algorithm's first frame on."""
        text = ""
        while self._dumps[k].poll(0.3) and (chunk := os.read(self._dumps[k].fileno(), 65536)):
            text += chunk.decode(errors="replace")
        found = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', text, re.M)  # the innermost first
        frames = [(file, int(number), name) for file, number, name in reversed(found)]
        own = next((i for i, f in enumerate(frames) if f[0].endswith("worker.py") and f[2] == "_run"), -1)
        return _lines(frames[own + 1 :])


def _told(stacks: dict[int, list[str]], verb: str) -> str:
    return "\n".join(f"rank {k} {verb}\n{''.join(lines)}" for k, lines in stacks.items() if lines)


def _lines(frames: list[tuple[str, int, str]]) -> list[str]:
    """Frames with their source lines, which this process can look up even for notebook cells."""
    linecache.checkcache()
    return traceback.format_list([traceback.FrameSummary(*frame, lookup_line=True) for frame in frames])
