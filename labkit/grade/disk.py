"""A disk whose power is cut at every moment: judges a list of operations that should save a file.

What it promises is what POSIX does (POSIX.1-2017, rename and fsync): a rename is one step, contents are on the disk once
they are synced, and names once their folder is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.grade.exercise import Wrong

MOST_STEPS = 50
_VERBS = {"write": 1, "sync": 1, "rename": 2, "remove": 1, "sync_folder": 0}  # how many names each takes


def atomic(name: str, there: bool) -> Callable[[Any], None]:
    """A judge of a list of operations that save ``name``. there: whether a checkpoint of that name is there before.

    Power is cut after every operation and within every write; of what was not synced, any part may be lost.
    """

    def judge(answer: Any) -> None:
        steps = [_operation(step) for step in _listed(answer)]
        if len(steps) > MOST_STEPS:
            raise Wrong(f"{len(steps)} steps are far more than it takes")
        if not any(verb == "write" for verb, *_ in steps):
            raise Wrong("nothing is written")
        for cut in range(len(steps) + 1):
            for half in (False, True) if cut < len(steps) and steps[cut][0] == "write" else (False,):
                ran, disk = steps[:cut], _Disk(name, there)
                for step in ran:
                    disk.do(step)
                if half:
                    disk.tear(steps[cut][1])
                when = (
                    "after the last step"
                    if cut == len(steps)
                    else f"{'in' if half else 'before'} step {cut + 1}"
                )
                _survives(disk.after_a_cut(name), there, cut == len(steps), when)

    return judge


def _survives(found: set[str], there: bool, finished: bool, when: str) -> None:
    if "torn" in found:
        raise Wrong(f"power cut {when}: part of a checkpoint can be found under its good name")
    if there and "missing" in found:
        raise Wrong(f"power cut {when}: the old checkpoint can be gone and the new one not there")
    if finished and found != {"new"}:
        raise Wrong(f"power cut {when}: the function has returned, and the new checkpoint can still be lost")


class _Disk:
    """Files as programs see them, and which contents and names the disk itself may have."""

    def __init__(self, name: str, there: bool) -> None:
        self.files = {name: "old"} if there else {}  # what a program sees
        self.synced: dict[str, bool] = {}  # whether a file's content is on the disk
        self.names: list[dict[str, tuple[str, bool]]] = [
            self._view()
        ]  # folders the disk may show after a cut

    def _view(self) -> dict[str, tuple[str, bool]]:
        return {f: (content, self.synced.get(f, True)) for f, content in self.files.items()}

    def do(self, operation: tuple[str, ...]) -> None:
        verb, *files = operation
        if verb != "write" and files and files[0] not in self.files:
            raise Wrong(f"{verb} of {files[0]!r}: there is no such file at that point")
        if verb == "write":
            self._put(files[0], "new", False)
        elif verb == "sync":
            self._put(files[0], self.files[files[0]], True)
        elif verb == "rename":
            self.files[files[1]] = self.files.pop(files[0])
            self.synced[files[1]] = self.synced.pop(files[0], True)
            self.names.append(self._view())
        elif verb == "remove":
            del self.files[files[0]]
            self.synced.pop(files[0], None)
            self.names.append(self._view())
        else:
            self.names = [self._view()]

    def _put(self, file: str, content: str, synced: bool) -> None:
        """Contents are changed in place: wherever the disk knows this file, it may show the change."""
        made = file not in self.files
        before = self.files.get(file)
        self.files[file], self.synced[file] = content, synced
        if made:
            self.names.append(self._view())
        for view in self.names:
            if file in view and (made or view[file][0] in (before, content)):
                view[file] = (content, synced)

    def tear(self, file: str) -> None:
        self._put(file, "torn", False)

    def after_a_cut(self, name: str) -> set[str]:
        """What may be found under ``name``: "old", "new", "torn" or "missing"."""
        found = set()
        for view in self.names:
            content, synced = view.get(name, ("missing", True))
            found |= {content} if synced else {content, "torn"}
        return found


def _listed(answer: Any) -> list[Any]:
    if not isinstance(answer, (list, tuple)):
        raise Wrong(f"return a list of operations, not {type(answer).__name__}")
    return list(answer)


def _operation(step: Any) -> tuple[str, ...]:
    words = (step,) if isinstance(step, str) else tuple(step) if isinstance(step, (list, tuple)) else ()
    if not words or words[0] not in _VERBS or len(words) != 1 + _VERBS[words[0]]:
        raise Wrong(
            f"{step!r} is not an operation of the list: see what may be done, and with how many names"
        )
    if not all(isinstance(word, str) and word for word in words):
        raise Wrong(f"{step!r} must be made of names")
    return words
