"""Several worker processes that take tasks from a list: one may die, or hang, and no task is lost with it.

Each worker is a fresh interpreter. It opens what it needs once (a grader with its fork server) and then answers one task
after another. A worker that dies or exceeds its time is replaced and its task given out once more; if that happens again,
the task is ``Lost``. Workers end when the process that started them does, however that ends.

Tried instead: pebble 5.2 (``ProcessPool``), 75 lines; CONTRIBUTING, *How an answer is graded*, says what it lacks.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Self

from labkit import checks
from labkit.comm.errors import described
from labkit.comm.netns import die_with_parent
from labkit_book.problems.asking import GraderFailure

Opened = Callable[[], AbstractContextManager[Callable[[Any], Any]]]


@dataclass(frozen=True)
class Lost:
    """A task without an answer, and why."""

    why: str


class _Worker:
    """A process that answers tasks, one at a time; as it comes it says whether it could open what it needs."""

    def __init__(self, opened: Opened) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_main, args=(theirs, opened))
        # ^C is for the grader: the new process inherits the block until it ignores it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def hear(self, limit_s: float | None = None) -> tuple[str, Any]:
        """What it says: ("ready", None), ("failed", why) or ("done", answer); ("lost", why) where nothing more comes."""
        try:
            if self.pipe.poll(limit_s):
                return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(timeout=5)
            return "lost", f"its grader died (exit code {self.process.exitcode})"
        return "lost", f"its grader was not through after {limit_s:.0f} s"

    def end(self) -> None:
        """End it, whatever it is at."""
        self.process.kill()
        self.process.join()


class Pool:
    """Workers, started when there is something to do, and gone at the end of the ``with``.

    opened: a function that can be pickled; each worker calls it once, and the context manager gives the function that
        answers tasks. jobs: workers at the same time, each served by a thread here. limit_s: seconds a single task may take.
    """

    def __init__(self, opened: Opened, jobs: int, limit_s: float = 900.0) -> None:
        self._opened, self._limit_s = opened, limit_s
        self._threads = ThreadPoolExecutor(checks.integer("jobs", jobs, 1))
        self._lock, self._closed = threading.Lock(), False
        self._workers, self._idle = list[_Worker](), list[_Worker]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:  # no worker starts from here on
            self._closed = True
        for w in self._idle:  # these close what they have opened
            w.pipe.close()
        for w in self._idle:
            w.process.join(timeout=5)
        for w in self._workers:
            w.end()
        self._threads.shutdown(cancel_futures=True)

    def work_off(self, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yields (number of the task, its answer or Lost) as they come.

        Raises GraderFailure if a worker cannot open what it needs.
        """
        numbers = {self._threads.submit(self._done, task): i for i, task in enumerate(tasks)}
        for done in as_completed(numbers):
            yield numbers[done], done.result()

    def _done(self, task: Any) -> Any:
        """The answer to a task; Lost if two workers could not give it."""
        why = ""
        for _ in range(2):
            worker = self._worker()
            with suppress(OSError):  # it has died meanwhile: it will be heard
                worker.pipe.send(task)
            kind, content = worker.hear(self._limit_s)
            if kind == "done":
                self._idle.append(worker)
                return content
            why = content
            worker.end()
        return Lost(why)

    def _worker(self) -> _Worker:
        """One that waits for a task, or a new one."""
        with self._lock:
            if self._closed:
                raise GraderFailure("the graders have been ended")
            if self._idle:
                return self._idle.pop()
            worker = _Worker(self._opened)
            self._workers.append(worker)
        kind, why = worker.hear()
        if kind == "ready":
            return worker
        raise GraderFailure(why if kind == "failed" else f"a grader could not start: {why}")


def _main(pipe: Connection, opened: Opened) -> None:
    if sys.platform == "linux":
        die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # Where nobody waits for us any more, what was opened is closed.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError), ExitStack() as stack:
        try:
            answer = stack.enter_context(opened())
        except Exception as error:
            pipe.send(("failed", described(error)))
            return
        pipe.send(("ready", None))
        while True:
            pipe.send(("done", _answered(answer, pipe.recv())))


def _answered(answer: Callable[[Any], Any], task: Any) -> Any:
    try:
        return answer(task)
    except Exception:
        return Lost(traceback.format_exc(limit=-4))
