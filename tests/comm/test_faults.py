"""Whatever a rank does, a launch ends within its deadline, names the rank to blame, and leaves no process."""

import ctypes
import os
import re
import signal
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
    while (workers_of() or threading.active_count() > threads) and time.monotonic() < end:
        time.sleep(0.05)
    assert not workers_of() and threading.active_count() <= threads


def within(
    seconds: float, error: type[Exception], f, K: int, *args, world="processes", timeout_s=20.0, **kwargs
):
    """The error that ``launch`` raises, which must come within ``seconds``."""
    begun = time.monotonic()
    with pytest.raises(error) as caught:
        launch(f, K, *args, world=world, timeout_s=timeout_s, **kwargs)
    assert time.monotonic() - begun < seconds
    return caught.value


# -- a rank goes wrong, or stays away, or brings something else ----------------------------------------------------------


def raises(comm):
    comm.barrier()
    if comm.rank == 2:
        raise KeyError("no such shard")  # the line to show
    comm.barrier()


def the_same_mistake_everywhere(comm):
    return comm.no_such_thing


def leaves_by_sys_exit(comm):
    if comm.rank == 1:
        sys.exit(0)


def skips_a_barrier(comm):
    comm.barrier()
    if comm.rank != 2:
        comm.barrier()


def skips_an_all_reduce(comm):
    for t in comm.steps(3):
        if not (comm.rank == 1 and t == 2):
            ring.allreduce(comm, np.ones(8))


def forgets_to_send(comm):
    if comm.rank == 0:
        comm.recv(np.empty(3), source=1)


def all_send_first(comm):
    comm.send(np.ones(1000), (comm.rank + 1) % comm.K)
    comm.recv(np.empty(1000), (comm.rank - 1) % comm.K)


def one_more_element(comm):
    ring.allreduce(comm, np.ones(100 + (comm.rank == 2)))


def two_of_another_length(comm):
    ring.allreduce(comm, np.ones(100 + max(0, comm.rank - 1)))


def another_dtype(comm):
    ring.allreduce(comm, np.ones(100, np.float32 if comm.rank == 2 else np.float64))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("f,K,kind,ranks,sentence", [
    (raises, 4, RankError, (2,), "rank 2 raised KeyError: 'no such shard'"),
    (raises, 3, RankError, (2,), "# the line to show"),
    (the_same_mistake_everywhere, 1, RankError, (0,), "AttributeError"),
    (leaves_by_sys_exit, 2, RankError, (1,), "rank 1 "),
    (skips_a_barrier, 4, Deadlock, (2,),
     "rank 2 returned without joining synchronisation point 2 (barrier), in which ranks 0, 1 and 3 wait"),
    (skips_an_all_reduce, 4, Deadlock, (1,),
     "rank 1 returned without joining synchronisation point 3 (ring all-reduce of 8 float64)"),
    (forgets_to_send, 3, Deadlock, (1,), "rank 1 returned without sending what rank 0 waits to receive from it"),
    (all_send_first, 3, Deadlock, (0, 1, 2), "wait for one another in a circle"),
    (one_more_element, 4, Mismatch, (2,), "rank 2 came to ring all-reduce of 101 float64"),
    (two_of_another_length, 4, Mismatch, (2, 3), "rank 3 came to ring all-reduce of 102 float64, but rank 2 came to ring "),
    (another_dtype, 4, Mismatch, (2,), "rank 2 came to ring all-reduce of 100 float32"),
])  # fmt: skip
def test_in_both_worlds_the_one_who_is_wrong_is_named_and_nobody_who_waits(
    world, f, K, kind, ranks, sentence
):
    error = within(10, kind, f, K, world=world)
    assert error.ranks == ranks and sentence in str(error) and f"{sentence}s" not in str(error), error


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("n,dtype", [(101, "float64"), (99, "float64"), (100, "float32"), (200, "float32")])
def test_two_ends_of_a_message_that_disagree_are_both_named(world, n, dtype):
    def f(comm):
        if comm.rank == 0:
            comm.send(np.ones(100), to=1)
        else:
            time.sleep(0.1)
            comm.recv(np.empty(n, dtype), source=0)

    error = within(5, Mismatch, f, 2, world=world)
    assert error.ranks == (0, 1)
    assert f"rank 0 sends 100 float64 to rank 1, which expects {n} {dtype}" in str(error)


def test_workers_that_do_not_come_up_are_named(monkeypatch):
    monkeypatch.setattr("labkit.comm.pool.START_S", 0.0)
    error = within(10, LaunchError, lambda comm: 0, 2)
    assert str(error) == "ranks 0 and 1 did not start within 0 s"
    assert RankError.phrase(range(6)) == "ranks 0, 1, 2, 3, 4 and 5"
    assert RankError.phrase(range(10)) == "ranks 0, 1, 2, 3, … and 9 (10 in all)"  # many are told in short


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


def test_what_cannot_travel_is_named_even_if_it_cannot_say_why():
    lock, thing = threading.Lock(), Unspeakable(ValueError("worse"))
    refused = lambda *args, **kwargs: str(within(10, TypeError, lambda *a, **k: 0, 2, *args, **kwargs))  # noqa: E731
    assert "argument 1 (lock) cannot be sent" in refused(1, lock)
    assert "lock (lock) cannot be sent" in refused(lock=lock)
    said = "argument 0 (Unspeakable) cannot be sent to a worker process: Unspeakable; make it"
    assert said in refused(thing)
    error = within(10, RankError, lambda comm: threading.Lock() if comm.rank == 1 else 0, 2)
    assert error.ranks == (1,) and "cannot be sent back" in str(error)
    error = within(10, RankError, lambda comm: Unspeakable(ValueError("worse")), 1)
    assert "returned something that cannot be sent back (Unspeakable)" in str(error)
    error = within(10, RankError, lambda comm: sys.exit(Unspeakable(ValueError("worse"))), 1)
    assert "rank 0 called sys.exit(Unspeakable)" in str(error)


def test_a_killed_rank_is_named_and_not_those_who_talked_to_it():
    def f(comm):
        x = np.ones(10)
        for t in comm.steps(1000):
            x = ring.allreduce(comm, x) / comm.K
            if t == 5 and comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    error = within(10, RankDied, f, 3)
    assert error.ranks == (1,) and "SIGKILL" in str(error)


def test_a_rank_slow_to_die_is_named_and_not_the_one_that_lost_it():
    def f(comm):
        if comm.rank == 0:
            raise RuntimeError("Connection closed by peer [127.0.0.1]:4711")
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)

    assert within(10, RankDied, f, 2).ranks == (1,)


@pytest.mark.parametrize("status", [0, 3])
def test_an_exit_without_a_result_is_a_failure(status):
    error = within(10, RankDied, lambda comm: os._exit(status) if comm.rank == 0 else 1, 2)
    assert error.ranks == (0,) and f"exited with status {status} before it returned" in str(error)


def test_a_crash_is_told_with_the_line_of_the_thread_that_crashed():
    def f(comm):
        threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
        ctypes.string_at(0)  # the line to show

    error = within(10, RankDied, f, 1)
    assert "was killed by SIGSEGV" in str(error) and "# the line to show" in error.trace
    assert "threading.py" not in error.trace


def stands_ready(comm):
    import torch.distributed  # noqa: F401

    comm.barrier()


def loops(comm):
    while comm.rank == 1:  # round and round
        pass
    comm.barrier()


def sleeps_in_c(comm):
    if comm.rank == 1:
        time.sleep(1e6)  # asleep here
    return type("Slow", (), {"__reduce__": lambda _: time.sleep(1e6)})()  # never sent


def skips_torchs_own(comm):
    from torch import distributed, ones

    if comm.rank != 1:
        distributed.all_reduce(ones(4))  # waits for rank 1


def too_busy_for_torchs_own(comm):
    from torch import distributed, ones

    if comm.rank == 1:
        time.sleep(1e6)  # too busy
    distributed.all_reduce(ones(4))


@pytest.mark.parametrize("f,line,sentence", [
    (loops, "# round and round|pass", "rank 1 was still running at the deadline of 1.5 s"),
    (sleeps_in_c, "# asleep here", "rank 1 was still running at the deadline of 1.5 s"),
    (skips_torchs_own, "# waits for rank 1",
     "rank 1 returned without joining the torch.distributed call in which ranks 0 and 2 wait"),
    (too_busy_for_torchs_own, "# too busy",
     "rank 1 was still running its own code without joining the torch.distributed call"),
])  # fmt: skip
def test_at_the_deadline_the_rank_that_keeps_the_others_is_named_with_its_line(f, line, sentence):
    with Processes().ready(3) as pool:  # to start workers, and to import this file, takes seconds
        launch(stands_ready, 3, world=Processes(pool=pool))
        error = within(6, RankTimeout, f, 3, world=Processes(pool=pool), timeout_s=1.5)
    assert error.ranks == (1,) and isinstance(error, TimeoutError)
    assert sentence in str(error) and re.search(line, str(error)), error
    assert "worker.py" not in error.trace  # it begins with the algorithm


# -- refused at the door --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error,sentence,K,settings", [
    (ValueError, "K must be", 0, {}),
    (ValueError, "K must be", 2.0, {}),
    (ValueError, "K must be", True, {}),
    (ValueError, "world must be", 2, {"world": "mars"}),
    (ValueError, "timeout_s must be", 2, {"timeout_s": 0}),
    (ValueError, "timeout_s must be", 2, {"timeout_s": float("nan")}),
    (LaunchError, "can host", 100_000, {}),
    (LaunchError, "needs a GPU for each of the 64 ranks", 64, {"world": Processes(backend="nccl")}),
])  # fmt: skip
def test_a_launch_that_makes_no_sense_is_refused(error, sentence, K, settings):
    assert sentence in str(within(10, error, lambda comm: 0, K, **settings))


def test_a_full_disk_or_too_many_open_files_is_one_sentence(monkeypatch):
    import torch.multiprocessing

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.multiprocessing.get_context("forkserver"), "RawArray", full)
    error = within(5, LaunchError, lambda comm: 0, 2)
    assert "the system refused what 2 worker processes need: [Errno 28] No space left on device" in str(error)


@pytest.mark.parametrize("world", WORLDS)
def test_wrong_data_and_peers_are_refused_on_the_spot(world):
    for what, sentence in {
        (lambda c: c.send([1.0], 1)): "data must be a numpy array or a torch tensor, got list",
        (lambda c: c.send(np.array(["a"]), 1)): "data must hold numbers",
        (lambda c: c.send(np.ones(2, ">f4"), 1)): "data must hold numbers",
        (lambda c: c.send(np.ones(1), 2)): "to must be a rank from 0 to 1, got 2",
        (lambda c: c.recv(np.ones(1), c.rank)): "another rank",
        (lambda c: c.compute(-1)): "seconds must be a finite number >= 0",
        (lambda c: c.compute()): "compute() needs seconds",
    }.items():
        said = str(within(10, RankError, what, 2, world=world))
        assert sentence in said.partition("\n")[0]  # further below stands this file's own line


# -- the launcher itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
def test_launches_at_once_do_not_meet(world):
    outcomes = {}

    def one(name: int) -> None:
        f = lambda comm: ring.allreduce(comm, np.full(5, name + comm.rank, float))  # noqa: E731
        outcomes[name] = launch(f, 2, world=world).results[0][0]

    threads = [threading.Thread(target=one, args=(n,)) for n in (10, 20, 30)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert outcomes == {10: 21.0, 20: 41.0, 30: 61.0}


def script(body: str) -> str:
    head = "import os, signal, sys, threading, time\nimport numpy as np\nfrom labkit.comm import launch\n"
    return head + textwrap.dedent(body)


@pytest.fixture
def start(started):
    """`with start(body) as p`: a script, with all it prints in one pipe."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return lambda body, first="": started([sys.executable, "-c", first + script(body)], **pipes)


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


@pytest.mark.weekly
def test_a_script_without_a_main_guard_runs_once(ran, tmp_path):
    path = tmp_path / "plain.py"
    path.write_text(script("print('once'); print(launch(lambda c: c.rank, 2, world='processes').results)"))
    done = ran([sys.executable, path], timeout=60)
    assert done.stdout.splitlines() == ["once", "[0, 1]"], done.stderr


def read_until_at_work(p: subprocess.Popen, times: int) -> None:
    while times:
        line = p.stdout.readline()
        assert line, "ended early"
        times -= "at work" in line


OTHERS = [pytest.param(s, marks=pytest.mark.weekly) for s in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("how", [signal.SIGKILL, *OTHERS])
def test_an_interrupted_or_killed_launcher_leaves_nothing(start, how):
    with start(
        """
        def f(comm):
            print("at work", flush=True)
            comm.barrier()
            time.sleep(1000)
        launch(f, 3, world="processes", timeout_s=900)
        """
    ) as p:
        read_until_at_work(p, 3)
        workers = workers_of(p.pid)
        assert len(workers) == 3
        p.send_signal(how)
        out = p.communicate(timeout=20)[0]
        assert how != signal.SIGINT or "KeyboardInterrupt" in out
        assert not psutil.wait_procs(workers, timeout=5)[1]


@pytest.mark.weekly
def test_a_pool_left_open_ends_with_the_script(start):
    made_first = "import weakref; weakref.finalize(weakref, id, 0)\n"  # Python calls it last
    with start(
        """
        from labkit import Processes
        pool = Processes().ready(2)
        print("at work", flush=True)
        time.sleep(0.5)
        """,
        made_first,
    ) as p:
        read_until_at_work(p, 1)
        workers = workers_of(p.pid)
        p.communicate(timeout=20)
        assert len(workers) == 2 and not psutil.wait_procs(workers, timeout=5)[1] and p.returncode == 0


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
        read_until_at_work(p, 3)
        p.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in p.communicate(timeout=20)[0]


def test_a_workers_own_children_end_with_it():
    def f(comm):
        return subprocess.Popen(["sleep", "1000"]).pid if comm.rank == 0 else 0

    pid = launch(f, 2, world="processes").results[0]
    end, left = time.monotonic() + 5, [pid]
    while left and time.monotonic() < end:
        left = [p for p in psutil.process_iter(["status"]) if p.pid == pid and p.info["status"] != "zombie"]
    assert not left


def test_without_torch_the_simulation_works_and_processes_say_what_is_missing(ran, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    code = "print(launch(lambda c: c.rank, 2).results)\nlaunch(lambda c: c.rank, 2, world='processes')"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = ran([sys.executable, "-c", script(code)], timeout=60, env=env)
    assert done.stdout.splitlines() == ["[0, 1]"], done.stderr
    assert "world='processes' needs torch and cloudpickle (no torch here: pip install" in done.stderr
