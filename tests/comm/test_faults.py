"""Whatever a rank does, a launch ends within its deadline, names the rank to blame, and leaves no process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from labkit.collectives import ring
from labkit.comm import Deadlock, LaunchError, Mismatch, Processes, RankDied, RankError, RankTimeout, launch

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
WORLDS = ["simulated", "processes"]


def workers_of(pid: int | None = None) -> list[psutil.Process]:
    """All processes that live under this one's fork server."""
    left = []
    for child in psutil.Process(pid).children():
        try:
            if any("forkserver" in part for part in child.cmdline()):
                left += child.children(recursive=True)
        except psutil.NoSuchProcess:
            continue
    return left


@pytest.fixture(autouse=True, scope="module")
def the_fork_server_is_there():
    """The first launch imports torch, which on a cold disk takes longer than any deadline here."""
    launch(lambda comm: 0, 1, world="processes")


@pytest.fixture(autouse=True)
def leaves_no_process_and_no_thread():
    threads = threading.active_count()
    yield
    end = time.monotonic() + 3
    while (left := workers_of()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left, f"workers still there: {left}"
    while threading.active_count() > threads and time.monotonic() < end:
        time.sleep(0.05)
    assert threading.active_count() <= threads


def within(
    seconds: float, error: type[Exception], f, K: int, *args, world="processes", timeout_s=20.0, **kwargs
):
    """The error that ``launch`` raises, which must come within ``seconds``."""
    begun = time.monotonic()
    with pytest.raises(error) as caught:
        launch(f, K, *args, world=world, timeout_s=timeout_s, **kwargs)
    assert time.monotonic() - begun < seconds
    return caught.value


# -- a rank goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
def test_a_rank_that_raises_is_named_with_its_line(world):
    def f(comm):
        comm.barrier()
        if comm.rank == 2:
            raise KeyError("no such shard")  # the line to show
        comm.barrier()

    error = within(10, RankError, f, 4, world=world)
    assert error.ranks == (2,)
    assert "rank 2 raised KeyError: 'no such shard'" in str(error)
    assert "# the line to show" in str(error)


class Unspeakable(Exception):
    """Cannot say what it is: not even its status, if it were one."""

    def __str__(self):
        raise self.args[0]

    __repr__ = __str__

    def __reduce__(self):
        raise self


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("worse", [ValueError("worse"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exception_that_cannot_say_what_it_is_is_reported_by_its_type(world, worse):
    def f(comm):
        if comm.rank == 1:
            raise Unspeakable(worse)  # the line to show
        comm.barrier()

    error = within(10, RankError, f, 2, world=world)
    assert error.ranks == (1,) and "rank 1 raised Unspeakable\n" in str(error), error
    assert "# the line to show" in str(error)


def test_what_cannot_be_sent_and_cannot_say_why_is_reported_by_its_type():
    thing = Unspeakable(ValueError("worse"))
    with pytest.raises(
        TypeError, match=r"argument 0 \(Unspeakable\) cannot be sent .*: Unspeakable; make it"
    ):
        launch(lambda comm, thing: 0, 1, thing, world="processes")
    error = within(10, RankError, lambda comm: Unspeakable(ValueError("worse")), 1)
    assert "returned something that cannot be sent back (Unspeakable)" in str(error)

    def leave(comm):
        sys.exit(Unspeakable(ValueError("worse")))

    assert "rank 0 called sys.exit(Unspeakable)" in str(within(10, RankError, leave, 1))


@pytest.mark.parametrize("world", WORLDS)
def test_the_same_mistake_everywhere_is_one_error(world):
    def f(comm):
        return comm.no_such_thing

    error = within(10, RankError, f, 3, world=world)
    assert "AttributeError" in str(error) and 0 in error.ranks


def test_a_killed_rank_is_named_and_not_those_who_talked_to_it():
    def f(comm):
        x = np.ones(10)
        for t in comm.steps(1000):
            x = ring.allreduce(comm, x) / comm.K
            if t == 5 and comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    error = within(10, RankDied, f, 3)
    assert error.ranks == (1,) and "SIGKILL" in str(error)


@pytest.mark.parametrize("leave", [lambda: os._exit(0), lambda: os._exit(3)])
def test_an_exit_without_a_result_is_a_failure(leave):
    def f(comm):
        if comm.rank == 0:
            leave()
        return 1

    error = within(10, RankDied, f, 2)
    assert error.ranks == (0,) and "exited with status" in str(error) and "before it returned" in str(error)


@pytest.mark.parametrize("world", WORLDS)
def test_sys_exit_zero_is_a_failure(world):
    def f(comm):
        if comm.rank == 1:
            sys.exit(0)

    assert within(10, RankError, f, 2, world=world).ranks == (1,)


@pytest.mark.parametrize("world", WORLDS)
def test_an_endless_loop_is_stopped_and_shown(world):
    def f(comm):
        while comm.rank == 1:  # round and round
            pass
        comm.barrier()

    error = within(6, RankTimeout, f, 3, world=world, timeout_s=1.5)
    assert error.ranks == (1,), error
    assert "# round and round" in str(error) or "pass" in str(error)
    assert isinstance(error, TimeoutError)


def test_a_rank_that_sleeps_in_c_is_stopped_and_shown():
    def f(comm):
        if comm.rank == 0:
            time.sleep(1e6)  # asleep here
        return comm.rank

    error = within(6, RankTimeout, f, 2, timeout_s=1.5)
    assert error.ranks == (0,) and "# asleep here" in str(error)


# -- a rank stays away ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
def test_the_rank_that_skips_a_barrier_is_to_blame(world):
    def f(comm):
        comm.barrier()
        if comm.rank != 2:
            comm.barrier()

    error = within(5, Deadlock, f, 4, world=world)
    assert error.ranks == (2,)
    assert (
        "rank 2 returned without joining synchronisation point 2 (barrier), in which ranks 0, 1 and 3 wait"
        in str(error)
    )


@pytest.mark.parametrize("world", WORLDS)
def test_the_rank_that_skips_an_all_reduce_is_to_blame(world):
    def f(comm):
        for t in comm.steps(3):
            if not (comm.rank == 1 and t == 2):
                ring.allreduce(comm, np.ones(8))

    error = within(5, Deadlock, f, 4, world=world)
    assert error.ranks == (1,)
    assert "rank 1 returned without joining synchronisation point 3 (ring all-reduce of 8 float64)" in str(
        error
    )


def test_the_rank_that_skips_torchs_own_all_reduce_is_told_apart_from_those_that_wait():
    def f(comm):
        import torch
        import torch.distributed as dist

        if comm.rank != 1:
            dist.all_reduce(torch.ones(4))  # waits for rank 1

    error = within(6, RankTimeout, f, 3, timeout_s=1.5)
    assert error.ranks == (1,) and "# waits for rank 1" in str(error)
    assert "rank 1 returned without joining the torch.distributed call in which ranks 0 and 2 wait" in str(
        error
    )


def test_the_rank_too_busy_for_torchs_own_all_reduce_is_to_blame():
    def f(comm):
        import torch
        import torch.distributed as dist

        if comm.rank == 2:
            time.sleep(1e6)  # too busy
        dist.all_reduce(torch.ones(4))

    error = within(6, RankTimeout, f, 3, timeout_s=1.5)
    assert error.ranks == (2,) and "# too busy" in str(error)
    assert "rank 2 was still running its own code without joining the torch.distributed call" in str(error)


@pytest.mark.parametrize("world", WORLDS)
def test_a_message_nobody_sends_names_the_rank_that_should_have(world):
    def f(comm):
        if comm.rank == 0:
            comm.recv(np.empty(3), source=1)

    error = within(5, Deadlock, f, 3, world=world)
    assert error.ranks == (1,)
    assert "rank 1 returned without sending what rank 0 waits to receive from it" in str(error)


@pytest.mark.parametrize("world", WORLDS)
def test_everybody_sending_first_is_a_deadlock_in_both_worlds(world):
    def f(comm):
        comm.send(np.ones(1000), (comm.rank + 1) % comm.K)
        comm.recv(np.empty(1000), (comm.rank - 1) % comm.K)

    error = within(5, Deadlock, f, 3, world=world)
    assert error.ranks == (0, 1, 2) and "wait for one another in a circle" in str(error)


# -- ranks disagree -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("odd", [np.ones(101), np.ones(100, np.float32)])
def test_the_rank_with_another_shape_or_dtype_is_to_blame(world, odd):
    def f(comm):
        ring.allreduce(comm, odd if comm.rank == 2 else np.ones(100))

    error = within(5, Mismatch, f, 4, world=world)
    assert error.ranks == (2,)
    assert f"rank 2 came to ring all-reduce of {len(odd)} {odd.dtype}" in str(error)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "n,dtype", [(101, np.float64), (99, np.float64), (100, np.float32), (200, np.float32)]
)
def test_two_ends_of_a_message_that_disagree_are_both_named(world, n, dtype):
    def f(comm):
        if comm.rank == 0:
            comm.send(np.ones(100), to=1)
        else:
            time.sleep(0.1)
            comm.recv(np.empty(n, dtype), source=0)

    error = within(5, Mismatch, f, 2, world=world)
    assert error.ranks == (0, 1)
    assert f"rank 0 sends 100 float64 to rank 1, which expects {n} {np.dtype(dtype)}" in str(error)


# -- refused at the door --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "K,error", [(0, ValueError), (-1, ValueError), (2.0, ValueError), (True, ValueError)]
)
def test_a_number_of_workers_that_makes_no_sense_is_refused(K, error):
    assert "K must be" in str(within(1, error, lambda comm: 0, K))


def test_more_processes_than_the_machine_can_host_are_refused():
    assert "can host" in str(within(1, LaunchError, lambda comm: 0, 100_000))


def test_more_processes_than_cores_work():
    K = len(os.sched_getaffinity(0)) + 3
    assert launch(lambda comm: comm.rank, K, world="processes").results == list(range(K))


def test_nccl_without_a_gpu_for_every_rank_is_refused():
    assert "needs a GPU for each of the 64 ranks" in str(
        within(10, LaunchError, lambda comm: 0, 64, world=Processes(backend="nccl"))
    )


@pytest.mark.parametrize("world", [Processes(), pytest.param("emulated", id="emulated")])
def test_a_full_disk_or_too_many_open_files_is_one_sentence(monkeypatch, world):
    import torch.multiprocessing

    from labkit.comm import Emulated, emulated

    if world == "emulated":
        if (why := emulated.unavailable()) is not None:
            pytest.skip(f"no network namespaces: {why}")
        world = Emulated(1e8)
    launch(lambda comm: 0, 1, world="processes")  # the fork server is there

    def full(*args):
        raise OSError(28, "No space left on device")

    context = torch.multiprocessing.get_context("forkserver")
    monkeypatch.setattr(context, "RawArray", full)
    error = within(5, LaunchError, lambda comm: 0, 2, world=world)
    assert "the system refused what 2 worker processes need: [Errno 28] No space left on device" in str(error)


def test_an_argument_that_cannot_travel_is_named():
    lock = threading.Lock()
    assert "argument 1 (lock) cannot be sent" in str(within(10, TypeError, lambda comm, *a: 0, 2, 1, lock))
    assert "lock (lock) cannot be sent" in str(within(10, TypeError, lambda comm, lock: 0, 2, lock=lock))


def test_a_result_that_cannot_travel_is_named():
    error = within(10, RankError, lambda comm: threading.Lock() if comm.rank == 1 else 0, 2)
    assert error.ranks == (1,) and "cannot be sent back" in str(error)


@pytest.mark.parametrize("kwargs", [{"world": "mars"}, {"timeout_s": 0}, {"timeout_s": float("nan")}])
def test_other_arguments_are_checked_too(kwargs):
    with pytest.raises(ValueError, match="must be"):
        launch(lambda comm: 0, 2, **kwargs)


@pytest.mark.parametrize("world", WORLDS)
def test_wrong_data_and_peers_are_refused_on_the_spot(world):
    def f(comm, what):
        what(comm)

    for what, sentence in {
        (lambda c: c.send([1.0], 1)): "data must be a numpy array or a torch tensor, got list",
        (lambda c: c.send(np.float64(1), 1)): "data must be a numpy array or a torch tensor, got float64",
        (lambda c: c.send(np.array(["a"]), 1)): "data must hold numbers",
        (lambda c: c.send(np.ones(2, ">f4"), 1)): "data must hold numbers",
        (lambda c: c.send(np.ones(1), 2)): "to must be a rank from 0 to 1, got 2",
        (lambda c: c.recv(np.ones(1), c.rank)): "another rank",
        (lambda c: c.compute(-1)): "seconds must be a finite number >= 0",
        (lambda c: c.compute()): "compute() needs seconds",
    }.items():
        assert sentence in str(within(10, RankError, f, 2, what, world=world))


# -- the launcher itself --------------------------------------------------------------------------------------------


def test_port_29500_taken_does_not_matter():
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", 29500))
            s.listen()
        except OSError:
            pass  # then somebody else has taken it, which is as good
        assert launch(lambda comm: comm.K, 2, world="processes").results == [2, 2]


def test_two_launches_at_once_do_not_meet():
    outcomes = {}

    def one(name: int) -> None:
        f = lambda comm: ring.allreduce(comm, np.full(5, name + comm.rank, float))  # noqa: E731
        outcomes[name] = launch(f, 2, world="processes").results[0][0]

    threads = [threading.Thread(target=one, args=(n,)) for n in (10, 20, 30)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert outcomes == {10: 21.0, 20: 41.0, 30: 61.0}


def script(body: str) -> str:
    return textwrap.dedent(
        """
        import os, signal, sys, threading, time
        import numpy as np
        from labkit.comm import launch
        """
    ) + textwrap.dedent(body)


@pytest.fixture
def start(started):
    """`with start(body) as p`: a script, with all it prints in one pipe."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    def go(body: str):
        command = [sys.executable, "-c", script(body)]
        return started(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    return go


def test_threads_at_work_before_the_launch_do_no_harm(start):
    with start(
        """
        import torch
        torch.set_num_threads(2); a = torch.randn(600, 600); a @ a
        np.ones((500, 500)) @ np.ones((500, 500))
        threading.Thread(target=lambda: time.sleep(60), daemon=True).start()
        def f(comm):
            import torch
            return float((torch.ones(300, 300) @ torch.ones(300, 300)).sum())
        print(launch(f, 2, world="processes").results)
        """
    ) as p:
        assert "[27000000.0, 27000000.0]" in p.communicate(timeout=60)[0]


def test_a_script_without_a_main_guard_runs_once(ran, tmp_path):
    path = tmp_path / "plain.py"
    path.write_text(script("print('once'); print(launch(lambda c: c.rank, 2, world='processes').results)"))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = ran([sys.executable, path], timeout=60, env=env)
    assert done.stdout.splitlines() == ["once", "[0, 1]"], done.stderr


LONG = """
    def f(comm):
        print("at work", flush=True)
        comm.barrier()
        time.sleep(1000)
    launch(f, 3, world="processes", timeout_s=900)
"""


def read_until_at_work(p: subprocess.Popen) -> list[psutil.Process]:
    seen = 0
    while seen < 3:
        line = p.stdout.readline()
        assert line, "ended early"
        seen += "at work" in line
    return workers_of(p.pid)


@pytest.mark.parametrize(
    "how,shows", [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGKILL, ""), (signal.SIGTERM, "")]
)
def test_an_interrupted_or_killed_launcher_leaves_nothing(start, how, shows):
    with start(LONG) as p:
        workers = read_until_at_work(p)
        assert len(workers) == 3
        p.send_signal(how)
        out = p.communicate(timeout=20)[0]
        assert shows in out
        _, alive = psutil.wait_procs(workers, timeout=5)
        assert not alive


def test_an_interrupted_simulation_stops(start):
    with start(
        """
        def f(comm):
            print("at work", flush=True)
            while True:
                comm.barrier()
        launch(f, 3, timeout_s=900)
        """
    ) as p:
        for _ in range(3):
            p.stdout.readline()
        p.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in p.communicate(timeout=20)[0]


def test_a_workers_own_children_end_with_it():
    def f(comm):
        if comm.rank == 0:
            return subprocess.Popen(["sleep", "1000"]).pid
        return 0

    pid = launch(f, 2, world="processes").results[0]
    end = time.monotonic() + 5
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" and time.monotonic() < end:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


def test_without_torch_the_simulation_works_and_processes_say_what_is_missing(ran, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    code = script(
        """
        print(launch(lambda c: c.rank, 2).results)
        try:
            launch(lambda c: c.rank, 2, world="processes")
        except RuntimeError as error:
            print(error)
        """
    )
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = ran([sys.executable, "-c", code], timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "[0, 1]"
    assert "world='processes' needs torch, not installed here" in done.stdout
