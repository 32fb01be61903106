"""The teacher's side: who is here, what runs, and what became of it."""

import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np

from labkit_book.classroom.lesson import EXPERIMENTS
from labkit_book.classroom.line import BEAT_S, SILENT_S, Line

PORT, RUN_S, REACH_S = 29600, 300.0, 3.0  # seconds for one experiment, and for a laptop to take a connection


class Room:
    """An open room. address, word: what students need. results: what has been measured, each a dictionary of experiment,
    where, and by rank who, rooms and values (nested lists). host, port: where to listen; without host, at this machine's
    address on the network that leads to others (OSError where there is none). tell: is handed each line of news."""

    def __init__(self, host: str = "", port: int = PORT, tell: Callable[[str], None] = print) -> None:
        self.word = "".join(secrets.choice("bdfgklmnprstvz") + secrets.choice("aeiou") for _ in range(6))
        self.results: list[dict[str, Any]] = []
        self._tell, self._news = tell, threading.Condition()
        self._students: list[Line] = []  # all who have come, in this order
        # The run: its number, ranks, shape; by rank: what they have brought, how they have spoilt it, how they felt that.
        self._run, self._ranks, self._shape = 0, [], (0,)  # type: int, list[Line], tuple[int, ...]
        self._values, self._faults, self._felt = dict[Line, list](), dict[Line, str](), dict[Line, str]()
        if not host:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(("192.0.2.1", 9))  # for documentation only (RFC 5737), and nothing is sent
                host = probe.getsockname()[0]
        self._server = socket.create_server((host, port))
        self._server.settimeout(BEAT_S)  # so that a room that closes takes nobody in
        self.address = "{}:{}".format(*self._server.getsockname())
        threading.Thread(target=self._admit_all, daemon=True).start()

    def close(self) -> None:
        """Send everybody home."""
        self._server.close()
        for student in self._students:
            student.say(bye="The room has closed.")

    def here(self) -> list[Line]:
        """Who takes part in the next experiment, by rank: as they came, those of a room together."""
        there = [s for s in self._students if s.here]
        return sorted(there, key=lambda s: [other.room for other in there].index(s.room))

    def run(self, number: int) -> dict[str, Any]:
        """Run an experiment with all who are here; what it brought. RuntimeError if it failed: whose doing it was, and how.
        ValueError for a number that is not on the list, and for fewer than two students."""
        if number not in EXPERIMENTS:
            raise ValueError(f"number must be one of {', '.join(map(str, EXPERIMENTS))}, got {number!r}")
        program, shape = EXPERIMENTS[number]
        with self._news:
            if (K := len(ranks := self.here())) < 2:
                raise ValueError(f"an experiment takes two students or more, here: {K}")
            self._run, self._ranks, self._shape = self._run + 1, ranks, shape(K)
            self._values, self._faults, self._felt = {}, {}, {}
        named = list(dict.fromkeys(s.room for s in ranks))  # of one room: blocks of about the root of K ranks
        rooms = [named.index(s.room) if named[1:] else k // int(K**0.5) for k, s in enumerate(ranks)]
        for rank, student in enumerate(ranks):
            student.say(run=self._run, number=number, rank=rank, rooms=rooms)
        with self._news:
            self._news.wait_for(lambda: self._faults or self._felt or len(self._values) == K, RUN_S)
            if self._felt:  # who fell silent is missed before that is known
                self._news.wait_for(lambda: self._faults, SILENT_S + 2 * BEAT_S)
            self._run += 1  # what comes now comes too late
        if len(self._values) < K:
            late = [f"{s} did not finish" for s in ranks if s not in {**self._values, **self._felt}]
            why = "; ".join(self._faults.values() or late or self._felt.values())
            for student in ranks:
                student.say(note=f"It failed: {why}.")
            raise RuntimeError(f"{program.__name__} failed: {why}")
        result = {"experiment": program.__name__, "where": f"{K} laptops, {date.today()}", "rooms": rooms}
        self.results.append(result | {"who": [*map(str, ranks)], "values": [self._values[s] for s in ranks]})
        return self.results[-1]

    def _admit_all(self) -> None:
        while self._server.fileno() >= 0:
            try:
                threading.Thread(target=self._admit, args=self._server.accept(), daemon=True).start()
            except OSError:
                time.sleep(BEAT_S / 10)

    def _admit(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        """A laptop's stay, from its first byte to its last."""
        line, said = None, f"somebody at {peer[0]} came without the word"
        try:
            line = Line(sock, self.word, opens=True)
            self._seat(line, **line.hear())
            while self._server.fileno() >= 0:
                self._take(line, **line.hear())
        except Exception as error:  # whatever a stranger may bring about
            if line and (isinstance(error, EOFError) or getattr(error, "errno", None)):  # the system's own
                silent = time.monotonic() - line.heard > SILENT_S
                said = f"{line} {'is silent: a closed lid, or out of reach' if silent else 'has left'}"
            elif line:
                said = f"{line} sent what can't be read ({error}) and is left out"
                line.say(bye=f"The room says: {said}.")
        with self._news:
            if line:
                line.here = False
                line.conn.close()
            if line in self._ranks:
                self._faults[line] = said
            self._news.notify_all()
        sock.close()
        if self._server.fileno() >= 0:
            self._tell(said)

    def _seat(self, line: Line, own: str, port: int, **said: Any) -> None:
        """Give a place to who says hello."""
        for each in ("name", "room", "system"):
            setattr(line, each, "".join(c for c in str(said[each])[:30] if c.isprintable()))
        shut = "" if own == line.peer else f"translated addresses ({own!s:.45}, {line.peer}) keep others out"
        if self._students and line.system != self._students[0].system:
            shut = f"gloo does not talk across systems, and this room is of {self._students[0].system}"
        try:
            socket.create_connection((line.peer, port), REACH_S).close()
        except OSError:
            shut = shut or f"its port {port} takes no connection, most likely for its own firewall"
        with self._news:
            line.number, line.here = len(self._students), not shut
            self._students.append(line)
        line.say(note=f"You can only watch: {shut}." if shut else "You are in the room. Interrupt to leave.")
        self._tell(f"{line} can only watch: {shut}" if shut else f"{line} is here")

    def _take(self, line: Line, run: int, **said: Any) -> None:
        """One message of a student: an entry of the meeting place, why there is no array, or the array."""
        if run != self._run or line not in self._ranks:
            return  # of a run that is over
        if "key" in said:
            if not said["key"].endswith(f"/{self._ranks.index(line)}"):
                raise ValueError("an entry that is not its own")
            for each in self._ranks:
                each.say(run=run, key=said["key"], value=said["value"])
        elif "why" in said:
            (self._felt if said["felt"] else self._faults)[line] = (
                f"{line}: {said['why'].splitlines()[0]:.300}"
            )
        else:
            array = np.array(said["array"], float)
            if array.shape != self._shape or not (np.isfinite(array) & (array >= 0)).all():
                raise ValueError(
                    f"numbers of shape {array.shape}, not {self._shape}, or below 0, or not finite"
                )
            self._values[line] = array.tolist()
        with self._news:
            self._news.notify_all()
