"""The same function text in both worlds: same results, same bits, same bytes, and times that mean what they say."""

import os
import sys

import numpy as np
import pytest

from labkit import Link, Processes, Simulated, launch
from labkit.comm import LaunchError, RankError
from labkit.comm.processes import _choose
from labkit.comm.windows import _Heap
from labkit.timing import Kind, Uniform, draw

WORLDS = ["simulated", pytest.param("processes", marks=pytest.mark.processes)]


def pass_on(comm, n, dtype):
    """A token goes round the ring; every rank adds its own, different, share."""
    rng = np.random.default_rng([7, comm.rank])
    mine, token = rng.standard_normal(n).astype(dtype), np.zeros(n, dtype)
    if comm.rank > 0:
        comm.recv(token, comm.rank - 1)
    token += mine
    if comm.rank < comm.K - 1:
        comm.send(token, comm.rank + 1)
    return token


@pytest.mark.processes
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.float16, bool])
def test_both_worlds_give_the_same_bits_and_count_the_same_bytes(dtype):
    real = launch(pass_on, 3, 1001, dtype, world="processes")
    model = launch(pass_on, 3, 1001, dtype)
    for a, b in zip(real.results, model.results, strict=True):
        assert a.dtype == b.dtype == dtype and a.tobytes() == b.tobytes()
    n = 1001 * np.dtype(dtype).itemsize
    assert real.bytes_sent.tolist() == model.bytes_sent.tolist() == [n, n, 0]
    assert real.messages_sent.tolist() == model.messages_sent.tolist() == [1, 1, 0]
    assert real.measured and not model.measured
    assert real.where.startswith("measured") and model.where.startswith("simulated")


def test_shared_memory_that_the_system_has_not_is_refused_in_one_sentence():
    with (
        open(os.devnull) as nothing,
        pytest.raises(LaunchError, match=r"no room for 4,096 bytes of symmetric memory in"),
    ):
        _Heap(nothing.fileno()).reserve(0, 4096)


def test_a_comm_and_a_run_say_what_they_are():
    run = launch(lambda comm: (comm.compute(seconds=0.5), repr(comm))[1], 2)
    assert run.results[1] == "<_SimulatedComm rank 1 of 2 on cpu>"
    assert str(run).startswith("Run of 2 workers, simulated: 500 ms, 0 bytes in 0 messages\n  simulated")
    with pytest.raises(RankError, match="work must be a function where seconds= is given"):
        launch(lambda comm: comm.compute(1.0, seconds=0.5), 1)


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system has no batch scheduling")
def test_a_worker_runs_as_a_batch_process():
    policies = launch(lambda comm: os.sched_getscheduler(0), 2, world="processes").results
    assert list(policies) == [os.SCHED_BATCH] * 2


@pytest.mark.parametrize("world", WORLDS)
def test_torch_tensors_and_odd_memory_layouts_travel(world):
    pytest.importorskip("torch")

    def f(comm):
        import torch

        out, a, frozen = [], torch.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4)
        frozen.setflags(write=False)
        for data, buffer in [
            (a, torch.empty(3, 4)),
            (a.T, torch.empty(4, 3)),
            (a, torch.empty(4, 3).T),  # not contiguous
            (a.clone().requires_grad_(), torch.empty(3, 4)),
            (frozen, np.empty((3, 4))),
            (np.asfortranarray(frozen), np.empty((3, 4))),
            (frozen, np.empty((4, 3)).T),
            (np.float32(a.numpy()), torch.empty(3, 4)),
            (a, np.empty((3, 4), np.float32)),
            (np.empty(0), np.empty(0)),
            (np.array(3.5), np.array(0.0)),
        ]:
            if comm.rank == 0:
                comm.send(data, 1)
            else:
                got = comm.recv(buffer, 0)
                assert got is buffer
                sent = data.detach() if hasattr(data, "detach") else data
                out.append(np.array_equal(np.asarray(got), np.asarray(sent)))
        return out

    assert launch(f, 2, world=world).results[1] == [True] * 11


@pytest.mark.parametrize("world", WORLDS)
def test_requests_may_be_waited_for_in_any_order_and_twice(world):
    def f(comm):
        if comm.rank == 0:
            requests = [comm.isend(np.full(3, float(i)), 1) for i in range(4)]
        else:
            buffers = [np.zeros(3) for _ in range(4)]
            requests = [comm.irecv(b, 0) for b in buffers]
        for r in reversed(requests):
            r.wait()
        requests[0].wait()
        return [b[0] for b in buffers] if comm.rank == 1 else None

    assert launch(f, 2, world=world).results[1] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.processes
def test_the_rank_in_front_of_what_it_prints(capsys):
    def f(comm):
        print("hello\nworld", end="")

    launch(f, 2, world="processes")
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[rank 0] hello", "[rank 0] world", "[rank 1] hello", "[rank 1] world",
    ]  # fmt: skip


# -- times ----------------------------------------------------------------------------------------------------------


def test_a_simulation_gives_the_same_bits_twice_and_others_for_another_seed():
    f = lambda comm: [(comm.compute(), comm.barrier(), comm.now())[2] for _ in comm.steps(5)]  # noqa: E731
    runs = [launch(f, 4, world=Simulated(law=Uniform(0.01, 0.02), seed=s)) for s in (1, 1, 2)]
    assert runs[0].results == runs[1].results != runs[2].results
    assert np.array_equal(runs[0].timeline.start_s, runs[1].timeline.start_s)


def test_the_barrier_ends_with_the_last_and_the_timeline_adds_up():
    law, K, T = Uniform(0.01, 0.02), 4, 6
    X = draw(law, K, T, seed=3)

    def f(comm):
        for _ in comm.steps(T):
            comm.compute()
            comm.barrier()

    run = launch(f, K, world=Simulated(law=law, seed=3))
    assert run.elapsed_s == pytest.approx(X.max(axis=0).sum(), rel=1e-12)
    assert np.allclose(run.timeline.per_step(Kind.COMPUTE), X, rtol=1e-12)
    assert np.allclose(run.timeline.totals().sum(axis=1), run.elapsed_s, rtol=1e-12)
    assert run.timeline.idle_s == pytest.approx((X.max(axis=0) - X).sum(), rel=1e-9)


def test_a_port_serves_one_message_after_another_and_two_directions_at_once():
    link = Link(alpha=0.001, beta=1e6)
    d = link.seconds(8000)

    def gather(comm):
        if comm.rank == 0:
            for r in [comm.irecv(np.empty(1000), k) for k in range(1, comm.K)]:
                r.wait()
        else:
            comm.send(np.ones(1000), 0)
        return comm.now()

    assert launch(gather, 5, world=Simulated(link)).results == pytest.approx(
        [4 * d, d, 2 * d, 3 * d, 4 * d], rel=1e-12
    )

    def exchange(comm):
        comm.sendrecv(np.ones(1000), 1 - comm.rank, np.empty(1000), 1 - comm.rank)
        return comm.now()

    assert launch(exchange, 2, world=Simulated(link)).results == pytest.approx([d, d], rel=1e-12)


def test_a_rendezvous_starts_when_both_are_there_and_overlaps_with_compute():
    link = Link(alpha=0.0, beta=1e6)

    def f(comm):
        if comm.rank == 0:
            r = comm.isend(np.ones(1000), 1)
            comm.compute(0.010)  # the 8 ms of the message hide behind it
            r.wait()
        else:
            comm.compute(0.001)
            comm.recv(np.empty(1000), 0)
        return comm.now()

    run = launch(f, 2, world=Simulated(link))
    assert run.results == pytest.approx([0.010, 0.009], rel=1e-12)
    assert run.timeline.totals()[0, Kind.COMMUNICATE] == 0


def test_each_pair_may_have_a_link_of_its_own():
    slow, fast = Link(0.0, 1e6), Link(0.0, 1e8)
    network = lambda i, j: slow if 2 in (i, j) else fast  # noqa: E731

    def f(comm):
        if comm.rank == 0:
            comm.send(np.ones(1000), 1)
            comm.send(np.ones(1000), 2)
        else:
            comm.recv(np.empty(1000), 0)
        return comm.now()

    assert launch(f, 3, world=Simulated(network)).results == pytest.approx(
        [0.00808, 0.00008, 0.00808], rel=1e-12
    )


@pytest.mark.processes
def test_real_workers_spend_the_times_that_the_simulation_drew():
    law = Uniform(0.010, 0.030)
    f = lambda comm: [(comm.compute(), comm.barrier()) for _ in comm.steps(8)] and None  # noqa: E731
    model = launch(f, 3, world=Simulated(law=law, seed=5))
    with Processes().ready(3) as pool:  # other work only adds to a run: of five, the least disturbed
        runs = [launch(f, 3, world=Processes(law=law, seed=5, pool=pool)) for _ in range(5)]
    real = min(runs, key=lambda run: run.elapsed_s)
    drawn, spent = model.timeline.per_step(Kind.COMPUTE), real.timeline.per_step(Kind.COMPUTE)
    assert (spent >= drawn - 1e-6).all() and np.median(spent - drawn) < 0.003
    assert model.elapsed_s <= real.elapsed_s < model.elapsed_s * 1.5


@pytest.mark.processes
def test_waiting_is_told_from_communicating_in_a_real_run():
    def f(comm):
        begun = comm.now()
        if comm.rank == 0:
            comm.recv(np.empty(10), 1)
        else:
            comm.compute(0.2)
            comm.send(np.ones(10), 0)
        return comm.now() - begun

    run = launch(f, 2, world="processes")
    totals = run.timeline.totals()[0]
    assert totals[Kind.WAIT] > 0.15
    assert 0 < totals[Kind.COMMUNICATE] <= run.results[0] - totals[Kind.WAIT]


# -- pools, torchrun, devices ---------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_pool_serves_many_launches_and_refuses_another_k_and_life_after_failure():
    with Processes().ready(2) as pool:
        world = Processes(pool=pool)
        pids = {tuple(launch(lambda comm: os.getpid(), 2, world=world).results) for _ in range(3)}
        assert len(pids) == 1
        assert launch(lambda comm: comm.bytes_sent, 2, world=world).results == [0, 0]
        for K in (1, 3):
            with pytest.raises(ValueError, match="K must be 2"):
                launch(lambda comm: 0, K, world=world)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            launch(lambda comm: 1 / 0, 2, world=world)
        with pytest.raises(RuntimeError, match="pool is closed"):
            launch(lambda comm: 0, 2, world=world)


@pytest.mark.processes
def test_under_torchrun_the_same_launch_uses_the_group_it_finds(ran, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "import numpy as np\nfrom labkit import launch\nfrom labkit.collectives import ring\n"
        "run = launch(lambda c: float(ring.allreduce(c, np.full(4, 1.0 + c.rank))[0]), 2, world='processes')\n"
        "import os; os.write(1, f'got {run.results} {run.bytes_sent.tolist()}\\n'.encode())\n"
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = ran([*torchrun, script], timeout=120)
    assert done.stdout.count("got [3.0, 3.0] [32, 32]") == 2, done.stdout + done.stderr


def test_backend_and_device_follow_from_what_the_machine_has(monkeypatch):
    assert _choose(None, None, 4, gpus=0) == ("gloo", ["cpu"] * 4)
    assert _choose(None, None, 2, gpus=1) == ("gloo", ["cuda:0", "cuda:0"])
    # Nccl, too.
    monkeypatch.setattr(pytest.importorskip("torch").distributed, "is_backend_available", lambda name: True)
    assert _choose(None, None, 2, gpus=2) == ("nccl", ["cuda:0", "cuda:1"])
    assert _choose("gloo", None, 2, gpus=2) == ("gloo", ["cuda:0", "cuda:1"])
    assert _choose(None, "cpu", 2, gpus=2) == ("gloo", ["cpu", "cpu"])
    for bad in [("mpi", None, 2, 0), (None, "tpu", 2, 0)]:
        with pytest.raises(ValueError, match="must be"):
            _choose(*bad)
    for impossible in [("nccl", None, 2, 1), (None, "cuda", 2, 0), ("nccl", "cpu", 2, 2)]:
        with pytest.raises(RuntimeError, match="needs a GPU"):
            _choose(*impossible)
