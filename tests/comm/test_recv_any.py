"""recv_any: whoever comes first, the same rules in every world."""

import numpy as np
import pytest

from labkit import Link, Processes, Simulated, launch
from labkit.comm import Deadlock, Mismatch, RankError
from labkit.timing import Trace

WORLDS = ["simulated", pytest.param("processes", marks=pytest.mark.processes)]


def serve(comm, T, delay_s=0.0):
    """Rank 0 adds what comes and answers with the number of the push; the others push T times their rank."""
    if comm.rank > 0:
        answers, seen = [], np.zeros(1)
        for _ in range(T):
            comm.compute(seconds=delay_s * comm.rank)
            comm.send(np.full(3, float(comm.rank)), 0)
            answers.append(comm.recv(seen, 0)[0])
        return answers
    total, into, order = np.zeros(3), np.zeros(3), []
    for u in range(T * (comm.K - 1)):
        source = comm.recv_any(into)
        assert into[0] == source
        total += into
        order.append(source)
        comm.send(np.array([float(u)]), source)
    return total[0], order


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("K", [2, 4])
def test_every_message_arrives_once_and_its_sender_is_known(world, K):
    run = launch(serve, K, 20, world=world)
    total, order = run.results[0]
    assert total == 20 * sum(range(1, K))
    assert np.bincount(order, minlength=K)[1:].tolist() == [20] * (K - 1)
    for k in range(1, K):
        assert run.results[k] == [u for u, source in enumerate(order) if source == k]
    assert run.messages_sent.tolist() == [20 * (K - 1)] + [20] * (K - 1)
    assert run.bytes_sent.tolist() == [8 * 20 * (K - 1)] + [24 * 20] * (K - 1)


def test_in_the_simulation_the_one_who_posts_first_is_served_first():
    X = np.array([[0.0] * 3, [5.0, 1.0, 1.0], [2.0, 2.0, 9.0], [2.0, 3.0, 1.0]])

    def f(comm):
        into = np.zeros(1)
        if comm.rank == 0:
            return [(comm.recv_any(into), comm.now()) for _ in range(9)]
        for _ in range(3):
            comm.compute()
            comm.send(np.ones(1), 0)
        return None

    order = launch(f, 4, world=Simulated(Link(0, 1e30), law=Trace(X))).results[0]
    assert [k for k, _ in order] == [2, 3, 2, 1, 3, 1, 3, 1, 2]  # together: the smaller rank
    assert [t for _, t in order] == pytest.approx([2, 2, 4, 5, 5, 6, 6, 7, 13], abs=1e-12)


def test_a_receive_from_one_rank_is_met_before_one_from_anyone():
    def f(comm):
        if comm.rank == 0:
            first, other = np.zeros(1), np.zeros(1)
            request = comm.irecv(first, 1)
            source = comm.recv_any(other)
            request.wait()
            return source, first[0], other[0]
        comm.compute(seconds=float(comm.rank))
        comm.send(np.array([float(comm.rank)]), 0)
        return None

    assert launch(f, 3).results[0] == (2, 1.0, 2.0)


@pytest.mark.processes
def test_torch_tensors_numpy_and_odd_layouts_are_received_from_anyone():
    def f(comm):
        import torch

        if comm.rank == 0:
            into, wide = torch.zeros(2, 3), np.zeros((3, 4), np.float32)[:, :2]
            a, b = comm.recv_any(into), comm.recv_any(wide)
            return sorted([(a, into.sum().item()), (b, float(wide.sum()))])
        comm.send(torch.full((6,), float(comm.rank)), 0)
        return None

    assert launch(f, 3, world=Processes()).results[0] == [(1, 6.0), (2, 12.0)]


@pytest.mark.parametrize("world", WORLDS)
def test_a_message_of_another_size_is_refused_by_name(world):
    def f(comm):
        if comm.rank == 0:
            comm.compute(seconds=0.05)
            for _ in range(2):
                comm.recv_any(np.zeros(3))
        else:
            comm.send(np.zeros(3 if comm.rank == 1 else 4), 0)

    with pytest.raises(Mismatch, match="rank 2 sends 4 float64 to rank 0, which expects 3 float64"):
        launch(f, 3, world=world)


@pytest.mark.processes
def test_a_late_sender_of_another_size_learns_it_from_the_receiver_who_already_waits():
    def f(comm):
        if comm.rank == 0:
            comm.recv_any(np.zeros(3))
        elif comm.rank == 1:
            comm.compute(seconds=0.2)
            comm.send(np.zeros(3, np.float32), 0)

    with pytest.raises(Mismatch, match="rank 1 sends 3 float32 to rank 0, which expects 3 float64"):
        launch(f, 3, world="processes")


@pytest.mark.parametrize("world", WORLDS)
def test_waiting_for_anyone_when_all_have_returned_blames_those_who_returned(world):
    def f(comm):
        if comm.rank == 0:
            comm.recv_any(np.zeros(3))

    with pytest.raises(Deadlock, match="ranks 1 and 2 returned without sending") as error:
        launch(f, 3, world=world, timeout_s=20)
    assert error.value.ranks == (1, 2)


@pytest.mark.parametrize("world", WORLDS)
def test_two_who_wait_for_each_other_are_a_deadlock_though_one_waits_for_anyone(world):
    def f(comm):
        if comm.rank == 0:
            comm.recv_any(np.zeros(3))
        elif comm.rank < 3:
            comm.recv(np.zeros(3), 0)

    with pytest.raises(Deadlock) as error:
        launch(f, 4, world=world, timeout_s=20)
    assert set(error.value.ranks) <= {0, 1, 2}


def test_alone_there_is_nobody_to_receive_from():
    with pytest.raises(RankError, match="recv_any needs another rank"):
        launch(lambda comm: comm.recv_any(np.zeros(1)), 1)
