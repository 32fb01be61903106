"""A class on this machine: what runs, who is named when it does not, and what a stranger can't do."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path

import numpy as np
import pytest

from labkit import launch
from labkit.comm import Simulated
from labkit.comm.emulated import unavailable
from labkit_book.classroom import lesson
from labkit_book.classroom.line import MOST, Line
from labkit_book.classroom.room import Room
from labkit_book.classroom.seat import join

sys.path.insert(0, str(Path(__file__).parent))
import emulated_class

HERE = "127.0.0.1"
emulated = pytest.mark.skipif(unavailable() is not None, reason=f"no emulated network here: {unavailable()}")


@contextmanager
def soon(seconds=30):
    """`until(done)` waits at most so long."""

    def until(done):
        while not done():
            assert time.monotonic() < end, "it never came"
            time.sleep(0.02)

    end = time.monotonic() + seconds
    yield until


@pytest.fixture
def room():
    news = []
    room = Room(HERE, 0, tell=news.append)
    room.news = news
    yield room
    room.close()


@pytest.fixture
def student(room, monkeypatch):
    """student(name, ...): one who knows the word, played by the test, and what the room said in greeting."""
    monkeypatch.setattr("labkit_book.classroom.line.SILENT_S", 300)  # the test does not always listen
    doors = []

    def come(name="", at="", own=HERE, port=0, system="linux"):
        doors.append(socket.create_server((HERE, 0)))
        line = Line(socket.create_connection(room.address.split(":")), room.word, opens=False)
        line.say(name=name, room=at, system=system, own=own, port=port or doors[-1].getsockname()[1])
        return line, line.hear()["note"]

    yield come
    for door in doors:
        door.close()


@pytest.fixture
def laptops(room, started):
    """laptops(n): as many real ones more, each a process."""
    stack = []

    def join(n, driver=("-m", "labkit_book.classroom")):
        words = [*driver, "--join", room.address, room.word]
        for _ in range(n):
            stack.append(started([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        new = [each.__enter__() for each in stack[-n:]]
        before = len(room.here())
        with soon(120) as until:
            until(lambda: len(room.here()) >= before + n)
        return new

    yield join
    for each in stack:
        each.__exit__(None, None, None)


def run(room, number):
    """The experiment, in a thread; a list that gets its result or its error."""
    came = []

    def go():
        try:
            came.append(room.run(number))
        except Exception as error:
            came.append(error)

    threading.Thread(target=go, daemon=True).start()
    return came


@pytest.mark.parametrize("K", [1, 2, 3, 5, 8])
def test_each_program_brings_numbers_of_the_shape_that_the_list_says(K):
    for program, shape in lesson.EXPERIMENTS.values():
        for array in launch(program, K).results:
            assert array.shape == shape(K) and np.isfinite(array).all() and (array >= 0).all()


@pytest.mark.parametrize("rooms", [(0,), (0, 0, 0), (0, 1, 2), (0, 0, 1, 1, 1), (0, 0, 0, 1, 2, 2, 2)])
def test_two_levels_add_up_whoever_sits_where(rooms):
    def total(comm):
        lesson.two_levels(comm, x := np.full(7, 2.0**comm.rank))
        return x

    for x in launch(total, len(rooms), world=Simulated(hosts=rooms)).results:
        assert (x == 2 ** len(rooms) - 1).all()


RUBBISH = [b"", b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 1000]
RUBBISH += [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x14#CHALLENGE#{md5}ab"]


def test_a_stranger_gets_nowhere_and_nobody_else_notices(room, student, ran):
    student("Ada")
    for sent in RUBBISH:
        with socket.create_connection(room.address.split(":")) as sock:
            sock.sendall(sent)
    done = ran([sys.executable, "-m", "labkit_book.classroom", "--join", room.address, "another"], timeout=60)
    assert done.returncode == 1 and "does not know this word" in done.stderr
    with soon() as until:
        until(lambda: len(room.news) == 2 + len(RUBBISH))
    assert set(room.news) == {"Ada 0 is here", f"somebody at {HERE} came without the word"}
    assert [str(each) for each in room.here()] == ["Ada 0"]
    room.close()
    done = ran([sys.executable, "-m", "labkit_book.classroom", "--join", room.address, room.word], timeout=60)
    assert done.returncode == 1 and "a room that is not open" in done.stderr
    with pytest.raises(ConnectionError, match=r"no answer from .*99999"):
        join(f"{HERE}:99999", "word")


def test_a_class_of_two_measures_and_rooms_sit_together(room, student):
    with pytest.raises(ValueError, match="two students or more, here: 0"):
        room.run(1)
    lines = [student(name, at)[0] for name, at in (("Ada", "2"), ("", "1"), ("Bo\x1b[0m\n", "2"))]
    with pytest.raises(ValueError, match="one of 1, 2, 3, got 4"):
        room.run(4)
    came = run(room, 1)
    asked = [line.hear() for line in lines]
    assert [each["rank"] for each in asked] == [0, 2, 1] and asked[0]["rooms"] == [0, 0, 1]
    for line, each in zip(lines, asked, strict=True):
        line.say(run=each["run"], array=np.full((3, 2), each["rank"]).tolist())
    with soon() as until:
        until(lambda: came)
    assert came[0]["who"] == ["Ada 0", "Bo[0m 2", "laptop 1"] and np.array(came[0]["values"])[
        :, 0, 0
    ].tolist() == [0, 1, 2]
    assert json.loads(json.dumps(room.results)) == came


@pytest.mark.parametrize(
    "sent", [{"array": [[1, 2]]}, {"array": [[1, 2], [3, float("nan")]]}, {"array": [[1], [2, 3]]}, {"array": "no"},
             {"array": None}, {}, {"line": 1}, {"key": 1}, {"why": 1}, {"array": "9" * MOST},
             {"key": "0/1", "value": ""}, {"array": [["1", "-2"], [3, 4]]}],
)  # fmt: skip
def test_who_knows_the_word_and_sends_what_is_no_array_spoils_one_experiment_and_is_named(
    room, student, sent
):
    (bad, _), (good, _) = student("Mallory"), student("Ada")
    came, asked = run(room, 1), bad.hear()
    bad.say(run=asked["run"], **sent)
    with soon() as until:
        until(lambda: came)
    assert isinstance(came[0], RuntimeError) and "Mallory 0" in str(came[0])
    assert "why" in sent or "Mallory 0 sent what can't be read" in str(came[0])
    assert "Mallory" in (good.hear() and good.hear()["note"])
    assert [str(each) for each in room.here()] == ["Ada 1"] and not room.results


def test_who_floods_the_room_and_never_listens_holds_nobody_up(room, student, monkeypatch):
    (bad, _), (good, _) = student("Mallory"), student("Ada")
    came, asked = run(room, 1), bad.hear()
    threading.Thread(target=lambda: [good.hear() for _ in range(10**6)], daemon=True).start()
    monkeypatch.setattr("labkit_book.classroom.line.SILENT_S", 3)
    flood = lambda: [bad.say(run=asked["run"], key="0/0", value="0" * 100_000) for _ in range(400)]  # noqa: E731
    threading.Thread(target=flood, daemon=True).start()
    with soon() as until:
        until(lambda: came)
    assert "Mallory 0" in str(came[0])
    closing = threading.Thread(target=room.close)
    closing.start()
    closing.join(15)
    assert not closing.is_alive()


def test_who_can_t_be_reached_watches_and_hears_whose_firewall_it_may_be(room, student):
    with socket.create_server((HERE, 0)) as closed:
        port = closed.getsockname()[1]
    assert "translated addresses (10.1.2.3, 127.0.0.1)" in student("Ada", own="10.1.2.3")[1]
    said = student("Bo", port=port)[1]
    assert f"its port {port} takes no connection, most likely for its own firewall" in said
    assert "gloo does not talk across systems, and this room is of linux" in student("Cy", system="win32")[1]
    with soon() as until:
        until(lambda: len(room.news) == 3)
    assert not room.here() and any(line.startswith("Bo 1 can only watch: its port") for line in room.news)


@pytest.mark.processes
def test_a_closed_lid_and_a_killed_laptop_are_named_the_late_take_part_and_nothing_stays(room, laptops):
    asleep, killed, third = laptops(3)
    room.run(2)
    began = time.monotonic()
    asleep.send_signal(signal.SIGSTOP)
    with pytest.raises(RuntimeError, match=r"laptop \d is silent: a closed lid"):
        room.run(1)
    assert time.monotonic() - began < 10
    laptops(1)
    last, say = room.here()[-1], room.here()[-1].say
    last.say = lambda **said: time.sleep("number" in said) or say(**said)  # told after the others have met
    assert len(room.run(1)["who"]) == 3
    killed.kill()
    with soon() as until:
        until(lambda: any("has left" in line for line in room.news))
    assert len(room.run(3)["who"]) == 2
    room.close()
    assert third.wait(20) == 0 and "The room has closed." in third.stdout.read()


WATCHED = """
import multiprocessing.connection, pickle, runpy, sys, torch
def refuse(*_): raise SystemExit("unpickled")
pickle.loads = pickle.load = pickle.Unpickler = multiprocessing.connection._ForkingPickler.loads = refuse
sys.addaudithook(lambda event, _: refuse() if event == "pickle.find_class" else None)
runpy.run_module("labkit_book.classroom", run_name="__main__")
"""


@pytest.mark.processes
def test_no_byte_from_the_network_is_unpickled(room, laptops, monkeypatch):
    read, heard = connection.Connection.recv_bytes, defaultdict(list)
    monkeypatch.setattr(
        connection.Connection, "recv_bytes", lambda c, *most: heard[c].append(read(c, *most)) or heard[c][-1]
    )
    monkeypatch.setattr(connection._ForkingPickler, "loads", None)
    for laptop in (joined := laptops(2, ("-c", WATCHED))):
        assert laptop.poll() is None
    for number in lesson.EXPERIMENTS:
        room.run(number)
    messages = [heard[student.conn] for student in room.here()]
    assert len(messages) == len(joined) and sum(map(len, messages)) > 20
    for _answer, _challenge, welcome, *rest in messages:
        assert welcome == b"#WELCOME#" and all(json.loads(each) is not None for each in rest)


@pytest.mark.weekly
@pytest.mark.alone
@emulated
def test_thirty_take_three_minutes_at_most_and_their_links_foretell_the_sums(capsys):
    foretold, measured, seconds = emulated_class.main(30, 50)  # two cores can't carry 100 Mbit/s for each
    assert seconds < 180 and emulated_class.off(foretold, measured) < 0.25, capsys.readouterr().out
