"""The line between two laptops: bounded messages of JSON, once both sides have shown that they know the word.

multiprocessing's Connection frames the bytes, and its challenge (an HMAC each way) shows the word without sending it. Its
``send`` and ``recv``, which pickle, are never called."""

import json
import socket
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

MOST = 1 << 17  #: bytes of one message
BEAT_S, SILENT_S, WORD_S = 1.0, 6.0, 30.0  #: seconds between signs of life; without any; to show the word


class Line:
    """One end. own, peer: both addresses, as this side sees them. opens: whether this side asks for the word first."""

    name, room, number, here = "", "", 0, False  # a student's: number by arrival, here for the next run

    def __init__(self, sock: socket.socket, word: str, opens: bool) -> None:
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.own, self.peer = sock.getsockname()[0], sock.getpeername()[0]
        self._sock, self._lock, self._heard = sock, threading.Lock(), time.monotonic()
        self._conn = Connection(sock.dup().detach())
        too_late = threading.Timer(WORD_S, self.close)
        too_late.start()
        try:
            for ask in (opens, not opens):
                (deliver_challenge if ask else answer_challenge)(self._conn, word.encode())
        finally:
            too_late.cancel()
        threading.Thread(target=self._beat, daemon=True).start()

    def __str__(self) -> str:
        return f"{self.name or 'laptop'} {self.number}"

    def say(self, **message: object) -> None:
        """Send a message; a line that takes none is closed."""
        try:
            with self._lock:
                self._conn.send_bytes(json.dumps(message).encode())
        except OSError:
            self.close()

    def hear(self) -> dict:
        """The next message. OSError or EOFError where the line has ended, another Exception for what is no message."""
        while not (message := json.loads(self._conn.recv_bytes(MOST))):
            self._heard = time.monotonic()
        return message

    def silent(self) -> bool:
        """Whether nothing has been heard for too long."""
        return time.monotonic() - self._heard > SILENT_S

    def close(self) -> None:
        """End the line; whoever hears it learns that."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _beat(self) -> None:
        while not self.silent():
            self.say()
            time.sleep(BEAT_S)
        self.close()
