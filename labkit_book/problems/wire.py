"""What travels between the grader and an answer's process: plain data, in a format that runs no code.

A frame is a tree in JSON and, behind it, the raw bytes of its arrays. Reading one makes numbers, text, containers and numpy
arrays of plain dtypes; nothing in it names a class to import or a function to call (where pickle would). What is not plain
becomes a ``Foreign``, which knows only the name of the type it was. Sizes are limited on both ends, for the writer may be
hostile.
"""

from __future__ import annotations

import array
import json
import struct
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

DEPTH = 24  # containers within containers
NODES = 100_000  # values in one frame, an array counting as one
KEYS = 10_000  # of all dicts and sets: keys can be made to collide, and each then costs as much as all before
DIGITS = 4096  # bits of a whole number
MOST_BYTES = 16_000_000  # of an answer
DIMENSIONS = 64  # of an array, as numpy has it
TREE_BYTES = 16_000_000  # of a tree as text
_KINDS = "biufcSU"  # dtypes whose bytes are all there is to them
_NUMBERS = (int, float, complex, np.number, Fraction, Decimal)
_SCALARS = (str, bytes, bytearray, int, float, complex, Fraction, Decimal)
_SEVERAL: dict[str, Any] = {"t": tuple, "l": (list, deque, array.array), "S": set, "F": frozenset}
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


class Unfit(ValueError):
    """What cannot travel: too large, too deep, or a frame that is none."""


class _Foreign:
    """Something that cannot travel, as the other end sees it."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class _Elsewhere(_Foreign):
    """What a function becomes at an end that has it not: something that cannot be called here."""

    def __call__(self, *_: Any) -> None:
        raise TypeError("this function is in the answer's process")


_Elsewhere.__name__ = "function"


def _foreign(name: str) -> _Foreign:
    """A stand-in for an object of the type ``name``, whose own type has that name, so that messages can say it."""
    known = name if isinstance(name, str) and name.isidentifier() and len(name) <= 40 else "object"
    return type(known, (_Foreign,), {})()


def encode(value: Any, functions: list[Callable[..., Any]] | None = None) -> bytes:
    """``value`` as a frame. functions: callables met are appended here and travel as their number in it; None: as Foreign.

    Raises Unfit for what is too large or too deep.
    """
    writer = _Writer(functions)
    tree = writer.tree(value, DEPTH)
    head = json.dumps([tree, [len(b) for b in writer.buffers]], separators=(",", ":")).encode()
    if len(head) > TREE_BYTES:
        raise Unfit(f"{len(head):,} bytes of text, where {TREE_BYTES:,} are the most")
    return b"".join([struct.pack(">I", len(head)), head, *writer.buffers])


def decode(frame: bytes, function: Callable[[int], Any] | None = None) -> Any:
    """What ``encode`` wrote. Raises Unfit for anything else.

    function: makes a callable from its number; None: it becomes something that cannot be called here.
    """
    try:
        (size,) = struct.unpack_from(">I", frame)
        if size > TREE_BYTES:
            raise Unfit(f"this is not a frame (a tree of {size:,} bytes)")
        head = frame[4 : 4 + size]
        if head.count(b"[") > 3 * NODES:  # containers cost far more memory than they have text
            raise Unfit("this is not a frame (too much of it)")
        tree, sizes = json.loads(head)
        reader = _Reader(memoryview(frame)[4 + size :], sizes, function)
        return reader.value(tree, DEPTH)
    except Unfit:
        raise
    except Exception as error:  # whatever a hostile writer made the parsers stumble over
        raise Unfit(f"this is not a frame ({type(error).__name__})") from None


def as_sent(value: Any) -> Any:
    """An answer as it reaches a judge in another process. Raises Unfit for what cannot travel."""
    frame = encode(value, [])
    if len(frame) > MOST_BYTES:
        raise Unfit(f"a message of {len(frame):,} bytes, where {MOST_BYTES:,} are the most")
    return decode(frame)


class _Writer:
    def __init__(self, functions: list[Callable[..., Any]] | None) -> None:
        self.functions, self.buffers, self.left = functions, list[bytes](), NODES

    def tree(self, v: Any, depth: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise Unfit(f"more than {NODES:,} values")
        if depth < 0:
            raise Unfit(f"containers nested more than {DEPTH} deep")
        if v is None or isinstance(v, bool):
            return v
        if isinstance(v, (np.generic, np.ndarray)):
            return self._array(v, depth)
        if isinstance(v, _SCALARS):
            return self._scalar(v)
        return self._container(v, depth)

    def _array(self, v: Any, depth: int) -> Any:
        if isinstance(v, np.generic):
            return ["s", v.dtype.str, self._buffer(v.tobytes())] if _plain(v.dtype) else _unknown(v)
        plain = np.asarray(v)
        if plain.dtype == object and all(isinstance(x, _NUMBERS) for x in plain.flat):  # fractions, say
            return self.tree(plain.tolist(), depth)
        if not _plain(plain.dtype):
            return ["?", f"{plain.dtype.name.split('[')[0]}_array"]
        return ["a", plain.dtype.str, list(plain.shape), self._buffer(plain.tobytes())]

    def _scalar(self, v: Any) -> Any:
        if isinstance(v, int):
            return int(v) if v.bit_length() <= DIGITS else _unknown(v)
        if isinstance(v, str):
            return str(v)
        if isinstance(v, complex):
            return ["c", v.real, v.imag]
        if isinstance(v, (bytes, bytearray)):
            return ["b", self._buffer(bytes(v))]
        return float(v)

    def _container(self, v: Any, depth: int) -> Any:
        if v is Ellipsis:
            return ["..."]
        if isinstance(v, dict):
            return ["d", *(self.tree(part, depth - 1) for item in v.items() for part in item)]
        for tag, kinds in _SEVERAL.items():
            if isinstance(v, kinds):
                parts = [self.tree(part, depth - 1) for part in v]
                return [tag, *(sorted(parts, key=json.dumps) if tag in "SF" else parts)]
        if isinstance(v, range):
            return ["r", *(self.tree(i, depth) for i in (v.start, v.stop, v.step))]
        if isinstance(v, Iterator) or type(v) in _VIEWS:  # an endless one is stopped by the count
            return ["i", *(self.tree(part, depth - 1) for part in v)]
        if type(v).__module__.split(".", 1)[0] == "torch" and hasattr(v, "detach"):
            return self.tree(v.detach().cpu().numpy(), depth)
        if self.functions is not None and callable(v):
            self.functions.append(v)
            return ["f", len(self.functions) - 1]
        return _unknown(v)

    def _buffer(self, data: bytes) -> int:
        self.buffers.append(data)
        return len(self.buffers) - 1


class _Reader:
    def __init__(self, data: memoryview, sizes: list[int], function: Callable[[int], Any] | None) -> None:
        if len(sizes) > NODES or any(type(n) is not int or n < 0 for n in sizes) or sum(sizes) != len(data):
            raise Unfit("this is not a frame (its arrays don't fill it)")
        ends = accumulate(sizes)
        self.buffers = {i: data[end - n : end] for i, (n, end) in enumerate(zip(sizes, ends, strict=True))}
        self.function, self.left, self.keys = function, NODES, KEYS

    def value(self, tree: Any, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth < 0:
            raise Unfit("this is not a frame (too much of it)")
        if not isinstance(tree, list):
            if isinstance(tree, dict) or (type(tree) is int and tree.bit_length() > DIGITS):
                raise Unfit("this is not a frame (a value of no known kind)")
            return tree
        tag, *parts = tree
        if tag in ("t", "l", "S", "F", "i", "d"):
            if tag in "dSF":
                self.keys -= len(parts) // 2 if tag == "d" else len(parts)
            if self.keys < 0:
                raise Unfit(f"this is not a frame (more than {KEYS:,} keys)")
            values = [self.value(part, depth - 1) for part in parts]
            if tag == "d":
                return dict(zip(values[::2], values[1::2], strict=True))
            make: dict[str, Callable[..., Any]] = {"t": tuple, "l": list, "S": set, "F": frozenset, "i": iter}
            return make[tag](values)
        return self._leaf(tag, *parts)

    def _leaf(self, tag: str, *parts: Any) -> Any:
        if tag in ("a", "s"):
            return self._array(tag, *parts)
        if tag == "c":
            return complex(*parts)
        if tag == "b":
            return bytes(self._take(parts[0]))
        if tag == "r":
            made = range(*parts)
            return made if len(made) <= NODES else _foreign("range")
        if tag == "f":
            return self.function(int(parts[0])) if self.function else _Elsewhere()
        if tag == "...":
            return Ellipsis
        if tag == "?":
            return _foreign(parts[0])
        raise Unfit("this is not a frame (a value of no known kind)")

    def _array(self, tag: str, *parts: Any) -> Any:
        code = str(parts[0])
        if len(code) > 16:  # numpy reads lists of types, and their shapes, at great length
            raise Unfit("this is not a frame (an array of no known dtype)")
        dtype = np.dtype(code)
        if not _plain(dtype):
            raise Unfit(f"this is not a frame (an array of {dtype})")
        data = self._take(parts[-1])
        if tag == "s":
            return np.frombuffer(data, dtype)[0].copy()
        endless = not data and max(parts[1]) > NODES  # rows, of no bytes
        if len(parts[1]) > DIMENSIONS or endless:
            raise Unfit("this is not a frame (an array of too many dimensions or rows)")
        return np.frombuffer(data, dtype).reshape([int(n) for n in parts[1]]).copy()

    def _take(self, number: Any) -> memoryview:
        """A buffer, once: many arrays made from the same bytes would fill any memory."""
        return self.buffers.pop(number)


def _plain(dtype: np.dtype) -> bool:
    return dtype.kind in _KINDS and 0 < dtype.itemsize <= DIGITS and dtype.names is None


def _unknown(v: Any) -> list[Any]:
    return ["?", type(v).__name__]
