"""The simulated world carries thousands of workers, and each of them notices nothing of the others."""

import contextvars
import sys
import textwrap
import threading

import numpy as np
import pytest

from labkit import Link, Simulated, launch
from labkit.collectives import ring
from labkit.comm import LaunchError, RankError, RankTimeout


@pytest.fixture(autouse=True)
def leaves_no_thread():
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def test_two_thousand_workers_on_hosts_of_64_take_their_closed_form():
    K, each, inside = 2048, 64, Link(1e-6, 1e11)
    world = Simulated(hosts=tuple(k // each for k in range(K)), inside=inside)

    def f(comm):
        """A step of a ring inside each host, and one from host to host between the first ranks of each."""
        token, first = np.full(1, float(comm.rank)), comm.rank // each * each
        right, left = first + (comm.rank + 1) % each, first + (comm.rank - 1) % each
        token = comm.sendrecv(token, right, np.empty(1), left)
        if comm.rank == first:
            token = comm.sendrecv(token, (first + each) % K, np.empty(1), (first - each) % K)
        return int(token[0])

    run = launch(f, K, world=world, timeout_s=600)
    left = [k - 1 if k % each else (k - 1) % K for k in range(K)]
    assert run.results == left
    assert run.elapsed_s == pytest.approx(inside.seconds(8) + world.link.seconds(8), rel=1e-12)


def test_a_worker_sees_the_launcher_s_context_and_keeps_its_own():
    said = contextvars.ContextVar("said", default="nothing")

    def f(comm):
        heard = said.get()
        said.set(f"rank {comm.rank}")
        with np.errstate(divide="raise" if comm.rank else "ignore"):
            comm.barrier()
            comm.sendrecv(np.ones(1), (comm.rank + 1) % comm.K, np.empty(1), (comm.rank - 1) % comm.K)
            return heard, said.get(), np.geterr()["divide"]

    said.set("go")
    results = launch(f, 3).results
    assert results == [("go", f"rank {k}", "raise" if k else "ignore") for k in range(3)]
    assert said.get() == "go" and np.geterr()["divide"] == "warn"


def test_a_launch_in_a_worker_of_a_launch():
    def inner(comm, x):
        return float(ring.allreduce(comm, np.full(3, x + comm.rank))[0])

    def outer(comm):
        comm.barrier()
        return float(ring.allreduce(comm, np.full(2, launch(inner, 3, float(comm.rank)).results[0]))[0])

    assert launch(outer, 4).results == [sum(3 * k + 3 for k in range(4))] * 4
    with pytest.raises(RankError, match="rank 0 raised Deadlock"):
        launch(lambda comm: launch(lambda c: c.recv(np.empty(1), 1 - c.rank), 2), 1)


@pytest.mark.parametrize("K", [3, 300])
def test_abandoned_workers_run_their_finally_and_cannot_talk_any_more(K):
    left, refused = set(), set()

    def f(comm):
        try:
            comm.barrier()
            if comm.rank == 2:
                raise OSError("no such shard")
            comm.barrier()
        finally:
            left.add(comm.rank)
            if comm.rank != 2:
                try:
                    comm.send(np.ones(1), 2)
                except Exception:
                    raise AssertionError from None
                except BaseException:
                    refused.add(comm.rank)

    with pytest.raises(RankError, match="rank 2 raised OSError: no such shard") as error:
        launch(f, K)
    assert error.value.ranks == (2,)
    assert left == set(range(K)) and refused == left - {2}


def test_a_loop_without_end_is_named_and_everybody_comes_home():
    left = []

    def f(comm):
        try:
            comm.barrier()
            while comm.rank == 1:  # round and round
                pass
            comm.barrier()
        finally:
            left.append(comm.rank)

    with pytest.raises(RankTimeout, match="rank 1 was still running its own code") as error:
        launch(f, 3, timeout_s=0.5)
    assert error.value.ranks == (1,) and "round and round" in str(error.value)
    assert sorted(left) == [0, 1, 2]


def test_more_workers_than_the_system_has_threads_for_are_refused_in_one_sentence(monkeypatch):
    start, running = threading.Thread.start, threading.active_count()

    def refuses(thread):
        if threading.active_count() > running + 3:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuses)
    with pytest.raises(LaunchError, match="the system has no thread left for rank 4 of 9"):
        launch(lambda comm: comm.barrier(), 9)


AUTOGRAD = """
    import numpy as np
    from labkit import launch
    from labkit.collectives import ring

    def f(comm):
        comm.barrier()  # all have begun before torch is there
        import torch
        def summed(grad):
            total = grad.clone()
            ring.allreduce_inplace(comm, total)
            return total
        w = torch.full((3,), float(comm.rank), requires_grad=True)
        w.register_hook(summed)
        with torch.no_grad():
            comm.barrier()
        (w * w).sum().backward()
        return w.grad.tolist()

    print(launch(f, 3).results)
"""


def test_workers_meet_inside_a_backward_pass_and_without_gradients(ran):
    pytest.importorskip("torch")
    done = ran([sys.executable, "-c", textwrap.dedent(AUTOGRAD)], timeout=60)
    assert done.stdout.strip() == str([[6.0] * 3] * 3), done.stderr
