"""The all-reduce SGD step: K workers step as one with the whole batch, in numpy and in torch, in every world."""

import numpy as np
import pytest

from labkit import Processes, launch
from labkit.learn import LeastSquares
from labkit.sgd import one_step, one_step_torch

N, D, ETA, STEPS = 60, 5, 0.05, 4
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((N, D)), RNG.standard_normal(N)


def alone() -> np.ndarray:
    """Gradient descent with all examples, written out."""
    w = np.zeros(D)
    for _ in range(STEPS):
        w = w - ETA * 2 * X.T @ (X @ w - Y) / N
    return w


def all_of(comm) -> np.ndarray:
    """This rank's share of all examples: unequal, and none on the last of three."""
    cuts = {1: [], 3: [40, N]}[comm.K]
    return np.split(np.arange(N), cuts)[comm.rank]


def in_numpy(comm) -> np.ndarray:
    w, problem = np.zeros(D), LeastSquares(X, Y)
    for _ in comm.steps(STEPS):
        w = one_step(comm, problem, w, ETA, all_of(comm))
    return w


def in_torch(comm) -> np.ndarray:
    import torch

    class Squares:
        """As a user of torch has it: a sum of losses, and autograd."""

        def grad_sum(self, w, mine):
            w = w.clone().requires_grad_()
            rows = torch.from_numpy(mine)
            loss = ((torch.from_numpy(X)[rows] @ w - torch.from_numpy(Y)[rows]) ** 2).sum()
            return torch.autograd.grad(loss, w)[0]

    w = torch.zeros(D, dtype=torch.float64)
    for _ in comm.steps(STEPS):
        w = one_step_torch(comm.group, Squares(), w, ETA, all_of(comm))
    return w.numpy()


@pytest.mark.parametrize("K", [1, 3])
def test_in_the_simulation_it_is_sgd_on_the_whole_batch(K):
    results = launch(in_numpy, K).results
    assert all(w.tobytes() == results[0].tobytes() for w in results)
    assert np.allclose(results[0], alone(), rtol=1e-13, atol=1e-14)


@pytest.mark.processes
@pytest.mark.parametrize("K", [1, 3])
def test_real_processes_have_the_simulation_s_bits_and_torch_agrees_to_rounding(K):
    with Processes(device="cpu", threads=1).ready(K) as pool:
        world = Processes(pool=pool)
        ours, torchs = launch(in_numpy, K, world=world), launch(in_torch, K, world=world)
    assert [w.tobytes() for w in ours.results] == [w.tobytes() for w in launch(in_numpy, K).results]
    assert all(w.tobytes() == torchs.results[0].tobytes() for w in torchs.results)
    assert np.allclose(torchs.results[0], ours.results[0], rtol=1e-13, atol=1e-14)
    assert np.allclose(torchs.results[0], alone(), rtol=1e-13, atol=1e-14)
