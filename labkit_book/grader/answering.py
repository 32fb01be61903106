"""What an answer's own process does: load the answer, and put to it the questions that come down the line.

Runs in a child of the fork server, isolated (``isolation``). It knows questions, and nothing of what is right. All
that it sends is decided by the answer, which may have rewritten any of this; so the grader believes none of it beyond "that
is its answer".
"""

from __future__ import annotations

import linecache
import socket
import struct
import sys
import threading
import traceback
import types
from typing import Any

from labkit.comm.errors import text_of
from labkit_book.grader.remote import RemoteComm
from labkit_book.problems import wire
from labkit_book.problems.asking import own_lines
from labkit_book.problems.check import Verdict, check, is_stub
from labkit_book.problems.exercise import Wrong
from labkit_book.problems.withheld import replace_inplace, withhold_inplace

SETUP, HELPERS, ANSWER = "<setup>", "<other cells>", "<answer>"


class Line:
    """The answer's end of the line to the grader. most: bytes in one message."""

    def __init__(self, sock: socket.socket, most: int) -> None:
        self.sock, self.most, self.lock = sock, most, threading.RLock()

    def send(self, message: dict[str, Any], functions: list[Any] | None = None) -> None:
        """Raises Unfit for what cannot travel."""
        frame = wire.encode(message, functions)
        if len(frame) > self.most:
            raise wire.Unfit(f"a message of {len(frame):,} bytes, where {self.most:,} are the most")
        self.sock.sendall(struct.pack(">Q", len(frame)) + frame)

    def receive(self, function: Any = None) -> Any:
        """The next message; ends this process when the grader is gone."""
        (size,) = struct.unpack(">Q", self._bytes(8))
        return wire.decode(self._bytes(size), function)

    def ask(self, message: dict[str, Any]) -> Any:
        """Ask the grader something in the middle of an answer. Returns the value, or raises what it says."""
        with self.lock:
            self.send({"op": "ask", **message})
            reply = self.receive()
        if reply["op"] == "refused":
            raise _exception(reply["type"], reply["message"])
        return reply.get("value")

    def _bytes(self, n: int) -> bytes:
        data = bytearray()
        while len(data) < n:
            some = self.sock.recv(min(n - len(data), 1 << 20))
            if not some:
                raise SystemExit
            data += some
        return bytes(data)


def live(line: Line) -> None:
    """Answer the grader until it hangs up."""
    answer = _Answer(line)
    while True:
        functions: list[Any] = []

        def proxy(number: int, functions: list[Any] = functions) -> Any:
            while len(functions) <= number:
                functions.append(_Proxy(line, len(functions)))
            return functions[number]

        order = line.receive(proxy)
        try:
            reply = answer.load(order) if order["op"] == "load" else answer.put(order)
        except BaseException as error:
            reply = _raised(error)
        try:
            line.send(reply, [])
        except wire.Unfit as error:
            line.send({"op": "unfit", "message": str(error)})
        except BaseException as error:
            line.send(_raised(error))


class _Proxy:
    """A function that the grader holds: called here, run there."""

    def __init__(self, line: Line, number: int) -> None:
        self.line, self.number = line, number

    def __call__(self, *args: Any) -> Any:
        return self.line.ask({"what": "function", "number": self.number, "args": args})


class _Answer:
    def __init__(self, line: Line) -> None:
        self.line = line
        self.value: Any = None

    def load(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run the setup and the answer's cells."""
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        names = module.__dict__
        stub = is_stub(order["source"], order["name"])
        replace_inplace(check, _quiet)
        for text, where in ((order["setup"], SETUP), (order["helpers"], HELPERS), (order["source"], ANSWER)):
            linecache.cache[where] = (len(text), None, text.splitlines(keepends=True), where)
        exec(compile(order["setup"], SETUP, "exec", dont_inherit=True), names)
        withhold_inplace(order["withheld"])
        exec(compile(order["helpers"], HELPERS, "exec", dont_inherit=True), names)
        before, after = names.get(order["name"]), ""
        try:
            exec(compile(order["source"], ANSWER, "exec", dont_inherit=True), names)
        except Exception as error:  # as in a notebook, what the cell had defined before is there
            if order["name"] not in names or names[order["name"]] is before:
                raise
            after = f"The cell raised {type(error).__name__}: {_text(error)}".removesuffix(": ")
        if order["name"] not in names:
            return {"op": "absent"}
        self.value = names[order["name"]]
        return {"op": "loaded", "callable": callable(self.value), "blank": self.value is None or self.value is ...,
                "stub": stub, "log": after}  # fmt: skip

    def put(self, order: dict[str, Any]) -> dict[str, Any]:
        """The answer itself, where it is a value; what the function returns, also as one of K workers; and its arguments as
        it left them.
        """
        value, args = self.value, order["args"]
        if order["op"] == "rank":
            comm = RemoteComm(self.line.ask, order["rank"], order["K"], tuple(order["hosts"]))
            value = value(comm, *args)
        elif order["op"] == "call":
            value = value(*args)
        return {"op": "answer", "value": value, "after": args}


def _quiet(id: str, *_: Any, **__: Any) -> Verdict:
    """What a ``check`` left in a cell does here: nothing."""
    return Verdict(str(id), "not checked here: the grader asks by itself", "todo", 0, 0)


def _raised(error: BaseException) -> dict[str, Any]:
    """What happened in the answer, as data."""
    own = own_lines(error)
    if isinstance(error, SyntaxError) and error.filename == ANSWER:
        own = f"\n  line {error.lineno}: {(error.text or '').strip()}"
    kind = next((name for name, types_ in _KINDS.items() if isinstance(error, types_)), "")
    try:
        trace = "".join(traceback.format_exception(error))[-4000:]
    except Exception:
        trace = ""
    return {"op": "raised", "type": type(error).__name__, "message": _text(error)[:1000], "lines": own[:1500],
            "trace": trace, "kind": kind}  # fmt: skip


_KINDS: dict[str, type[BaseException] | tuple[type[BaseException], ...]] = {
    "todo": NotImplementedError,
    "memory": MemoryError,
    "exit": (SystemExit, GeneratorExit),
    "withheld": Wrong,
    "unbound": UnboundLocalError,
    "name": NameError,
    "module": ModuleNotFoundError,
    "refused": PermissionError,
}


def _text(error: BaseException) -> str:
    return text_of(error.msg if isinstance(error, SyntaxError) else error)


def _exception(name: str, message: str) -> Exception:
    """The exception of that name: one of labkit's, or Python's own."""
    import builtins

    from labkit.comm import errors

    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = RuntimeError
    try:
        return kind(message)
    except TypeError:
        return RuntimeError(message)
