"""What an answer's own process does: load the answer, and put to it the questions that come down the line.

Runs in a child of the fork server, behind its walls (``sandbox``). It knows questions, and nothing of what is right. All
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
from pathlib import Path
from typing import Any

from labkit.grade import wire
from labkit.grade.reading import Reading, read
from labkit.grade.remote import RemoteComm
from labkit.grade.withheld import Withheld, withhold_inplace

_PACKAGE = str(Path(__file__).parents[1])
SETUP, ANSWER = "<setup>", "<answer>"


class Line:
    """The child's end of the line to the grader. most: bytes in one message."""

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
            reply = getattr(answer, "do_" + order["op"])(order)
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
        self.line, self.value = line, None

    def do_load(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run the setup and the answer's cells."""
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        names = module.__dict__
        seen: Reading = read(order["source"], order["name"], tuple(order["withheld"]))
        withhold_inplace(tuple(order["withheld"]))
        quiet_checks_inplace()
        for text, where in ((order["setup"], SETUP), (order["source"], ANSWER)):
            linecache.cache[where] = (len(text), None, text.splitlines(keepends=True), where)
        exec(compile(order["setup"], SETUP, "exec", dont_inherit=True), names)
        before, after = names.get(order["name"]), ""
        try:
            exec(compile(order["source"], ANSWER, "exec", dont_inherit=True), names)
        except Exception as error:  # as in a notebook, what the cell had defined before is there
            if order["name"] not in names or names[order["name"]] is before:
                raise
            after = f"The cell raised {type(error).__name__}: {_text(error)}"
        if order["name"] not in names:
            return {"op": "absent"}
        self.value = names[order["name"]]
        return {"op": "loaded", "callable": callable(self.value), "blank": self.value is None or self.value is ...,
                "stub": seen.stub, "log": after}  # fmt: skip

    def do_value(self, order: dict[str, Any]) -> dict[str, Any]:
        """The answer itself, where it is a value."""
        return {"op": "answer", "value": self.value, "after": ()}

    def do_call(self, order: dict[str, Any]) -> dict[str, Any]:
        """What the function returns, and its arguments as it left them."""
        value = self.value(*order["args"])  # type: ignore[misc]
        return {"op": "answer", "value": value, "after": order["args"]}

    def do_rank(self, order: dict[str, Any]) -> dict[str, Any]:
        """The same, as one of K workers."""
        comm = RemoteComm(self.line, order["rank"], order["K"], tuple(order["hosts"]))
        value = self.value(comm, *order["args"])  # type: ignore[misc]
        return {"op": "answer", "value": value, "after": order["args"]}


def quiet_checks_inplace() -> None:
    """A ``check`` left in a cell says nothing here: the grader asks by itself."""
    import labkit
    import labkit.grade as package
    import labkit.grade.check as module

    def check(id: str, *_: Any, **__: Any) -> Any:
        return module.Verdict(str(id), "not checked here: the grader asks by itself", "todo", 0, 0)

    for place in (labkit, package, module):
        place.check = check  # type: ignore[attr-defined]


def _raised(error: BaseException) -> dict[str, Any]:
    """What happened in the answer, as data."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_PACKAGE)]
    own = "".join(f"\n  line {f.lineno} of {f.name}: {f.line}" for f in frames[-3:] if f.line)
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
    "withheld": Withheld,
    "name": NameError,
    "module": ModuleNotFoundError,
    "refused": PermissionError,
}


def _text(error: BaseException) -> str:
    try:
        return str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:
        return ""


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
