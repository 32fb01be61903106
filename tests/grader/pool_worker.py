"""A worker with every bad habit, in a module that is quickly imported: each process of a pool imports it anew."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def worker():
    def answer(task):
        what, where = task
        if what == "die" or (what == "die once" and not Path(where).exists()):
            Path(where).touch()
            os._exit(3)
        if what == "hang":
            time.sleep(60)
        if what == "raise":
            raise RuntimeError("no")
        return what, os.getpid()

    yield answer


@contextmanager
def does_not_open():
    raise RuntimeError("no sandbox here")
    yield


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("worse")


@contextmanager
def does_not_open_or_say_why():
    raise Unspeakable
    yield
