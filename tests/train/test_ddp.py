"""Our DistributedDataParallel trains as one process would with the whole batch, whatever the model does."""

from __future__ import annotations

import copy
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from labkit import Processes, launch  # noqa: E402
from labkit.collectives import naive, ring, shared  # noqa: E402
from labkit.comm import RankError  # noqa: E402
from labkit.train.buckets import assign  # noqa: E402
from labkit.train.char_model import CharTransformer  # noqa: E402
from labkit.train.ddp import DDP  # noqa: E402
from labkit.train.ddp_naive import average_gradients, average_gradients_flat, share_parameters  # noqa: E402

SMALL = {"bucket_bytes": 600, "first_bytes": 200}  # several buckets in a model of a few kilobytes
SHARED = {"allreduce": shared.allreduce_inplace, "overlap": False}
RINGS = {"allreduce": ring.allreduce_inplace, "overlap": False, **SMALL}


def mlp(seed: int, dtype=torch.float64) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).to(
        dtype
    )


def points(steps: int, b: int, seed: int = 1, dtype=torch.float64) -> list:
    g = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(b, 5, generator=g, dtype=dtype), torch.randn(b, 1, generator=g, dtype=dtype))
        for _ in range(steps)
    ]


def transformer(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return CharTransformer(11, length=8, width=16, layers=2, heads=2).double()


def texts(steps: int, b: int) -> list:
    g = torch.Generator().manual_seed(3)
    made = [torch.randint(11, (b, 9), generator=g) for _ in range(steps)]
    return [(t[:, :-1], t[:, 1:]) for t in made]


def squares(out, y):
    return ((out - y) ** 2).mean()


def surprise(out, y):
    return F.cross_entropy(out.flatten(0, 1), y.flatten())


PROBLEMS = {"mlp": (mlp, points, squares), "transformer": (transformer, texts, surprise)}


def optimiser(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def vector(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def plain(model, batches, loss) -> list:
    """One process, whole batches: the parameters after each step."""
    opt, path = optimiser(model), []
    for x, y in batches:
        opt.zero_grad()
        loss(model(x), y).backward()
        opt.step()
        path.append(vector(model))
    return path


def cut(x, comm):
    """This rank's rows."""
    return x[comm.rank * len(x) // comm.K : (comm.rank + 1) * len(x) // comm.K]


def in_parallel(comm, make, batches, loss, **settings) -> list:
    model = make(100 + comm.rank)  # every rank its own start: rank 0's must win
    net = DDP(comm, model, **settings)
    opt, path = optimiser(model), []
    for x, y in batches:
        opt.zero_grad()
        loss(net(cut(x, comm)), cut(y, comm)).backward()
        opt.step()
        path.append(vector(model))
    return path


def by_hand(comm, make, batches, loss, average) -> list:
    model = make(100 + comm.rank)
    share_parameters(comm, model)
    opt, path = optimiser(model), []
    for x, y in batches:
        opt.zero_grad()
        loss(model(cut(x, comm)), cut(y, comm)).backward()
        average(comm, model)
        opt.step()
        path.append(vector(model))
    return path


def gap(paths, expected) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(paths, expected, strict=True))


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


@pytest.mark.parametrize("average", [average_gradients, average_gradients_flat])
def test_the_naive_ways_take_the_same_steps(average):
    batches = points(5, 12)
    expected = plain(mlp(100), batches, squares)
    for path in launch(by_hand, 3, mlp, batches, squares, average).results:
        assert gap(path, expected) < 1e-12


def test_summed_in_order_of_rank_it_has_the_bits_of_gradient_accumulation():
    K, batches = 3, points(4, 12)
    model = mlp(100)
    opt, expected = optimiser(model), []
    for x, y in batches:
        total = [torch.zeros_like(p) for p in model.parameters()]
        for k in range(K):
            rows = slice(4 * k, 4 * k + 4)
            grads = torch.autograd.grad(squares(model(x[rows]), y[rows]), list(model.parameters()))
            total = [g * (1 / K) if k == 0 else t + g * (1 / K) for t, g in zip(total, grads, strict=True)]
        for p, g in zip(model.parameters(), total, strict=True):
            p.grad = g
        opt.step()
        expected.append(vector(model))
    settings = {**RINGS, "allreduce": naive.allreduce_inplace}
    run = launch(in_parallel, K, mlp, batches, squares, **settings)
    assert all(torch.equal(a, b) for a, b in zip(run.results[2], expected, strict=True))


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


def test_the_first_bucket_is_smaller_and_one_is_closed_when_it_is_full():
    assert assign([10, 10, 10, 10, 10], [5, 20]) == [[4], [3, 2], [1, 0]]
    assert assign([10, 100, 10], [20]) == [[2, 1], [0]]
    assert assign([], [20]) == []
    with pytest.raises(ValueError, match="limits must be bytes > 0, got \\[0\\]"):
        assign([1], [0])


def test_gradients_are_views_of_their_buckets():
    def f(comm):
        model = mlp(0)
        net = DDP(comm, model, **RINGS)
        for accumulate in (False, True):
            net(torch.randn(4, 5, dtype=torch.float64)).mean().backward()
            pieces = {b.flat.untyped_storage().data_ptr() for b in net.buckets}
            assert {p.grad.untyped_storage().data_ptr() for p in model.parameters()} == pieces, accumulate
        return True

    assert all(launch(f, 2).results)


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
        squares(net(cut(x, comm), takes(comm.rank, t)), cut(y, comm)).backward()
        opt.step()
    return vector(model), [p.grad is None for p in (model.idle.weight, model.branch.weight)]


def takes(rank: int, t: int) -> bool:
    """Who takes the branch: one rank, another one, nobody, ..."""
    return (t + rank) % 3 == 0 and t % 4 != 3


def test_tied_frozen_unused_and_sometimes_unused_parameters():
    K, steps = 2, 8
    model = Awkward(0)
    opt = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    for t, (x, y) in enumerate(points(steps, 12)):
        opt.zero_grad()
        (
            sum(squares(model(x[6 * k : 6 * k + 6], takes(k, t)), y[6 * k : 6 * k + 6]) for k in range(K)) / K
        ).backward()
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
                    (squares(net(cut(x, comm)), cut(y, comm)) / 3).backward()
                continue
            (squares(net(cut(x, comm)), cut(y, comm)) / 3).backward()
            opt.step()
            opt.zero_grad(set_to_none=t == 2)
            path.append(vector(model))
        return path, comm.messages_sent - before, len(net.buckets)

    batches = points(6, 12)
    whole = [tuple(torch.cat(z) for z in zip(*batches[i : i + 3], strict=True)) for i in (0, 3)]
    expected = plain(mlp(0), whole, squares)
    for path, messages, buckets in launch(f, 2, 3).results:
        assert gap(path, expected) < 1e-12
        assert messages == 2 * 2 * (
            buckets + 2
        )  # two sums of each bucket, of the counts and of who used what


@pytest.mark.parametrize("autocast", [True, False])
def test_bfloat16(autocast):
    """Two workers: x + y has one rounding whichever comes first, so the bits are those of the sum by hand."""
    dtype = torch.float32 if autocast else torch.bfloat16

    def loss_of(model, x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return squares(model(x), y)

    def f(comm):
        model = mlp(comm.rank, dtype)
        net = DDP(comm, model, **RINGS)
        x, y = points(1, 12, dtype=dtype)[0]
        loss_of(net, cut(x, comm), cut(y, comm)).backward()
        return [p.grad for p in model.parameters()]

    model = mlp(0, dtype)
    x, y = points(1, 12, dtype=dtype)[0]
    parts = [
        torch.autograd.grad(loss_of(model, x[r], y[r]), list(model.parameters()))
        for r in (slice(6), slice(6, 12))
    ]
    for got in launch(f, 2).results:
        for g, a, b in zip(got, *parts, strict=True):
            assert g.dtype == dtype and torch.equal(g, a * 0.5 + b * 0.5)


# -- uneven batches ---------------------------------------------------------------------------------------------------


def test_uneven_batches_are_refused_unless_weighted():
    batches = points(2, 11)  # 11 rows do not divide by 3
    with pytest.raises(RankError, match="rank 1 brings 4 and rank 0 3; drop the short batch"):
        launch(in_parallel, 3, mlp, batches, squares, **RINGS)
    expected = plain(mlp(100), batches, squares)
    for path in launch(in_parallel, 3, mlp, batches, squares, uneven="weighted", **RINGS).results:
        assert gap(path, expected) < 1e-12
    plain_mean = launch(in_parallel, 3, mlp, batches, squares, uneven=None, **RINGS).results[0]
    assert gap(plain_mean, expected) > 1e-4  # torch's way: runs, and is another algorithm


def test_who_is_out_of_data_keeps_answering():
    batches = points(4, 12)

    def f(comm):
        model = mlp(comm.rank)
        net = DDP(comm, model, uneven="weighted", **RINGS)
        opt = optimiser(model)
        with net.join(opt.step):
            for x, y in batches[comm.rank :]:  # rank 0 has four batches, rank 3 one, rank 4 none at all
                opt.zero_grad()
                squares(net(x[comm.rank :]), y[comm.rank :]).backward()
                opt.step()
        return vector(model)

    model = mlp(0)
    opt = optimiser(model)
    for t in range(4):
        own = [batches[k:][t] for k in range(5) if t < len(batches[k:])]
        x, y = (torch.cat([z[i][k:] for k, z in enumerate(own)]) for i in (0, 1))
        opt.zero_grad()
        squares(model(x), y).backward()
        opt.step()
    for got in launch(f, 5).results:
        assert float((got - vector(model)).abs().max()) < 1e-12


def test_buffers_come_from_the_first_rank_that_had_examples():
    def f(comm):
        model = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)).double()
        net = DDP(comm, model, uneven="weighted", **RINGS)
        opt, own = optimiser(model), None
        with net.join(opt.step):
            for x, _ in points(2, 6, seed=comm.rank)[: 1 + (comm.rank == 1)]:  # rank 0 is through first
                opt.zero_grad()
                net(x).sum().backward()
                own = model[1].running_mean.clone()
                opt.step()
        return model[1].running_mean, own

    results = launch(f, 3).results
    assert all(torch.equal(mean, results[1][1]) for mean, _ in results)
    assert not torch.equal(results[0][1], results[1][1])


def test_joining_needs_a_way_to_weigh():
    for uneven, message in (
        (None, 'uneven must be "weighted" for answer'),
        ("refused", "rank 1 brings 6 and rank 0 0"),
    ):

        def f(comm, uneven=uneven):
            net = DDP(comm, mlp(0), uneven=uneven, **RINGS)
            with net.join(lambda: None):
                for x, y in points(comm.rank, 6):
                    squares(net(x), y).backward()

        with pytest.raises(RankError, match=message):
            launch(f, 2)


def test_an_empty_batch_contributes_nothing_not_nan():
    def f(comm):
        model = mlp(0)
        net = DDP(comm, model, uneven="weighted", **RINGS)
        x, y = points(1, 6)[0]
        rows = slice(0 if comm.rank else 6)
        squares(net(x[rows]), y[rows]).backward()
        return [p.grad for p in model.parameters()]

    model = mlp(0)
    x, y = points(1, 6)[0]
    squares(model(x), y).backward()
    for got in launch(f, 2).results:
        assert all(
            torch.allclose(g, p.grad, atol=1e-14) for g, p in zip(got, model.parameters(), strict=True)
        )


# -- bad input --------------------------------------------------------------------------------------------------------


def wrapped(comm, make, **settings):
    return DDP(comm, make(comm.rank), **{**RINGS, **settings})


@pytest.mark.parametrize(
    "make,message",
    [
        (lambda r: nn.ReLU(), "model must have parameters that want a gradient, but it has none"),
        (lambda r: mlp(0).requires_grad_(False), "but all of its 6 are frozen"),
        (lambda r: [mlp(0)], "model must be a torch.nn.Module, got list"),
        (lambda r: nn.Linear(3, 2 + (r == 2)), r"rank 2 has parameter weight \(3, 3\) float32 where rank 0 has .*\(2, 3\)"),
        (lambda r: nn.Linear(3, 2, bias=r != 1), "rank 1 has 1 parameters and buffers where rank 0 has 2: parameter bias"),
        (lambda r: nn.Linear(3, 2).to(torch.float64 if r == 0 else torch.float32), "rank 0 has .* float64 where rank 1"),
        (lambda r: mlp(0) if r else mlp(0)[:-1], "rank 0 has 4 parameters and buffers where rank 1 has 6"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_wrapped_is_refused_in_one_sentence(make, message):
    with pytest.raises(RankError, match=message):
        launch(wrapped, 4, make)


def test_only_the_odd_rank_is_named():
    with pytest.raises(RankError) as caught:
        launch(wrapped, 4, lambda r: nn.Linear(3, 2 + (r == 2)))
    assert caught.value.ranks == (2,)


def test_a_model_is_wrapped_once_and_can_be_let_go():
    def f(comm):
        model = mlp(comm.rank)
        net = DDP(comm, model, **RINGS)
        with pytest.raises(ValueError, match="a DDP looks after its parameters already"):
            DDP(comm, model, **RINGS)
        net.close()
        again = DDP(comm, model, **RINGS)
        again(torch.ones(2, 5, dtype=torch.float64) * comm.rank).mean().backward()
        return model[0].weight.grad.clone()

    a, b = launch(f, 2).results
    assert torch.equal(a, b)


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"bucket_bytes": 0}, "bucket_bytes must be a number of bytes > 0, got 0"),
        ({"overlap": True}, "this is the simulated world: pass overlap=False"),
        ({"allreduce": None}, "allreduce must be one of labkit.collectives in the simulated world"),
    ],
)
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
        net = DDP(comm, Checkpointed(model), **RINGS)
        x, y = points(1, 12)[0]
        squares(net(cut(x, comm).requires_grad_()), cut(y, comm)).backward()
        return [p.grad for p in model.parameters()]

    class Checkpointed(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            for layer in self.model:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            return x

    model = mlp(0)
    x, y = points(1, 12)[0]
    squares(model(x), y).backward()
    for got in launch(f, 3).results:
        assert all(
            torch.allclose(g, p.grad, atol=1e-14) for g, p in zip(got, model.parameters(), strict=True)
        )


# -- real processes, beside torch's -----------------------------------------------------------------------------------


def beside_torch(comm, batches):
    """Several ways to train one model; the parameters after each step of each."""
    twin = mlp(100 + comm.rank)
    theirs = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(twin), bucket_cap_mb=0.001)
    opt, paths = optimiser(theirs), {"torch": []}
    for x, y in batches:
        opt.zero_grad()
        squares(theirs(cut(x, comm)), cut(y, comm)).backward()
        opt.step()
        paths["torch"].append(vector(theirs))
    make = lambda _: copy.deepcopy(twin)  # noqa: E731
    for name, settings in {
        "torch's sum": {},
        "ring in the background": {"allreduce": ring.allreduce_inplace},
        "shared memory": SHARED,
    }.items():
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
    assert len(paths) == 4


@pytest.mark.processes
@pytest.mark.parametrize(
    "settings", [{}, {"allreduce": ring.allreduce_inplace}, SHARED], ids=["torch", "ring", "shared"]
)
def test_a_rank_that_leaves_early_is_named_not_those_that_wait_for_it(settings):
    def f(comm):
        net = DDP(comm, mlp(comm.rank), **settings)
        for _ in range(1 if comm.rank == 1 else 2):
            net(torch.ones(2, 5, dtype=torch.float64)).mean().backward()

    with pytest.raises(RankError, match="rank 1 returned without joining") as caught:
        launch(f, 3, world=Processes(device="cpu"), timeout_s=30)
    assert caught.value.ranks == (1,)


@pytest.mark.processes
@pytest.mark.parametrize("ours", [True, False])
def test_a_trace_shows_buckets_leave_while_the_backward_pass_goes_on(ours):
    def f(comm):
        layers = [nn.Linear(20, 20) for _ in range(4)]
        allreduce = ring.allreduce_inplace if ours else None
        net = DDP(
            comm, nn.Sequential(*layers), bucket_bytes=1, first_bytes=1, allreduce=allreduce, trace=True
        )

        def go_on_when(buckets: int) -> None:
            """The backward pass stops here until so many buckets, which have left, are summed."""
            deadline = time.monotonic() + 20
            while len(net._recorder._made) < buckets and time.monotonic() < deadline:
                time.sleep(0.001)

        for i, layer in enumerate(layers[:-1]):
            layer.register_full_backward_pre_hook(lambda *_, later=3 - i: go_on_when(2 * later))
        net(torch.randn(3, 20)).sum().backward()
        return net.last_trace

    for trace in launch(f, 2, world=Processes(device="cpu")).results:
        ready = [flight.ready_s for flight in trace.flights]
        assert len(ready) == 8 and ready == sorted(ready)
        assert all(f.ready_s <= f.start_s <= f.end_s <= trace.end_s for f in trace.flights)
        assert [f.end_s <= trace.computed_s for f in trace.flights[:6]] == [
            True
        ] * 6  # all but the first layer's
        assert 0 <= trace.exposed_s < 10
