"""The simulated world carries thousands of workers in one thread, and each of them notices nothing of the others."""

from __future__ import annotations

import contextvars
import os
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from labkit import Link, Simulated, launch
from labkit.collectives import Hierarchical, ring
from labkit.comm import Deadlock, RankError, RankTimeout, simulated

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["shared", "own"])
def homes(request, monkeypatch):
    """Once with all workers in one thread, once with a thread each, whether or not torch is there."""
    if request.param == "shared":
        monkeypatch.setattr(simulated, "MOST_THREADS", 0)
    else:
        monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch", contextvars))
    return request.param


def threads_of(comm) -> int:
    comm.barrier()
    return threading.get_ident()


def test_workers_share_a_thread_unless_torch_is_there(homes):
    assert len(set(launch(threads_of, 5).results)) == (1 if homes == "shared" else 5)


def test_more_workers_than_threads_share_one_also_beside_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch", contextvars))
    monkeypatch.setattr(simulated, "MOST_THREADS", 4)
    assert [len(set(launch(threads_of, K).results)) for K in (4, 5)] == [4, 1]


def test_a_ring_of_a_thousand_takes_its_closed_form(homes, monkeypatch):
    K = 1024 if homes == "shared" else 40

    def two_rounds(comm):
        """The first steps of a ring, in which every worker already waits for another."""
        token, right, left = np.full(1, float(comm.rank)), (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
        for _ in range(2):
            token = comm.sendrecv(token, right, np.empty(1), left)
        return int(token[0])

    link = Link(1e-3, 1e6)
    run = launch(two_rounds, K, world=Simulated(link), timeout_s=600)
    assert run.results == [(k - 2) % K for k in range(K)]
    assert run.elapsed_s == pytest.approx(2 * link.seconds(8), rel=1e-12)
    assert run.messages_sent.tolist() == [2] * K


def test_a_whole_ring_of_two_hundred_takes_its_closed_form():
    run = launch(lambda comm: ring.allreduce(comm, np.ones(400)), 200, timeout_s=600)
    assert run.elapsed_s == pytest.approx(ring.time(200, 3200, Simulated().link), rel=1e-9)
    assert all((total == 200).all() for total in run.results)


def test_two_levels_of_four_thousand_take_their_closed_form():
    hosts, inside = tuple(k // 64 for k in range(4096)), Link(1e-6, 1e11)
    way, world = Hierarchical(64, inside), Simulated(hosts=hosts, inside=inside)
    run = launch(lambda comm: way.allreduce(comm, np.ones(64))[0], 4096, world=world, timeout_s=600)
    assert run.results == [4096.0] * 4096
    assert run.elapsed_s == pytest.approx(way.time(4096, 512, world.link), rel=1e-9)


def test_a_worker_sees_the_launcher_s_context_and_keeps_its_own(homes):
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


def test_a_launch_in_a_worker_of_a_launch(homes):
    def inner(comm, x):
        return float(ring.allreduce(comm, np.full(3, x + comm.rank))[0])

    def outer(comm):
        comm.barrier()
        mine = launch(inner, 3, float(comm.rank)).results[0]
        return float(ring.allreduce(comm, np.full(2, mine))[0])

    assert launch(outer, 4).results == [sum(3 * k + 3 for k in range(4))] * 4

    def failing(comm):
        comm.barrier()
        if comm.rank == 1:
            launch(lambda c: c.recv(np.empty(1), 1 - c.rank), 2)
        comm.barrier()

    with pytest.raises(RankError, match="rank 1 raised Deadlock"):
        launch(failing, 3)


def test_launches_from_several_threads_do_not_meet(homes):
    found = {}

    def one(name):
        found[name] = launch(lambda comm: float(ring.allreduce(comm, np.full(9, name))[0]), 7).results

    threads = [threading.Thread(target=one, args=(float(n),)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {float(n): [7.0 * n] * 7 for n in range(4)}


@pytest.mark.parametrize("K", [3, 300])
def test_abandoned_workers_run_their_finally_and_cannot_talk_any_more(homes, K):
    before, left, refused = threading.active_count(), set(), set()

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
    assert threading.active_count() == before


def test_a_loop_without_end_is_named_and_everybody_comes_home(homes):
    before, left = threading.active_count(), []

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
    assert sorted(left) == [0, 1, 2] and threading.active_count() == before


def test_a_standstill_of_many_is_one_sentence(homes):
    with pytest.raises(
        Deadlock, match="rank 0 returned without sending what rank 1 waits to receive from it"
    ):
        launch(lambda comm: comm.recv(np.empty(1), comm.rank - 1) if comm.rank else None, 3)


def test_windows_take_no_memory_before_they_are_asked_for():
    def f(comm, use):
        comm.barrier()
        if use:
            comm.windows.views(1, np.dtype(float))[comm.rank][0] = comm.rank
            comm.barrier()
        return comm._cluster._memory is None

    assert launch(f, 3, False).results == [True] * 3
    assert launch(f, 3, True).results == [False] * 3


AUTOGRAD = """
    import sys
    import numpy as np
    from labkit import launch
    from labkit.collectives import ring

    def f(comm, late):
        if late:
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

    print(launch(f, 3, False).results)
"""


@pytest.mark.parametrize("late", [False, True])
def test_workers_meet_inside_a_backward_pass_or_hear_why_not(ran, late):
    pytest.importorskip("torch")
    body = textwrap.dedent(AUTOGRAD).replace("launch(f, 3, False)", f"launch(f, 3, {late})")
    done = ran([sys.executable, "-c", body], timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)})
    if late:
        assert done.returncode and "import torch before the launch" in done.stderr
    else:
        assert done.stdout.strip() == str([[6.0] * 3] * 3), done.stderr
