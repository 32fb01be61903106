"""Sharded training takes the steps of unsharded training, keeps what the formulas say, and sends what they say."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from labkit import Processes, launch  # noqa: E402
from labkit.comm import RankError  # noqa: E402
from labkit.train.char_model import CharTransformer  # noqa: E402
from labkit_book.planner.memory import MIXED, SINGLE, zero_bytes  # noqa: E402
from labkit_book.zero import Zero1, Zero2, Zero3  # noqa: E402

STAGES = {1: Zero1, 2: Zero2, 3: Zero3}
ADAMW = {"lr": 0.01, "weight_decay": 0.1}


def mlp(seed: int, dtype=torch.float64) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 13), nn.Tanh(), nn.Linear(13, 7), nn.Tanh(), nn.Linear(7, 1)).to(dtype)


def points(steps: int, b: int, dtype=torch.float64) -> list:
    g = torch.Generator().manual_seed(1)
    return [
        (torch.randn(b, 5, generator=g, dtype=dtype), torch.randn(b, 1, generator=g, dtype=dtype))
        for _ in range(steps)
    ]


def transformer(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = CharTransformer(11, length=8, width=16, layers=2, heads=2).double()
    model.score.weight = model.character.weight  # tied, across what will be two units
    return model


def texts(steps: int, b: int) -> list:
    g = torch.Generator().manual_seed(3)
    made = [torch.randint(11, (b, 9), generator=g) for _ in range(steps)]
    return [(t[:, :-1], t[:, 1:]) for t in made]


def squares(out, y):
    return ((out - y) ** 2).mean()


def surprise(out, y):
    return F.cross_entropy(out.flatten(0, 1), y.flatten())


PROBLEMS = {"mlp": (mlp, points, squares), "transformer": (transformer, texts, surprise)}


def vector(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def whole(opt, model) -> torch.Tensor:
    if not isinstance(opt, Zero3):
        return vector(model)
    with opt.gathered():
        return vector(model)


def rows(x, comm):
    return x[comm.rank * len(x) // comm.K : (comm.rank + 1) * len(x) // comm.K]


def unsharded(model, batches, loss, optimizer=torch.optim.AdamW, micro=1, **options) -> list:
    opt, path = optimizer(model.parameters(), **options), []
    for t, (x, y) in enumerate(batches):
        (loss(model(x), y) / micro).backward()
        if t % micro == micro - 1:
            opt.step()
            opt.zero_grad()
            path.append(vector(model))
    return path


def sharded(comm, stage, make, batches, loss, optimizer=torch.optim.AdamW, micro=1, **options):
    model = make(100 + comm.rank)  # every rank its own start: rank 0's must win
    opt, path, sent = STAGES[stage](comm, model, optimizer, **options), [], []
    before = comm.bytes_sent
    for t, (x, y) in enumerate(batches):
        (loss(model(rows(x, comm)), rows(y, comm)) / micro).backward()
        if t % micro == micro - 1:
            opt.step()
            sent.append(comm.bytes_sent - before)
            path.append(whole(opt, model))
            before = comm.bytes_sent
    return path, sent, [flat.n for flat in opt.flats]


def gap(path, expected) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(path, expected, strict=True))


# -- the same steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem,K", [*(("mlp", K) for K in range(1, 6)), ("transformer", 2), ("transformer", 3)]
)
@pytest.mark.parametrize("stage", STAGES)
def test_every_step_is_the_step_of_unsharded_adamw_and_sends_what_the_formula_says(stage, problem, K):
    make, data, loss = PROBLEMS[problem]
    batches = data(3, 60 if problem == "mlp" else 6)
    expected = unsharded(make(100), batches, loss, **ADAMW)
    more = {"bucket_bytes": 900} if stage == 2 else {}
    results = launch(sharded, K, stage, make, batches, loss, **ADAMW, **more).results
    for rank, (path, sent, sizes) in enumerate(results):
        assert gap(path, expected) < 1e-10  # Adam divides small numbers by each other
        assert all(torch.equal(a, b) for a, b in zip(path, results[0][0], strict=True))
        assert set(sent) == {zero_bytes(K, sizes, 8, stage)[rank]}
        assert sum(sizes) == len(expected[0]) and (stage == 1 or len(sizes) > 1)


@pytest.mark.parametrize(
    "optimizer,options",
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (torch.optim.RMSprop, {"lr": 0.01}),
        (torch.optim.Adagrad, {"lr": 0.1}),
        (torch.optim.NAdam, {"lr": 0.01}),
        (torch.optim.AdamW, {"lr": 0.01}),
    ],
)
@pytest.mark.parametrize("stage", STAGES)
def test_any_of_torchs_optimizers(stage, optimizer, options):
    batches = points(4, 12)
    expected = unsharded(mlp(100), batches, squares, optimizer, **options)
    for path, *_ in launch(sharded, 3, stage, mlp, batches, squares, optimizer, **options).results:
        assert gap(path, expected) < 1e-10


@pytest.mark.parametrize("stage", STAGES)
def test_gradients_of_several_backward_passes_gather(stage):
    batches = points(6, 12)
    expected = unsharded(mlp(100), batches, squares, micro=3, **ADAMW)
    results = launch(sharded, 2, stage, mlp, batches, squares, micro=3, **ADAMW).results
    for rank, (path, sent, sizes) in enumerate(results):
        assert gap(path, expected) < 1e-10
        assert set(sent) == {zero_bytes(2, sizes, 8, stage, micro_batches=3)[rank]}


def test_stage_3_that_keeps_parameters_after_the_forward_pass_sends_a_third_less():
    batches = points(3, 12)
    expected = unsharded(mlp(100), batches, squares, **ADAMW)
    settings = {**ADAMW, "free_after_forward": False}
    for rank, (path, sent, sizes) in enumerate(
        launch(sharded, 3, 3, mlp, batches, squares, **settings).results
    ):
        assert gap(path, expected) < 1e-10
        assert set(sent) == {zero_bytes(3, sizes, 8, 3, free_after_forward=False)[rank]}
        assert np.array_equal(
            zero_bytes(3, [120], 8, 3, free_after_forward=False) * 3, zero_bytes(3, [120], 8, 3) * 2
        )


@pytest.mark.parametrize("stage", STAGES)
def test_mixed_precision_steps_a_float32_copy(stage):
    """Two workers: x + y rounds once whichever comes first, so the bits are those of the sum made by hand."""
    batches = points(5, 12, torch.bfloat16)
    make = lambda seed: mlp(seed, torch.bfloat16)  # noqa: E731
    model = make(100)
    masters = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    opt = torch.optim.AdamW(masters, **ADAMW)
    expected = []
    for x, y in batches:
        parts = [
            torch.autograd.grad(squares(model(x[r]), y[r]), list(model.parameters()))
            for r in (slice(6), slice(6, 12))
        ]
        for m, a, b in zip(masters, *parts, strict=True):
            m.grad = (a * 0.5 + b * 0.5).float()
        opt.step()
        for m, p in zip(masters, model.parameters(), strict=True):
            p.data.copy_(m.data)
        expected.append(vector(model))
    for path, *_ in launch(sharded, 2, stage, make, batches, squares, master=True, **ADAMW).results:
        assert gap(path, expected) == 0


class Branchy(nn.Module):
    """A frozen layer, one used twice, one that only some ranks use, an output that is a tuple."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.twice, self.branch, self.out = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 1)
        self.scale = nn.Parameter(torch.ones(5))
        self.double()

    def forward(self, x, branch):
        h = self.twice(torch.tanh(self.twice(self.frozen(x)))) * self.scale
        return (self.out(h + self.branch(h) if branch else h),)


@pytest.mark.parametrize("stage", [1, 2])
def test_parameters_that_only_some_ranks_use(stage):
    def f(comm):
        model = Branchy(comm.rank)
        opt = STAGES[stage](comm, model, torch.optim.SGD, lr=0.1)
        for t, (x, y) in enumerate(points(4, 12)):
            squares(model(rows(x, comm), (t + comm.rank) % 2)[0], rows(y, comm)).backward()
            opt.step()
        return vector(model)

    model = Branchy(0)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for t, (x, y) in enumerate(points(4, 12)):
        opt.zero_grad()
        (
            sum(squares(model(x[r], (t + k) % 2)[0], y[r]) for k, r in enumerate((slice(6), slice(6, 12))))
            / 2
        ).backward()
        opt.step()
    for got in launch(f, 2).results:
        assert float((got - vector(model)).abs().max()) < 1e-12


@pytest.mark.parametrize("checkpointed", [False, True])
def test_stage_3_with_a_unit_used_twice_unused_units_and_recomputed_ones(checkpointed):
    from torch.utils.checkpoint import checkpoint

    def forward(model, x):
        return (checkpoint(model, x, True, use_reentrant=False) if checkpointed else model(x, True))[0]

    def f(comm):
        model = Branchy(comm.rank)
        opt = Zero3(comm, model, torch.optim.SGD, lr=0.1)
        for x, y in points(3, 12):
            with torch.no_grad():
                model(x, False)  # an evaluation in between
            squares(forward(model, rows(x, comm)), rows(y, comm)).backward()
            assert all(p.numel() == 0 for p in model.parameters() if p.requires_grad)
            opt.step()
        return whole(opt, model)

    model = Branchy(0)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in points(3, 12):
        opt.zero_grad()
        squares(model(x, True)[0], y).backward()
        opt.step()
    for got in launch(f, 3).results:
        assert float((got - vector(model)).abs().max()) < 1e-12


# -- what is kept -----------------------------------------------------------------------------------------------------


def big(seed: int, dtype) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(*[nn.Linear(66, 66, bias=False) for _ in range(6)]).to(dtype)


P = 6 * 66 * 66  # divisible by 3 workers


def live_bytes() -> int:
    """Bytes of all tensors alive in this process, each memory once."""
    gc.collect()
    kept = {}
    for t in gc.get_objects():
        if type(t) in (torch.Tensor, nn.Parameter) and t.layout == torch.strided:
            for one in (t, t.grad if t.is_leaf else None):
                if one is not None:
                    kept[one.untyped_storage()._cdata] = one.untyped_storage().nbytes()
    return sum(kept.values())


def keeps(comm, stage, dtype, master):
    before = live_bytes()
    model = big(comm.rank, dtype)
    opt = STAGES[stage](comm, model, torch.optim.AdamW, master=master, lr=0.01)
    for _ in range(2):  # the state is made in the first step
        loss = (model(torch.randn(3, 66, dtype=dtype) + comm.rank) ** 2).mean()
        loss.backward()
        del loss
        kept, alive = opt.kept_bytes(), live_bytes() - before
        opt.step()
    return kept, alive


@pytest.mark.processes
@pytest.mark.parametrize(
    "precision,dtype,master", [(SINGLE, torch.float32, False), (MIXED, torch.bfloat16, True)]
)
def test_a_worker_keeps_what_the_formula_says_counted_from_every_tensor_alive(precision, dtype, master):
    K = 3
    with Processes(device="cpu").ready(K) as pool:
        for stage in STAGES:
            for kept, alive in launch(keeps, K, stage, dtype, master, world=Processes(pool=pool)).results:
                sharded_now = [stage >= 3, stage >= 2, True]
                sizes = [precision.parameter, precision.gradient, precision.state]
                assert list(kept.values()) == [
                    P * size / (K if cut else 1) for size, cut in zip(sizes, sharded_now, strict=True)
                ]
                few = 2048  # the steps' numbers, seeds and the like
                assert sum(kept.values()) <= alive <= sum(kept.values()) + few


def test_stage_3_never_has_more_than_one_unit_there():
    def f(comm):
        model, seen = big(comm.rank, torch.float32), []
        opt = Zero3(comm, model, torch.optim.SGD, lr=0.1)
        here = lambda *_: seen.append(sum(p.numel() for p in model.parameters()))  # noqa: E731
        for layer in model:
            layer.register_forward_hook(here, prepend=True)
            layer.register_full_backward_pre_hook(here)
        x = torch.randn(2, 66, requires_grad=True)
        model(x).sum().backward()
        opt.step()
        return seen

    for seen in launch(f, 2).results:
        assert max(seen) == 66 * 66 and len(seen) == 12


# -- bad input --------------------------------------------------------------------------------------------------------


def opened(comm, stage, make, **options):
    return STAGES[stage](comm, make(comm.rank), torch.optim.SGD, lr=0.1, **options)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    "make,message",
    [
        (lambda r: nn.ReLU(), "model must have parameters that want a gradient, but it has none"),
        (lambda r: nn.Linear(3, 2 + (r == 1)), "rank 1 has parameter weight"),
        (lambda r: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), "parameters of one dtype to be sharded"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_sharded_is_refused_in_one_sentence(stage, make, message):
    with pytest.raises(RankError, match=message):
        launch(opened, 3, stage, make)


@pytest.mark.parametrize("stage", STAGES)
def test_two_optimizers_on_one_model_are_refused_and_a_closed_one_lets_go(stage):
    def f(comm):
        model = mlp(comm.rank)
        first = STAGES[stage](comm, model, torch.optim.SGD, lr=0.1)
        with pytest.raises(ValueError, match=f"a Zero{stage} looks after its parameters already"):
            Zero1(comm, model, torch.optim.SGD, lr=0.1)
        first.close()
        return torch.equal(vector(model), vector(mlp(0))) and bool(
            Zero1(comm, model, torch.optim.SGD, lr=0.1)
        )

    assert all(launch(f, 2).results)


def test_units_must_lie_in_the_model_and_more_workers_than_parameters_are_fine():
    with pytest.raises(RankError, match="units must be modules inside the model, got a Tanh that is not"):
        launch(opened, 2, 3, mlp, units=[nn.Tanh()])

    def f(comm, stage):
        model = nn.Linear(1, 2, bias=False)
        opt = STAGES[stage](comm, model, torch.optim.AdamW, lr=0.1)
        before = whole(opt, model).clone()
        model(torch.ones(1, 1) * (comm.rank + 1)).sum().backward()
        opt.step()
        return float((whole(opt, model) - before).abs().min())

    for stage in STAGES:
        assert all(moved > 0.05 for moved in launch(f, 5, stage).results)


# -- beside torch's ---------------------------------------------------------------------------------------------------


def theirs(comm, batches):
    """torch's DDP with ZeroRedundancyOptimizer, its FSDP, and our three stages, from one start."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer

    start = transformer(100)
    start.score.weight = nn.Parameter(start.score.weight.detach().clone())  # FSDP's units share no weights

    def run(model, net, opt, show):
        path = []
        for x, y in batches:
            surprise(net(rows(x, comm)), rows(y, comm)).backward()
            opt.step()
            opt.zero_grad()
            path.append(show(model))
        return path

    def gathered(model):
        return torch.cat([p.full_tensor().detach().reshape(-1) for p in model.parameters()])

    model = copy.deepcopy(start)
    net = nn.parallel.DistributedDataParallel(model)
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **ADAMW)
    paths = {"ZeroRedundancyOptimizer": run(model, net, zero, vector)}
    model = copy.deepcopy(start)
    mesh = torch.distributed.init_device_mesh("cpu", (comm.K,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    paths["FSDP"] = run(model, model, torch.optim.AdamW(model.parameters(), **ADAMW), gathered)
    for stage, cls in STAGES.items():
        model = copy.deepcopy(start)
        more = {"units": list(model.blocks)} if stage == 3 else {}
        opt = cls(comm, model, torch.optim.AdamW, **ADAMW, **more)
        paths[f"stage {stage}"] = run(model, model, opt, lambda m, opt=opt: whole(opt, m))
    return paths


@pytest.mark.processes
def test_torchs_zero_redundancy_optimizer_and_fsdp_take_the_same_steps():
    batches = texts(4, 12)
    first, *_ = results = launch(theirs, 2, batches, world=Processes(device="cpu")).results
    assert set(first) == {"ZeroRedundancyOptimizer", "FSDP", "stage 1", "stage 2", "stage 3"}
    for paths in results:
        for path in paths.values():
            assert gap(path, first["ZeroRedundancyOptimizer"]) < 1e-10
