"""The line between two laptops: bounded messages of JSON, once both have shown that they know the word, by the challenge (an
HMAC each way) of multiprocessing's Connection. Its ``send`` and ``recv``, which pickle, are never called."""

import json
import socket
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

MOST = 1 << 17  #: bytes of one message
BEAT_S, SILENT_S, WORD_S = 1.0, 6.0, 15.0  #: seconds between signs of life; without any; to show the word


class Line:
    """One end. own, peer: both addresses, as this side sees them; heard: when the other side last said that it is there.
    opens: whether this side asks for the word first."""

    name = room = system = ""
    number, here = 0, False  # by arrival; whether the next run counts on it

    def __init__(self, sock: socket.socket, word: str, opens: bool) -> None:
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.own, self.peer = sock.getsockname()[0], sock.getpeername()[0]
        self._sock, self._lock, self.heard = sock, threading.Lock(), time.monotonic()
        self.conn = Connection(sock.dup().detach())
        too_late = threading.Timer(WORD_S, self.close)
        too_late.start()
        try:
            for ask in (opens, not opens):
                (deliver_challenge if ask else answer_challenge)(self.conn, word.encode())
        finally:
            too_late.cancel()
        threading.Thread(target=self._beat, daemon=True).start()

    def __str__(self) -> str:
        return f"{self.name or 'laptop'} {self.number}"

    def say(self, **message: object) -> None:
        """Send a message; a line that takes none is closed."""
        # Where that takes so long, a message before this one is stuck.
        free = self._lock.acquire(timeout=SILENT_S)
        try:
            self.conn.send_bytes(json.dumps(message).encode()) if free else self.close()
        except OSError:
            self.close()
        if free:
            self._lock.release()

    def hear(self) -> dict:
        """The next message. OSError or EOFError where the line has ended, another Exception for what is no message."""
        while not (message := json.loads(self.conn.recv_bytes(MOST))):
            self.heard = time.monotonic()
        return message

    def close(self) -> None:
        """End the line; whoever hears it learns that."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _beat(self) -> None:
        while time.monotonic() - self.heard < SILENT_S:
            self.say()
            time.sleep(BEAT_S)
        self.close()
