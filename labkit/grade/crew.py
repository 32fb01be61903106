"""Several worker processes that take tasks from a list: one may die, or hang, and no task is lost with it.

Each worker is a fresh interpreter. It opens what it needs once (a grader with its sandbox) and then answers one task after
another. A worker that dies or exceeds its time is replaced and its task given out once more; if that happens
again, the task is ``Lost``. Workers end when the process that started them does, however that ends.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from labkit.comm.netns import die_with_parent

Opened = Callable[[], AbstractContextManager[Callable[[Any], Any]]]


@dataclass(frozen=True)
class Lost:
    """A task without an answer, and why."""

    why: str


class CrewError(Exception):
    """A worker could not even open what it needs; the message says why."""


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    task: int | None = None
    since_s: float = field(default_factory=time.monotonic)
    ready: bool = False


class Crew:
    """Workers, started when there is something to do, and gone at the end of the ``with``.

    opened: a function that can be pickled; each worker calls it once, and the context manager gives the function that
        answers tasks. jobs: workers at the same time. limit_s: seconds a single task may take.
    Raises ValueError if jobs is not positive.
    """

    def __init__(self, opened: Opened, jobs: int, limit_s: float = 900.0) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {jobs}")
        self._opened, self._jobs, self._limit_s = opened, jobs, limit_s
        self._workers: list[_Worker] = []
        self._queue: list[int] = []
        self._tries: list[int] = []
        self._context = multiprocessing.get_context("spawn")

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for w in self._workers:
            w.pipe.close()
        for w in self._workers:
            w.process.join(timeout=0 if w.task is not None or not w.ready else 5)
            _kill(w)

    def work_off(self, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yields (number of the task, its answer or Lost) as they come.

        Raises CrewError if a worker cannot open what it needs.
        """
        self._queue = list(range(len(tasks)))[::-1]
        self._tries = [0] * len(tasks)
        for w in self._workers:
            self._give(w, tasks)
        while self._queue or any(w.task is not None for w in self._workers):
            while self._queue and len(self._workers) < min(self._jobs, len(tasks)):
                self._workers.append(self._start())
            for pipe in wait([w.pipe for w in self._workers], timeout=0.2):
                yield from self._hear(next(w for w in self._workers if w.pipe is pipe), tasks)
            for w in [w for w in self._workers if w.task is not None]:
                if time.monotonic() - w.since_s > self._limit_s:
                    yield from self._bury(w, f"its grader was not through after {self._limit_s:.0f} s")

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_main, args=(theirs, self._opened))
        # ^C is for us: the new process inherits the block until it ignores it; ours, if it comes, comes a moment later.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return _Worker(process, ours)

    def _hear(self, w: _Worker, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        try:
            kind, content = w.pipe.recv()
        except (EOFError, OSError):
            w.process.join(timeout=5)
            yield from self._bury(w, f"its grader died (exit code {w.process.exitcode})")
            return
        if kind == "failed":
            raise CrewError(content)
        w.ready = True
        if w.task is not None:
            done, w.task = w.task, None
            self._give(w, tasks)
            yield done, content
        else:
            self._give(w, tasks)

    def _give(self, w: _Worker, tasks: Sequence[Any]) -> None:
        if self._queue and w.ready:
            w.task, w.since_s = self._queue.pop(), time.monotonic()
            with suppress(OSError):  # it died meanwhile: the next wait says so
                w.pipe.send(tasks[w.task])

    def _bury(self, w: _Worker, why: str) -> Iterator[tuple[int, Any]]:
        _kill(w)
        w.pipe.close()
        self._workers.remove(w)
        if not w.ready:
            raise CrewError(f"a grader could not start: {why}")
        if w.task is None:
            return
        self._tries[w.task] += 1
        if self._tries[w.task] < 2:
            self._queue.append(w.task)
        else:
            yield w.task, Lost(why)


def _kill(w: _Worker) -> None:
    if w.process.is_alive():
        w.process.kill()
    w.process.join()


def _main(pipe: Connection, opened: Opened) -> None:
    if sys.platform == "linux":
        die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # nobody waits for us any more
        try:
            context = opened()
            answer = context.__enter__()
        except Exception as error:
            pipe.send(("failed", f"{type(error).__name__}: {error}"))
            return
        try:
            pipe.send(("ready", None))
            while True:
                pipe.send(("done", _answered(answer, pipe.recv())))
        finally:
            context.__exit__(None, None, None)


def _answered(answer: Callable[[Any], Any], task: Any) -> Any:
    try:
        return answer(task)
    except Exception:
        return Lost(traceback.format_exc(limit=-4))
