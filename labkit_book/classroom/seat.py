"""A student's side: ``join`` holds the line to the room, and runs what it says, in a thread and a group of gloo's for each
run; one that failed is left to gloo's deadline. Ranks meet in the room, not in torch's TCPStore, which answers anybody."""

import socket
import sys
import threading
from datetime import timedelta
from multiprocessing import AuthenticationError

from torch.distributed import ProcessGroupGloo, Store

from labkit.comm.torch_comm import TorchComm
from labkit_book.classroom.lesson import EXPERIMENTS
from labkit_book.classroom.line import Line

REACH_S, MEET_S = 5.0, 60.0  # to connect; for all to meet, and for a message to come


class _Meeting(Store):
    """Where the ranks of a run meet, as torch asks for it: what one sets, the room hands to all."""

    def __init__(self, line: Line, run: int) -> None:
        super().__init__()
        self.line, self.run, self.known, self.news = line, run, dict[str, bytes](), threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        self.line.say(run=self.run, key=key, value=value.hex())

    def wait(self, keys: list[str], *_: object) -> None:
        with self.news:
            if not self.news.wait_for(lambda: self.known.keys() >= set(keys), MEET_S):
                raise ConnectionError("not all have come to meet")

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self.known[key]


def join(address: str, word: str, name: str = "", room: str = "") -> None:
    """Take part until the room closes, or this is interrupted. address, word: as the teacher shows them. name: for the
    pictures, by choice. room: at which of several rooms or switches this laptop is. Raises ValueError for an address that is
    none, ConnectionError that says why there is no way in."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"address must be like 192.168.1.5:29600, got {address!r}")
    try:
        line = Line(socket.create_connection((host, int(port)), REACH_S), word, opens=False)
    except AuthenticationError:
        raise ConnectionError(f"the room at {address} does not know this word") from None
    except (OSError, EOFError, OverflowError, AssertionError) as error:
        causes = "a room that is not open, a firewall, or a Wi-Fi that keeps guests apart"
        raise ConnectionError(f"no answer from {address} ({error}): {causes}") from None
    with socket.create_server((line.own, 0)) as door:  # for the room to see whether others reach this laptop
        line.say(name=name, room=room, system=sys.platform, own=line.own, port=door.getsockname()[1])
        try:
            _listen(line)
        except (OSError, EOFError):
            raise ConnectionError("the room is gone: closed, or out of reach") from None
        finally:
            line.close()


def _listen(line: Line) -> None:
    """Do what the room says, until it says goodbye."""
    meeting = _Meeting(line, 0)
    while True:
        heard = line.hear()
        # What the first ranks set may come before this one is told of the run.
        if isinstance(heard.get("run"), int) and heard["run"] > meeting.run:
            meeting = _Meeting(line, heard["run"])
        match heard:
            case {"run": int(), "number": int(number), "rank": int(rank), "rooms": list(rooms)}:
                threading.Thread(target=_take_part, args=(meeting, number, rank, rooms), daemon=True).start()
            case {"run": int(run), "key": str(key), "value": str(value)} if run == meeting.run:
                with meeting.news:
                    meeting.known[key] = bytes.fromhex(value)
                    meeting.news.notify_all()
            case {"note": str(said)}:
                print(said, flush=True)
            case {"bye": str(said)}:
                return print(said, flush=True)


def _take_part(meeting: _Meeting, number: int, rank: int, rooms: list[int]) -> None:
    """Run one experiment and send what it brings, or say why it failed."""
    line, run, K, options = meeting.line, meeting.run, len(rooms), ProcessGroupGloo._Options()
    try:
        program, _ = EXPERIMENTS[number]
        print(f"{program.__name__}: you are rank {rank} of {K}", flush=True)
        # At the address by which this laptop has reached the room, whatever others it has.
        options._devices = [ProcessGroupGloo.create_device(hostname=line.own)]
        options._timeout = timedelta(seconds=MEET_S)
        group = ProcessGroupGloo(meeting, rank, K, options)
        comm = TorchComm(rank, K, "cpu", hosts=tuple(rooms), group=group)
        array = program(comm)
        comm.barrier()  # nobody hangs up while another still receives
        line.say(run=run, array=array.tolist())
    except Exception as error:
        felt = not isinstance(error, ValueError)  # what gloo raises is another's doing
        line.say(run=run, why=f"{type(error).__name__}: {error}", felt=felt)
