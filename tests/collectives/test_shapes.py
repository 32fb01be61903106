"""Torus, servers and two levels: of any shape they take their closed form; at the edges they are something simpler."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Link, Simulated, launch
from labkit.collectives import (
    Hierarchical,
    Server,
    Torus,
    hierarchical,
    naive,
    ring,
    tree,
)


def share(rank: int, n: int, dtype) -> np.ndarray:
    """A vector that differs from rank to rank."""
    return np.random.default_rng([11, rank]).standard_normal(n).astype(dtype)


def reduce(comm, way, n, dtype):
    return way(comm, share(comm.rank, n, dtype))


@pytest.mark.parametrize(("K", "cols"), [(6, 2), (6, 3), (12, 3), (12, 4), (12, 6), (16, 2)])
def test_a_torus_of_any_shape_takes_its_closed_form(K, cols):
    link = Link(1e-4, 1e9)
    run = launch(
        lambda comm: Torus(cols).allreduce(comm, np.ones(50 * comm.K)), K, world=Simulated(link=link)
    )
    assert run.elapsed_s == pytest.approx(Torus(cols).time(K, 400 * K, link), rel=1e-9)


@given(S=st.integers(1, 13), more=st.integers(0, 6))
@settings(max_examples=25, deadline=None)
def test_any_number_of_servers_takes_its_closed_form(S, more):
    K, link = S + more, Link(1e-4, 1e9)
    run = launch(lambda comm: Server(S).allreduce(comm, np.ones(30 * S)), K, world=Simulated(link=link))
    assert run.elapsed_s == pytest.approx(Server(S).time(K, 240 * S, link), rel=1e-9)


@given(K=st.integers(1, 14), per_host=st.integers(1, 6), slower=st.floats(1.0, 1e4))
@settings(max_examples=40, deadline=None)
def test_two_levels_take_their_closed_form_also_with_a_last_host_that_is_not_full(K, per_host, slower):
    hosts = tuple(k // per_host for k in range(K))
    inside = Link(1e-6, 1e10)
    link = Link(1e-6 * slower, 1e10 / slower)
    n = 20 * (hosts[-1] + 1)
    world = Simulated(link=link, hosts=hosts, inside=inside)
    run = launch(reduce, K, hierarchical.allreduce, n, np.float64, world=world)
    assert run.elapsed_s == pytest.approx(Hierarchical(per_host, inside).time(K, 8 * n, link), rel=1e-9)


def test_two_levels_beat_the_flat_ring_where_hosts_are_far_apart():
    world = Simulated(link=Link(1e-4, 1e8), hosts=tuple(k // 4 for k in range(16)), inside=Link(1e-6, 1e10))
    seconds = {
        way.name: launch(reduce, 16, way.allreduce, 16_000, np.float32, world=world).elapsed_s
        for way in (hierarchical, ring)
    }
    assert seconds["hierarchical"] < 0.5 * seconds["ring"]


@pytest.mark.parametrize(("hosts", "each"), [(1, 4), (2, 2), (3, 4), (4, 1), (5, 3)])
def test_a_row_on_each_host_takes_its_price_where_its_workers_share_a_port(hosts, each):
    inside, port, K = Link(2e-6, 1e10), Link(3e-5, 1e9), hosts * each
    n = 60 * K
    # a port shared by all workers of a host at once: each has its share of the bytes a second
    world = Simulated(
        link=Link(port.alpha, port.beta / each), inside=inside, hosts=tuple(k // each for k in range(K))
    )
    way = Torus(each, inside)
    run = launch(reduce, K, way.allreduce, n, np.float64, world=world)
    assert run.elapsed_s == pytest.approx(way.time(K, 8 * n, port), rel=1e-9)
    assert np.allclose(run.results[0], sum(share(k, n, np.float64) for k in range(K)))


def test_eight_workers_of_a_host_pay_one_vector_and_three_quarters_inside():
    inside = Link(0.0, 1e9)
    assert Torus(8, inside).time(8, 1e9, Link(0.0, 1e9)) == pytest.approx(1.75)
    assert Hierarchical(8, inside).time(8, 1e9, Link(0.0, 1e9)) == pytest.approx(6.0)
    # across, the port of a host carries what one ring of whole vectors would
    assert Torus(8, inside).time(32, 1e9, Link(0.0, 1e9)) == pytest.approx(1.75 + 2 * 3 / 4)
    with pytest.raises(ValueError, match="cols must divide the number of workers, K = 12"):
        Torus(8, inside).time(12, 1e9, inside)


def test_two_levels_are_a_tree_on_one_host_and_a_ring_on_hosts_of_one():
    def bits(way, hosts):
        return [
            r.tobytes() for r in launch(reduce, 6, way, 25, np.float32, world=Simulated(hosts=hosts)).results
        ]

    assert bits(hierarchical.allreduce, (3,) * 6) == bits(tree.allreduce, None)
    assert bits(hierarchical.allreduce, tuple(range(6))) == bits(ring.allreduce, None)


@pytest.mark.parametrize("K", [1, 2, 3, 7])
def test_a_torus_of_one_column_is_the_ring_and_one_server_is_naive_bit_for_bit(K):
    def bits(way):
        return (
            launch(lambda comm: way.allreduce(comm, share(comm.rank, 25, np.float32)), K).results[0].tobytes()
        )

    assert bits(Torus(1)) == bits(ring)
    assert bits(Server(1)) == bits(naive)


@pytest.mark.parametrize("bad", [0, 3, 2.0, True, "2"])
def test_a_torus_that_does_not_hold_K_workers_and_servers_that_are_not_there_are_refused(bad):
    with pytest.raises(RuntimeError, match="cols must"):
        launch(lambda comm: Torus(bad).allreduce(comm, np.ones(4)), 2)
    with pytest.raises(RuntimeError, match="servers must be a whole number"):
        launch(lambda comm: Server(bad).allreduce(comm, np.ones(4)), 2)


def test_hosts_that_are_too_few_are_refused():
    with pytest.raises(RuntimeError, match="hosts must name the host of each of the 3 ranks"):
        launch(lambda comm: Hierarchical((0, 0)).allreduce(comm, np.ones(4)), 3)
