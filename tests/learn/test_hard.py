"""The chain is Nesterov's, its bounds are minima found otherwise, and nothing runs along it faster than a spring a round."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import launch
from labkit.collectives import doubling_allreduce
from labkit.learn import sync_sgd
from labkit.learn.hard import chain, in_halves, in_turn, least_gap, nesterov_gap, reached

sizes = st.integers(1, 40)
constants = st.floats(0.01, 100)


@given(sizes, constants)
def test_the_chain_is_nesterovs_function_plus_a_constant(d, L):
    A = 2 * np.eye(d) - np.eye(d, k=1) - np.eye(d, k=-1)  # his matrix A_k, equation (2.1.12)
    w = np.random.default_rng(d).standard_normal(d)
    problem = chain(d, L)
    assert problem.loss(w) == pytest.approx(L / 4 * (w @ A @ w / 2 - w[0]) + L / 8)
    np.testing.assert_allclose(problem.grad(w), L / 4 * (A @ w - np.eye(d)[0]), rtol=1e-12, atol=1e-12 * L)
    largest = np.linalg.eigvalsh(L / 4 * A)[-1]
    assert np.isclose(problem.L, largest, rtol=1e-9) and problem.L < L


@given(sizes, constants)
def test_the_minimiser_is_a_straight_line(d, L):
    line = 1 - np.arange(1, d + 1) / (d + 1)
    np.testing.assert_allclose(chain(d, L).optimum(), line, atol=1e-9)
    assert chain(d, L).loss(line) == pytest.approx(L / (8 * (d + 1)))


@given(sizes, constants, st.integers(0, 50))
def test_the_least_gap_is_what_least_squares_finds_on_the_first_coordinates(d, L, t):
    problem, t = chain(d, L), min(t, d)
    w = np.zeros(d)
    w[:t] = np.linalg.lstsq(problem.X[:, :t], problem.y, rcond=None)[0]
    gap = problem.loss(w) - problem.loss(problem.optimum())
    assert least_gap(t, d, L) == pytest.approx(gap, rel=1e-9, abs=1e-12 * L)
    assert least_gap(d + t, d, L) == 0


@given(st.integers(1, 500), constants)
def test_the_theorem_lies_just_below_the_least_gap_of_its_chain(t, L):
    d = 2 * t + 1
    distance = np.linalg.norm(1 - np.arange(1, d + 1) / (d + 1))
    ratio = least_gap(t, d, L) / nesterov_gap(t, distance, L)
    assert 1 <= ratio < 1 + 1 / t


@given(sizes)
def test_both_splits_deal_every_spring_once_and_in_turn_parts_all_neighbours(d):
    for split in (in_turn, in_halves):
        first, second = split(d)
        assert sorted([*first, *second]) == list(range(d + 1))
        assert 0 <= len(first) - len(second) <= 1
    assert all(np.all(np.diff(shard) == 2) for shard in in_turn(d))


def test_reached_counts_up_to_the_last_that_is_not_zero():
    assert reached(np.zeros(4)) == 0 and reached([0.0, 1.0, 0.0]) == 2
    assert reached([[0, 0], [1, 0], [1, -1]]).tolist() == [0, 1, 2]


def test_two_workers_get_one_coordinate_further_a_round_and_not_below_the_least_gap():
    d, T = 21, 15
    problem, shards = chain(d), in_turn(d)
    job = (problem, np.zeros(d), 1.0, lambda t, k: shards[k], doubling_allreduce)
    w = launch(sync_sgd, 2, *job, T=T).results[1]
    assert reached(w).tolist() == list(range(T + 1))
    gaps = [problem.loss(each) - problem.loss(problem.optimum()) for each in w]
    assert (np.array(gaps) >= least_gap(np.arange(T + 1), d) - 1e-15).all()


@pytest.mark.parametrize("split,furthest", [(in_turn, 1), (in_halves, 11)])
def test_alone_a_worker_gets_no_further_than_its_own_unbroken_run_of_springs(split, furthest):
    d = 21
    problem, shards = chain(d), split(d)
    for shard, most in zip(shards, (furthest, 0), strict=True):
        w = np.zeros(d)
        for _ in range(200):
            w = w - 0.5 * problem.grad_sum(w, shard) / problem.N
        assert reached(w) == most


@pytest.mark.parametrize(
    "call,word",
    [
        (lambda: chain(0), "d must"),
        (lambda: chain(2.0), "d must"),
        (lambda: chain(3, L=0), "L must"),
        (lambda: in_turn(-1), "d must"),
        (lambda: in_halves(True), "d must"),
        (lambda: least_gap(-1, 5), "t must"),
        (lambda: least_gap(1.5, 5), "t must"),
        (lambda: nesterov_gap(3, -1.0), "distance must"),
        (lambda: nesterov_gap(3, 1.0, L=np.inf), "L must"),
    ],
)
def test_bad_input_is_refused_by_name(call, word):
    with pytest.raises(ValueError, match=word):
        call()
