"""What to say of a launch that failed: the error, the rank to blame, and where it was.

Reads the blackboard, the exit codes and the stacks that workers dump when they are asked to; decides nothing else.
"""

from __future__ import annotations

import linecache
import os
import signal
import traceback
from contextlib import suppress
from typing import Any

from labkit.comm.board import Board
from labkit.comm.diagnose import RUNNING, State, blame
from labkit.comm.errors import Deadlock, LaunchError, Mismatch, RankDied, RankError, RankTimeout, ranks_phrase


class Coroner:
    """Knows the workers of one pool. workers: their processes; dumps: where their stack traces arrive."""

    def __init__(self, K: int, board: Board, workers: list[Any], dumps: list[Any]) -> None:
        self.K, self._board, self._workers, self._dumps = K, board, workers, dumps

    def standstill(self, states: list[State]) -> RankError:
        """Nobody can go on."""
        found = self._board.mismatch()
        if found is not None:
            return Mismatch(found[1], found[0])
        ranks, sentence = blame(states)
        return Deadlock(sentence, ranks, self.where([k for k, s in enumerate(states) if s.stuck], "waits at"))

    def failure(self, failed: dict[int, tuple]) -> RankError:
        order = ["mismatch", "raised", "unpicklable", "exit", "lost"]
        k = min(failed, key=lambda k: (order.index(failed[k][0]), k))
        kind, message, frames, ranks = failed[k]
        found = self._board.mismatch()
        if kind == "mismatch":
            return Mismatch(found[1], found[0]) if found else Mismatch(message, ranks)
        if found is not None and kind in ("raised", "lost"):
            return Mismatch(found[1], found[0])
        together = sorted(j for j in failed if failed[j][:2] == (kind, message))
        who = ranks_phrase(together)
        return RankError(f"{who} {message}", tuple(together), _trace(frames, message))

    def death(self, k: int) -> RankError:
        self._workers[k].join(5)
        code = self._workers[k].exitcode
        found = self._board.mismatch()
        if found is not None:
            return Mismatch(found[1], found[0])
        trace = "".join(self.dump_of(k)) if code not in (0, -signal.SIGKILL) else ""
        if code is not None and code < 0:
            hint = "; the system may have run out of memory" if code == -signal.SIGKILL else ""
            how = f"was killed by {signal.Signals(-code).name} before it returned a result{hint}"
        elif code == 0:
            how = "exited with status 0 before it returned a result (os._exit?)"
        else:
            how = f"exited with status {code} before it returned a result"
        return RankDied(f"rank {k} {how}", (k,), trace)

    def late(self, missing: set[int], timeout_s: float) -> RankError:
        found = self._board.mismatch()
        if found is not None:
            return Mismatch(found[1], found[0])
        states = self._board.states()
        busy = sorted(k for k in missing if not states[k].stuck and states[k].op == RUNNING)
        if any(s.stuck for s in states):
            ranks, sentence = blame(states)
            busy = [k for k in ranks if states[k].op == RUNNING]
            if not busy:
                return RankTimeout(
                    f"{sentence} (deadline of {timeout_s:g} s)", ranks, self.where(ranks, "waits at")
                )
        who = busy or sorted(missing)
        stacks = self._stacks(who)
        # torch's own collectives leave no trace on the blackboard, but on the stack they do.
        waiting = [k for k in who if any("distributed_c10d.py" in line for line in stacks[k])]
        returned = sorted(set(range(self.K)) - missing)
        absent = [k for k in who if k not in waiting] or returned
        if waiting and absent:
            did = "was still running its own code" if absent != returned else "returned"
            return RankTimeout(
                f"{ranks_phrase(absent)} {did} without joining the torch.distributed call in which "
                f"{ranks_phrase(waiting)} wait{'s' * (len(waiting) == 1)} (deadline of {timeout_s:g} s)",
                tuple(absent),
                _told(stacks, "is at"),
            )
        was = "was" if len(who) == 1 else "were"
        return RankTimeout(
            f"{ranks_phrase(who)} {was} still running at the deadline of {timeout_s:g} s",
            tuple(who),
            _told(stacks, "is at"),
        )

    def no_start(self, missing: set[int], timeout_s: float) -> LaunchError:
        return LaunchError(f"{ranks_phrase(sorted(missing))} did not start within {timeout_s:g} s")

    def where(self, ranks: Any, verb: str) -> str:
        """Where ranks that are alive are, in lines to print."""
        return _told(self._stacks(ranks), verb)

    def _stacks(self, ranks: Any) -> dict[int, list[str]]:
        """The stacks of ranks that are alive, fetched with a signal; empty where there are no signals."""
        stacks: dict[int, list[str]] = {k: [] for k in ranks}
        for k in ranks:
            pid = self._workers[k].pid
            if pid is not None and hasattr(signal, "SIGUSR1"):
                with suppress(OSError):
                    os.kill(pid, signal.SIGUSR1)
                    stacks[k] = self.dump_of(k)
        return stacks

    def dump_of(self, k: int) -> list[str]:
        frames = []
        text = ""
        while self._dumps[k].poll(0.3):
            chunk = os.read(self._dumps[k].fileno(), 65536)
            if not chunk:
                break
            text += chunk.decode(errors="replace")
        for line in text.splitlines():
            # '  File "x.py", line 3 in f', the innermost first
            if line.startswith('  File "') and ", line " in line:
                file, _, rest = line[8:].rpartition('", line ')
                number, _, name = rest.partition(" in ")
                frames.append((file, int(number) if number.isdigit() else 0, name))
        frames = frames[::-1]
        own = next((i for i, f in enumerate(frames) if f[0].endswith("worker.py") and f[2] == "_run"), -1)
        return _lines(frames[own + 1 :])


def _told(stacks: dict[int, list[str]], verb: str) -> str:
    return "\n".join(f"rank {k} {verb}\n{''.join(lines)}" for k, lines in stacks.items() if lines)


def _trace(frames: list[tuple[str, int, str]], message: str) -> str:
    return (
        "Traceback in the worker (most recent call last):\n" + "".join(_lines(frames)) + message
        if frames
        else ""
    )


def _lines(frames: list[tuple[str, int, str]]) -> list[str]:
    """Frames with their source lines, which this process can look up even for notebook cells."""
    linecache.checkcache()
    return traceback.format_list(
        [traceback.FrameSummary(f, n, name, lookup_line=True) for f, n, name in frames]
    )
