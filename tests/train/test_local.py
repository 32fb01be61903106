"""DiLoCo on torch models: the paper's path, plain training in its special cases, bytes as the formula says."""

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labkit.collectives import broadcast, ring, tree  # noqa: E402
from labkit.comm import Processes, RankDied, RankError, launch  # noqa: E402
from labkit.learn import linear_data  # noqa: E402
from labkit.train.ddp_naive import average_gradients_flat  # noqa: E402
from labkit.train.local import DiLoCo  # noqa: E402

X, Y, _ = linear_data(96, 6, np.random.default_rng(11))
MEAN = {"lr": 1.0, "momentum": 0.0}


def batches(rank, T):
    """Every rank has examples of its own."""
    rng = np.random.default_rng([3, rank])
    return [rng.integers(96, size=5) for _ in range(T)]


def numbers(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()


def train(comm, T, H, adam=True, synchronous=False, dies_at=None, **outer):
    """T steps; the path (T + 1, 7) of weight and bias, and how many outer steps were taken."""
    torch.manual_seed(comm.rank)  # parameters of its own, too: only the broadcast makes them alike
    model = torch.nn.Linear(6, 1).double()
    local = DiLoCo(model.parameters(), comm, H, **outer)
    inner = (torch.optim.AdamW if adam else torch.optim.SGD)(model.parameters(), lr=0.05)
    path = [numbers(model)]
    for t, rows in enumerate(batches(comm.rank, T)):
        if (t, comm.rank) == dies_at:
            os._exit(3)
        inner.zero_grad()
        ((model(torch.from_numpy(X[rows]))[:, 0] - torch.from_numpy(Y[rows])) ** 2).mean().backward()
        if synchronous:
            average_gradients_flat(comm, model)
        inner.step()
        if not synchronous:
            local.step()
        if t + 1 == T and not synchronous:
            local.finish()
        path.append(numbers(model))
    return np.array(path), local.rounds


def paths(run):
    return [path for path, _ in run.results]


@pytest.mark.parametrize("K,T,H", [(1, 7, 3), (2, 12, 5), (3, 12, 4), (5, 6, 50)])
def test_it_is_algorithm_1_of_the_paper_worker_after_worker(K, T, H):
    run = launch(train, K, T, H)
    inputs = torch.tensor(np.column_stack([X, np.ones(96)]))  # the bias is a seventh weight
    labels = torch.tensor(Y)
    shared = torch.tensor(paths(run)[0][0])
    outer = torch.optim.SGD([shared], lr=0.7, momentum=0.9, nesterov=True)
    replicas = [shared.clone().requires_grad_() for _ in range(K)]
    inner = [torch.optim.AdamW([w], lr=0.05) for w in replicas]
    for t in range(T):
        for k, w in enumerate(replicas):
            rows = batches(k, T)[t]
            inner[k].zero_grad()
            ((inputs[rows] @ w - labels[rows]) ** 2).mean().backward()
            inner[k].step()
        if (t + 1) % H == 0 or t + 1 == T:
            shared.grad = torch.stack([shared - w.detach() for w in replicas]).mean(0)
            outer.step()
            for w in replicas:
                w.data.copy_(shared)
        now = [path[t + 1] for path in paths(run)]
        np.testing.assert_allclose(now, [w.detach().numpy() for w in replicas], rtol=1e-10, atol=1e-12)
    assert {rounds for _, rounds in run.results} == {-(-T // H)}


@pytest.mark.parametrize("K", [1, 2, 3, 5])
@pytest.mark.parametrize("allreduce", [None, tree.allreduce_inplace])
def test_one_plain_inner_step_and_an_outer_step_of_one_is_synchronous_training(K, allreduce):
    other = {} if allreduce is None else {"allreduce": allreduce}
    together = paths(launch(train, K, 9, 1, adam=False, synchronous=True))
    for path in paths(launch(train, K, 9, 1, adam=False, **MEAN, **other)):
        np.testing.assert_allclose(path, together[0], rtol=1e-12, atol=1e-13)


def test_one_worker_with_an_outer_step_of_one_is_the_inner_optimiser_alone():
    def alone(comm, T):
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 1).double()
        inner, path = torch.optim.AdamW(model.parameters(), lr=0.05), [numbers(model)]
        for rows in batches(0, T):
            inner.zero_grad()
            ((model(torch.from_numpy(X[rows]))[:, 0] - torch.from_numpy(Y[rows])) ** 2).mean().backward()
            inner.step()
            path.append(numbers(model))
        return np.array(path)

    mine = paths(launch(train, 1, 10, 3, **MEAN))[0]
    np.testing.assert_allclose(mine, launch(alone, 1, 10).results[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("K,T,H", [(1, 4, 2), (2, 12, 5), (4, 12, 4), (5, 3, 10)])
def test_bytes_are_a_broadcast_at_the_start_and_one_all_reduce_per_outer_step(K, T, H):
    run = launch(train, K, T, H)
    np.testing.assert_array_equal(run.bytes_sent, broadcast.bytes(K, 7, 8) + -(-T // H) * ring.bytes(K, 7, 8))
    alike = [t for t in range(T + 1) if all(np.array_equal(p[t], paths(run)[0][t]) for p in paths(run))]
    assert K == 1 or alike == [0, *range(H, T, H), T]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_meeting_is_the_mean_in_the_parameters_own_dtype(dtype):
    def worker(comm):
        model = torch.nn.Linear(3, 2).to(dtype)
        torch.nn.init.zeros_(model.weight)
        local = DiLoCo(model.parameters(), comm, 5, **MEAN)
        torch.nn.init.constant_(model.weight, 2.0 * comm.rank)
        local.synchronise()
        return model.weight.dtype, model.weight.tolist(), local.rounds

    assert launch(worker, 3).results == [(dtype, [[2.0] * 3] * 2, 1)] * 3


def test_a_worker_whose_parameters_are_nan_does_not_stay_alone_with_them():
    def worker(comm):
        model = torch.nn.Linear(3, 1)
        local = DiLoCo(model.parameters(), comm, 1)
        if comm.rank == 1:
            torch.nn.init.constant_(model.weight, float("nan"))
        local.step()
        return model.weight.isnan().all().item()

    assert launch(worker, 2).results == [True, True]


def test_synchronous_training_sends_every_gradient_at_every_step():
    run = launch(train, 3, 5, 1, synchronous=True)
    np.testing.assert_array_equal(run.bytes_sent, broadcast.bytes(3, 7, 8) + 5 * ring.bytes(3, 7, 8))
    assert all(np.array_equal(path, paths(run)[0]) for path in paths(run))


def test_parameters_that_do_not_learn_are_left_alone():
    def worker(comm):
        torch.manual_seed(comm.rank)
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
        model[0].requires_grad_(False)
        before = model[0].weight.clone()
        local = DiLoCo(model.parameters(), comm, 2)
        local.finish()  # nothing learned yet: nothing to say
        assert comm.bytes_sent == (12 if comm.rank == 0 else 0)
        assert torch.equal(model[0].weight, before)
        return local.rounds, len(local.anchor)

    assert launch(worker, 2).results == [(0, 3), (0, 3)]


@pytest.mark.processes
def test_real_processes_do_what_the_simulation_does_and_a_killed_worker_ends_them_all():
    simulated = launch(train, 2, 8, 3)
    with Processes(device="cpu").ready(2) as pool:
        real = launch(train, 2, 8, 3, world=Processes(device="cpu", pool=pool))
        np.testing.assert_allclose(paths(real), paths(simulated), rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(real.bytes_sent, simulated.bytes_sent)
        with pytest.raises(RankDied, match="rank 1") as caught:
            launch(train, 2, 8, 3, dies_at=(4, 1), world=Processes(device="cpu", pool=pool))
        assert tuple(caught.value.ranks) == (1,)


@pytest.mark.parametrize(
    "change,says",
    [
        ({"H": 0}, "H must be a whole number >= 1, got 0"),
        ({"H": 2.0}, "H must be a whole number"),
        ({"H": True}, "H must be a whole number"),
        ({"lr": 0.0}, "lr must be a finite number > 0, got 0.0"),
        ({"lr": float("nan")}, "lr must be"),
        ({"lr": "fast"}, "lr must be"),
        ({"momentum": 1.0}, "momentum must be below 1, got 1.0"),
        ({"momentum": -0.1}, "momentum must be"),
        ({"params": []}, "params must hold at least one tensor that learns"),
        ({"params": [torch.zeros(3)]}, "params must hold at least one tensor that learns"),
        ({"params": ["w"]}, "params must hold at least one tensor that learns"),
        (
            {
                "params": [
                    torch.zeros(3, requires_grad=True),
                    torch.zeros(3, requires_grad=True, dtype=torch.double),
                ]
            },
            "params must all be of one dtype and on one device, got torch.float32 on cpu, torch.float64 on cpu",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change, says):
    given = {"params": [torch.zeros(3, requires_grad=True)], "H": 2, **change}
    with pytest.raises(RankError, match=says) as caught:
        launch(
            lambda comm: DiLoCo(
                given["params"], comm, given["H"], **{k: v for k, v in given.items() if k in MEAN}
            ),
            2,
        )
    assert isinstance(caught.value.__cause__, ValueError)
