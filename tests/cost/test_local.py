"""The price of local methods: what the simulation, which knows no formula, comes to as well."""

import numpy as np
import pytest

from labkit.collectives import ring_allreduce
from labkit.comm import Simulated, launch
from labkit.cost import Link, local_bytes, local_rounds, local_time, ring_time


def rounds_of_work(comm, T, H, n, t_comp):
    for t in comm.steps(T):
        comm.compute(t_comp)
        if (t + 1) % H == 0 or t + 1 == T:
            ring_allreduce(comm, np.ones(n))


@pytest.mark.parametrize("K,T,H", [(1, 5, 2), (2, 12, 4), (3, 13, 4), (4, 7, 1), (4, 3, 9), (2, 0, 3)])
def test_seconds_and_bytes_equal_the_simulation_s(K, T, H):
    link, n = Link(1e-3, 1e6), 24
    run = launch(rounds_of_work, K, T, H, n, 0.01, world=Simulated(link=link))
    predicted = local_time(T, H, 0.01, ring_time(K, 8 * n, link))
    assert run.elapsed_s == pytest.approx(predicted, rel=1e-9)
    np.testing.assert_array_equal(run.bytes_sent, local_bytes(K, n, 8, T, H))


def test_arrays_broadcast_and_h_of_one_is_a_meeting_every_step():
    np.testing.assert_array_equal(local_rounds(10, np.array([1, 3, 10, 11])), [10, 4, 1, 1])
    np.testing.assert_allclose(local_time(10, np.array([1, 10]), 0.1, 2.0), [21.0, 3.0])


@pytest.mark.parametrize(
    "call,says",
    [
        (lambda: local_rounds(4, 0), "H must be a whole number >= 1, got 0"),
        (lambda: local_rounds(-1, 2), "T must be a whole number >= 0, got -1"),
        (lambda: local_rounds(4, 2.0), "H must be a whole number"),
        (lambda: local_time(4, 2, -1.0, 1.0), "t_comp must be a finite number >= 0"),
        (lambda: local_time(4, 2, 1.0, np.inf), "t_comm must be a finite number >= 0"),
        (lambda: local_bytes(0, 3, 8, 4, 2), "K must be a whole number >= 1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call()
