"""Our DistributedDataParallel trains as one process would with the whole batch, whatever the model does."""

import copy
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_models import PROBLEMS, gap, mlp, points, rows, squares, vector  # noqa: E402

from labkit import Processes, launch  # noqa: E402
from labkit.collectives import ring  # noqa: E402
from labkit.comm import RankError  # noqa: E402
from labkit.train.buckets import assign  # noqa: E402
from labkit.train.ddp import DDP  # noqa: E402
from labkit.train.ddp_naive import average_gradients, share_parameters  # noqa: E402

SMALL = {"bucket_bytes": 60}  # several buckets in a model of a few kilobytes
RINGS = {"allreduce": ring.allreduce_inplace, "overlap": False, **SMALL}


def optimiser(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def plain(net, batches, loss, averaged=lambda: None) -> list:
    """One process: the parameters after each step. averaged: what is done to the gradients before it."""
    opt, path = optimiser(net), []
    for x, y in batches:
        opt.zero_grad()
        loss(net(x), y).backward()
        averaged()
        opt.step()
        path.append(vector(net))
    return path


def shares(comm, batches) -> list:
    return [(rows(x, comm), rows(y, comm)) for x, y in batches]


def in_parallel(comm, make, batches, loss, **settings) -> list:
    model = make(100 + comm.rank)  # every rank its own start: rank 0's must win
    return plain(DDP(comm, model, **settings), shares(comm, batches), loss)


def by_hand(comm, make, batches, loss, flat) -> list:
    model = make(100 + comm.rank)
    share_parameters(comm, model)
    return plain(model, shares(comm, batches), loss, lambda: average_gradients(comm, model, flat=flat))


# -- equal to one process with the whole batch ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem,K", [*(("mlp", K) for K in range(1, 5)), ("transformer", 2), ("transformer", 3)]
)
def test_every_step_is_the_step_of_one_process_with_the_whole_batch(problem, K):
    make, data, loss = PROBLEMS[problem]
    batches = data(4, 12)
    expected = plain(make(100), batches, loss)
    run = launch(in_parallel, K, make, batches, loss, **RINGS)
    for path in run.results:
        assert gap(path, expected) < 1e-12
        assert all(torch.equal(a, b) for a, b in zip(path, run.results[0], strict=True))


@pytest.mark.parametrize("flat", [False, True])
def test_the_naive_ways_take_the_same_steps(flat):
    batches = points(5, 12)
    expected = plain(mlp(100), batches, squares)
    for path in launch(by_hand, 3, mlp, batches, squares, flat).results:
        assert gap(path, expected) < 1e-12


def test_every_gradient_travels_once():
    def f(comm):
        model = mlp(0)
        net = DDP(comm, model, **RINGS)
        before = comm.bytes_sent
        net(torch.randn(4, 5, dtype=torch.float64)).mean().backward()
        return comm.bytes_sent - before, [b.flat.numel() for b in net.buckets], len(list(model.parameters()))

    run = launch(f, 4)
    for rank, (sent, sizes, tensors) in enumerate(run.results):
        assert sum(sizes) == sum(p.numel() for p in mlp(0).parameters())
        small = ring.bytes(4, 4, 8)[rank] + ring.bytes(4, tensors, 4)[rank]  # who has how many; who used what
        assert sent == sum(ring.bytes(4, n, 8)[rank] for n in sizes) + small
        assert len(sizes) > 2


# -- buckets ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from("ab")), max_size=30),
    st.lists(st.integers(1, 80), min_size=1, max_size=3),
)
def test_buckets_hold_everything_once_in_reverse_order_and_never_mix_kinds(parameters, limits):
    sizes, kinds = [n for n, _ in parameters], [k for _, k in parameters]
    buckets = assign(sizes, limits, kinds)
    assert sorted(i for b in buckets for i in b) == list(range(len(sizes)))
    for b in buckets:
        assert b == sorted(b, reverse=True) and len({kinds[i] for i in b}) == 1
        assert sum(sizes[i] for i in b[:-1]) < max(limits)  # closed as soon as it is full
    assert [b[-1] for b in buckets] == sorted((b[-1] for b in buckets), reverse=True)


# -- awkward models ---------------------------------------------------------------------------------------------------


class Awkward(nn.Module):
    """Tied weights, a frozen layer, a branch that only some ranks take, a layer nobody uses, a buffer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.into = nn.Linear(5, 5, bias=False)
        self.norm = nn.BatchNorm1d(5, affine=False)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.branch, self.idle = nn.Linear(5, 5), nn.Linear(5, 5)
        self.back = nn.Linear(5, 5, bias=False)
        self.back.weight = self.into.weight
        self.double()

    def forward(self, x, branch: bool):
        h = self.frozen(torch.tanh(self.into(x)))
        if branch:
            h = h + self.branch(h)
        return self.back(h).sum(1, keepdim=True)


def awkward(comm, steps, decay, **settings):
    model = Awkward(comm.rank)
    net = DDP(comm, model, **settings)
    opt = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=decay)
    for t, (x, y) in enumerate(points(steps, 12)):
        opt.zero_grad()
        squares(net(rows(x, comm), takes(comm.rank, t)), rows(y, comm)).backward()
        opt.step()
    return vector(model), [p.grad is None for p in (model.idle.weight, model.branch.weight)]


def takes(rank: int, t: int) -> bool:
    """Who takes the branch: one rank, another one, nobody, ..."""
    return (t + rank) % 3 == 0 and t % 4 != 3


def test_tied_frozen_unused_and_sometimes_unused_parameters():
    K, steps = 2, 8
    model = Awkward(0)
    opt = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    parts = [slice(6 * k, 6 * k + 6) for k in range(K)]
    for t, (x, y) in enumerate(points(steps, 12)):
        opt.zero_grad()
        (sum(squares(model(x[own], takes(k, t)), y[own]) for k, own in enumerate(parts)) / K).backward()
        opt.step()
    nobody_in_the_last = not any(takes(k, steps - 1) for k in range(K))
    for got, missing in launch(awkward, K, steps, 0.1, **RINGS).results:
        assert float((got - vector(model)).abs().max()) < 1e-12
        assert missing == [True, nobody_in_the_last]  # no gradient: no decay, as in one process
    assert nobody_in_the_last


def test_rank_0s_buffers_win():
    def f(comm):
        torch.manual_seed(comm.rank)
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        net = DDP(comm, model, **RINGS)
        net(torch.randn(6, 3) + comm.rank).sum().backward()
        return model[1].running_mean.clone(), int(model[1].num_batches_tracked)

    (mean, count), *others = launch(f, 3).results
    assert mean.abs().max() > 0 and count == 1
    assert all(torch.equal(mean, m) and c == 1 for m, c in others)


def test_without_sync_gradients_gather_and_are_summed_once():
    def f(comm, sync_every):
        model = mlp(comm.rank)
        net = DDP(comm, model, **RINGS)
        opt, path = optimiser(model), []
        before = comm.messages_sent
        for t, (x, y) in enumerate(points(6, 12)):
            if t % 3 < 2:
                with net.no_sync():
                    (squares(net(rows(x, comm)), rows(y, comm)) / 3).backward()
                continue
            (squares(net(rows(x, comm)), rows(y, comm)) / 3).backward()
            opt.step()
            opt.zero_grad(set_to_none=t == 2)
            path.append(vector(model))
        return path, comm.messages_sent - before, len(net.buckets)

    batches = points(6, 12)
    whole = [tuple(torch.cat(z) for z in zip(*batches[i : i + 3], strict=True)) for i in (0, 3)]
    expected = plain(mlp(0), whole, squares)
    for path, messages, buckets in launch(f, 2, 3).results:
        assert gap(path, expected) < 1e-12
        # Two sums of each bucket, of the counts and of who used what.
        assert messages == 2 * 2 * (buckets + 2)


# -- uneven batches ---------------------------------------------------------------------------------------------------


def test_uneven_batches_are_refused_unless_asked_for():
    batches = points(2, 11)  # 11 rows do not divide by 3
    with pytest.raises(RankError, match="rank 1 brings 4 and rank 0 3; drop the short batch"):
        launch(in_parallel, 3, mlp, batches, squares, **RINGS)
    for K in (2, 3):
        with pytest.raises(RankError, match="rank 1 brings 2 and rank 0 3; drop the short batch"):
            launch(lambda c: DDP(c, mlp(0), **RINGS)(torch.ones(3 - c.rank, 5).double()).sum().backward(), K)
    mean_of_means = launch(in_parallel, 3, mlp, batches, squares, check_even=False, **RINGS).results[0]
    assert gap(mean_of_means, plain(mlp(100), batches, squares)) > 1e-4  # torch's way: another algorithm


# -- bad input --------------------------------------------------------------------------------------------------------


def wrapped(comm, make, **settings):
    return DDP(comm, make(comm.rank), **{**RINGS, **settings})


@pytest.mark.parametrize("make,message", [
    (lambda r: nn.ReLU(), "model must have parameters that want a gradient, but it has none"),
    (lambda r: mlp(0).requires_grad_(False), "but all of its 6 are frozen"),
    (lambda r: nn.Linear(3, 2 + (r == 2)), r"rank 2 has parameter weight \(3, 3\) float32 where rank 0 has .*\(2, 3\)"),
    (lambda r: nn.Linear(3, 2, bias=r != 1), "rank 1 has nothing more where rank 0 has parameter bias"),
    (lambda r: nn.Linear(3, 2).to(torch.float64 if r == 0 else torch.float32), "rank 0 has .* float64 where rank 1"),
    (lambda r: mlp(0) if r else mlp(0)[:-1], "rank 0 has nothing more where rank 1 has parameter 4.weight"),
])  # fmt: skip
def test_a_model_that_cannot_be_wrapped_is_refused_in_one_sentence(make, message):
    with pytest.raises(RankError, match=message) as caught:
        launch(wrapped, 4, make)
    if named := re.match(r"rank (\d) has .* where rank 0", message):
        assert caught.value.ranks == (int(named[1]),)


def test_a_model_is_wrapped_once_and_can_be_let_go():
    def f(comm):
        model = mlp(comm.rank)
        net = DDP(comm, model, **RINGS)
        with pytest.raises(ValueError, match="a DDP looks after it already"):
            DDP(comm, model, **RINGS)
        net.close()
        again = DDP(comm, model, **RINGS)
        again(torch.ones(2, 5, dtype=torch.float64) * comm.rank).mean().backward()
        return model[0].weight.grad.clone()

    a, b = launch(f, 2).results
    assert torch.equal(a, b)


@pytest.mark.parametrize("settings,message", [
    ({"bucket_bytes": 0}, "bucket_bytes must be a finite number > 0, got 0"),
    ({"overlap": True}, "overlap must be False in the simulated world"),
    ({"allreduce": None}, "the simulated world needs an allreduce of labkit's"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(RankError, match=message):
        launch(wrapped, 2, mlp, **settings)


def test_one_worker_is_plain_training_and_says_nothing():
    batches = points(3, 4)
    run = launch(in_parallel, 1, mlp, batches, squares)
    expected = plain(mlp(100), batches, squares)
    assert all(torch.equal(a, b) for a, b in zip(run.results[0], expected, strict=True))
    assert run.messages_sent.sum() == 0


def test_a_sparse_gradient_and_a_backward_pass_that_failed():
    def f(comm):
        with pytest.raises(ValueError, match="sparse=False"):
            DDP(comm, nn.Embedding(7, 3, sparse=True), **RINGS)(torch.tensor([1, 2])).sum().backward()
        model = mlp(comm.rank)
        net = DDP(comm, model, **RINGS)
        hook = model[0].weight.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            net(torch.ones(2, 5, dtype=torch.float64)).mean().backward()
        hook.remove()
        model.zero_grad()
        net(torch.ones(2, 5, dtype=torch.float64) * (1 + comm.rank)).mean().backward()
        return model[0].weight.grad.clone()

    a, b = launch(f, 2).results
    assert torch.equal(a, b)


@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_that_are_computed_again_in_the_backward_pass(reentrant):
    from torch.utils.checkpoint import checkpoint

    def f(comm):
        model = mlp(comm.rank)
        net = DDP(comm, Checkpointed(*model), **RINGS)
        x, y = points(1, 12)[0]
        squares(net(rows(x, comm).requires_grad_()), rows(y, comm)).backward()
        return [p.grad for p in model.parameters()]

    class Checkpointed(nn.Sequential):
        def forward(self, x):
            for layer in self:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            return x

    model = mlp(0)
    x, y = points(1, 12)[0]
    squares(model(x), y).backward()
    for got in launch(f, 3).results:
        assert gap(got, [p.grad for p in model.parameters()]) < 1e-14


# -- real processes, beside torch's -----------------------------------------------------------------------------------


def beside_torch(comm, batches):
    """Several ways to train one model; the parameters after each step of each."""
    twin = mlp(100 + comm.rank)
    theirs = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(twin), bucket_cap_mb=0.001)
    paths = {"torch": plain(theirs, shares(comm, batches), squares)}
    make = lambda _: copy.deepcopy(twin)  # noqa: E731
    ways = {"torch's sum": {}, "ring in the background": {"allreduce": ring.allreduce_inplace}}
    for name, settings in ways.items():
        paths[name] = in_parallel(comm, make, batches, squares, **{**SMALL, **settings})
    return paths


@pytest.mark.processes
@pytest.mark.parametrize("K", [2, 3])
def test_processes_agree_with_torchs_ddp_bit_for_bit_where_two_add_and_to_rounding_where_more_do(K):
    batches = points(5, 12)
    expected = plain(mlp(100), batches, squares)
    for paths in launch(beside_torch, K, batches, world=Processes(device="cpu")).results:
        for path in paths.values():
            assert gap(path, expected) < 1e-12
            if K == 2:
                assert gap(path, paths["torch"]) == 0
    assert len(paths) == 3


@pytest.mark.processes
@pytest.mark.parametrize("settings", [{}, {"allreduce": ring.allreduce_inplace}], ids=["torch", "ring"])
def test_a_rank_that_leaves_early_is_named_not_those_that_wait_for_it(settings):
    def f(comm):
        net = DDP(comm, mlp(comm.rank), **settings)
        for _ in range(1 if comm.rank == 1 else 2):
            net(torch.ones(2, 5, dtype=torch.float64)).mean().backward()

    with pytest.raises(RankError, match="rank 1 returned without joining") as caught:
        launch(f, 3, world=Processes(device="cpu"), timeout_s=30)
    assert caught.value.ranks == (1,)


@pytest.mark.processes
def test_a_trace_shows_buckets_leave_while_the_backward_pass_goes_on():
    def f(comm):
        layers, summed = [nn.Linear(20, 20) for _ in range(4)], []

        def allreduce(comm, x):
            ring.allreduce_inplace(comm, x)
            summed.append(x)

        net = DDP(comm, nn.Sequential(*layers), bucket_bytes=1, check_even=False, allreduce=allreduce)

        def go_on_when(buckets: int) -> None:
            """The backward pass stops here until so many buckets, which have left, are summed."""
            deadline = time.monotonic() + 20
            while len(summed) < buckets and time.monotonic() < deadline:
                time.sleep(0.001)

        for i, layer in enumerate(layers[:-1]):
            layer.register_full_backward_pre_hook(lambda *_, later=3 - i: go_on_when(2 * later))
        net(torch.randn(3, 20)).sum().backward()
        return net.last_trace

    for trace in launch(f, 2, world=Processes(device="cpu")).results:
        ready = [flight.ready_s for flight in trace.flights]
        assert len(ready) == 8 and ready == sorted(ready)
        assert all(f.ready_s <= f.start_s <= f.end_s <= trace.end_s for f in trace.flights)
        assert all(f.start_s <= trace.computed_s for f in trace.flights[:6])  # all but the first layer's
        assert trace.computed_s <= trace.end_s
