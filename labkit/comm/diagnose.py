"""Who is to blame when a group of workers stands still, or a launch failed in another way, and what to say of it.

Each waiting rank points at those it waits for. The arrows end at a rank that is not waiting, which is missing, or in a
circle.
"""

import linecache
import os
import re
import signal
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from labkit.comm.board import Board, State
from labkit.comm.errors import Deadlock, Mismatch, RankDied, RankError, RankTimeout
from labkit.comm.run import FINISHED, MEETING, RECEIVING, RUNNING, SENDING


def blame(states: list[State]) -> tuple[tuple[int, ...], str]:
    """The ranks to blame for what the stuck ranks wait for, and one sentence that says so."""
    states = [_still_hoping(s, states) for s in states]
    waiting = [k for k, s in enumerate(states) if s.stuck]
    missing = {root for k in waiting for root in _roots(states, k)}
    if not missing:
        return _deadlock(states, _circle(states, waiting[0]))
    gone = {k for k in missing if states[k].op == FINISHED} or missing
    point, culprit = min((states[k].point, k) for k in gone)
    culprits = tuple(k for k in sorted(gone) if states[k].point == point)
    finished = states[culprit].op == FINISHED
    did = "returned without" if finished else "did not come on without"
    late = [k for k in waiting if states[k].inside and states[k].point > point]
    if late:
        s, wait = states[late[0]], "waits" if len(late) == 1 else "wait"
        at = f"synchronisation point {s.point} ({s.name}), in which {RankError.phrase(late)} {wait}"
        return culprits, f"{RankError.phrase(culprits)} {did} joining {at}"
    k = next(k for k in waiting if culprit in states[k].peers)
    s = states[k]
    if s.op == RECEIVING and len(s.peers) > 1:
        what = f"sending what rank {k} waits to receive from any of them"
        return culprits, f"{RankError.phrase(culprits)} {did} {what}"
    if s.op == SENDING:
        what = f"receiving what rank {k} waits to send it"
    else:
        what = f"sending what rank {k} waits to receive from it"
    where = f", at synchronisation point {s.point} ({s.name})" if s.inside else ""
    return culprits, f"rank {culprit} {did} {what}{where}"


def _deadlock(states: list[State], circle: list[int]) -> tuple[tuple[int, ...], str]:
    chain = ", ".join(f"rank {k} {_doing(states[k])}" for k in circle[:6])
    chain += ", …" * (len(circle) > 6)
    return tuple(sorted(circle)), (
        f"deadlock: {RankError.phrase(circle)} wait for one another in a circle ({chain}); "
        f"let one side of each pair receive first, or use sendrecv"
    )


def _still_hoping(s: State, states: list[State]) -> State:
    """Who receives from anyone waits for those that have not returned, as long as there are any."""
    there = tuple(k for k in s.peers if states[k].op != FINISHED)
    return replace(s, peers=there) if s.op == RECEIVING and there else s


def _doing(s: State) -> str:
    if s.op == MEETING:
        return "waits in a barrier"
    if len(s.peers) > 1:
        return "waits to receive from anyone"
    what = "send to" if s.op == SENDING else "receive from"
    return f"waits to {what} rank {s.peers[0]}"


def _roots(states: list[State], k: int) -> set[int]:
    """Those not waiting themselves for whom rank k waits, directly or through others."""
    seen, todo = {k}, [k]
    while todo:
        new = set(states[todo.pop()].peers) - seen
        seen |= new
        todo += [p for p in new if states[p].stuck]
    return {p for p in seen if not states[p].stuck}


def _circle(states: list[State], k: int) -> list[int]:
    """The circle that the waits of rank k end in."""
    path = []
    while k not in path:
        path.append(k)
        k = states[k].peers[0]
    return path[path.index(k) :]


class PostMortem:
    """What the workers of one pool leave: the board, exit codes, and the stacks that they dump when asked to.

    workers: their processes; dumps: where their stacks arrive.
    """

    def __init__(self, board: Board, workers: list[Any], dumps: list[Any]) -> None:
        self._board, self._workers, self._dumps = board, workers, dumps

    def standstill(self, states: list[State]) -> RankError:
        """Nobody can go on."""
        ranks, sentence = blame(states)
        stuck = [k for k, s in enumerate(states) if s.stuck]
        return Deadlock(sentence, ranks, _told(self._stacks(stuck), "waits at"))

    def failure(self, failed: dict[int, tuple]) -> RankError:
        """Ranks have said what went wrong: kind, sentence, frames, and the ranks to blame if the error knows them."""
        order = ["mismatch", "raised", "unpicklable", "exit", "lost"]
        k = min(failed, key=lambda k: (order.index(failed[k][0]), k))
        kind, message, frames, ranks = failed[k]
        if kind == "mismatch":
            return Mismatch(message, ranks)
        same = tuple(j for j in failed if failed[j][:2] == (kind, message))
        head = "Traceback in the worker (most recent call last):\n"
        trace = head + "".join(_lines(frames)) + message if frames else ""
        return RankError(f"{RankError.phrase(same)} {message}", same, trace)

    def death(self, k: int) -> RankError:
        """The process of rank k has ended."""
        self._workers[k].join(5)
        code = self._workers[k].exitcode or 0
        trace = "".join(self._dump_of(k)) if code not in (0, -signal.SIGKILL) else ""
        how = (
            f"exited with status {code}"
            if code >= 0
            else f"was killed by {signal.Signals(-code).name}"
        )
        hint = {
            0: " (os._exit?)",
            -signal.SIGKILL: "; the system may have run out of memory",
        }
        message = f"rank {k} {how} before it returned a result{hint.get(code, '')}"
        return RankDied(message, (k,), trace)

    def late(self, missing: set[int], timeout_s: float) -> RankError:
        """The deadline has passed without the results of the ranks ``missing``."""
        deadline = f"deadline of {timeout_s:g} s"
        states = self._board.states()
        busy = [k for k in sorted(missing) if states[k].op == RUNNING]
        if any(s.stuck for s in states):
            ranks, sentence = blame(states)
            busy = [k for k in ranks if states[k].op == RUNNING]
            if not busy:
                trace = _told(self._stacks(ranks), "waits at")
                return RankTimeout(f"{sentence} ({deadline})", ranks, trace)
        # These run their own code, or one of torch's own collectives, which the blackboard does not show.
        who = busy or sorted(missing)
        stacks = self._stacks(who)
        waiting = [k for k in who if "distributed_c10d.py" in "".join(stacks[k])]
        busy = [k for k in who if k not in waiting]
        absent = busy or [k for k in range(len(states)) if k not in missing]
        if waiting and absent:
            did = "was still running its own code" if busy else "returned"
            wait = "waits" if len(waiting) == 1 else "wait"
            call = f"the torch.distributed call in which {RankError.phrase(waiting)} {wait}"
            message = f"{RankError.phrase(absent)} {did} without joining {call} ({deadline})"
        else:
            absent, was = who, "was" if len(who) == 1 else "were"
            message = f"{RankError.phrase(who)} {was} still running at the {deadline}"
        return RankTimeout(message, tuple(absent), _told(stacks, "is at"))

    def _stacks(self, ranks: Iterable[int]) -> dict[int, list[str]]:
        """The stacks of ranks that are alive, fetched with a signal."""
        stacks: dict[int, list[str]] = {k: [] for k in ranks}
        for k in stacks:
            with suppress(OSError):
                os.kill(self._workers[k].pid, signal.SIGUSR1)
                stacks[k] = self._dump_of(k)
        return stacks

    def _dump_of(self, k: int) -> list[str]:
        """What faulthandler wrote for rank k, from the algorithm's first frame on."""
        text, dump = "", self._dumps[k]
        while dump.poll(0.3) and (chunk := os.read(dump.fileno(), 65536)):
            text += chunk.decode(errors="replace")
        frames: list[tuple[str, int, str]] = []
        for line in re.finditer(r'^  File "(.*)", line (\d+) in (.*)$', text, re.M):
            file, number, name = line.groups()  # the innermost first
            if name == "_run" and file.endswith("worker.py"):
                break
            frames.insert(0, (file, int(number), name))
        return _lines(frames)


def _told(stacks: dict[int, list[str]], verb: str) -> str:
    told = (
        f"rank {k} {verb}\n{''.join(lines)}" for k, lines in stacks.items() if lines
    )
    return "\n".join(told)


def _lines(frames: list[tuple[str, int, str]]) -> list[str]:
    """Frames with their source lines, which this process can look up even for notebook cells."""
    linecache.checkcache()
    return traceback.StackSummary.from_list(
        [(*frame, None) for frame in frames]
    ).format()
