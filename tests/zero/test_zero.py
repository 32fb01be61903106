"""Sharded training takes the steps of unsharded training, keeps what the formulas say, and sends what they say."""

import gc
from functools import partial

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_models import PROBLEMS as PLAIN  # noqa: E402
from torch_models import gap, mlp, points, rows, squares, surprise, texts, transformer, vector  # noqa: E402

from labkit import Processes, launch  # noqa: E402
from labkit.collectives.ring import all_gather, reduce_scatter  # noqa: E402
from labkit_book.planner.memory import SINGLE  # noqa: E402
from labkit_book.zero import Zero1, Zero2, Zero3  # noqa: E402


def zero_bytes(K, sizes, itemsize, stage, micro_batches=1, free_after_forward=True):
    """Bytes each rank sends in a step, (K,): of each vector, how often stages 1 to 3 reduce-scatter and all-gather it."""
    sums = micro_batches if stage > 1 else 1
    gathers = micro_batches * (2 if free_after_forward else 1) if stage == 3 else 1
    once = ((reduce_scatter.bytes(K, n, itemsize), all_gather.bytes(K, n, itemsize)) for n in sizes)
    return sum(sums * scattered + gathers * gathered for scattered, gathered in once)


STAGES = {1: Zero1, 2: Zero2, 3: Zero3}
ADAMW = {"lr": 0.01, "weight_decay": 0.1}


def tied(seed: int) -> nn.Module:
    model = transformer(seed)
    model.score.weight = model.character.weight  # tied, across what will be two units
    return model


PROBLEMS = {**PLAIN, "transformer": (tied, texts, surprise)}


def whole(opt, model) -> torch.Tensor:
    if not isinstance(opt, Zero3):
        return vector(model)
    with opt.gathered():
        there = vector(model)
    assert not any(p.numel() for p in model.parameters() if p.requires_grad)
    return there


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
    opt, path, sent, spent = STAGES[stage](comm, model, optimizer, **options), [], [], 0
    for t, (x, y) in enumerate(batches):
        with torch.no_grad():
            model(rows(x, comm))  # an evaluation in between
        spent -= comm.bytes_sent
        (loss(model(rows(x, comm)), rows(y, comm)) / micro).backward()
        assert stage < 3 or all(p.numel() == 0 for p in model.parameters() if p.requires_grad)
        if t % micro == micro - 1:
            opt.step()
        spent += comm.bytes_sent
        if t % micro == micro - 1:
            sent.append(spent)
            path.append(whole(opt, model))
            spent = 0
    return path, sent, [flat.n for flat in opt.flats]


@pytest.mark.parametrize(
    "problem,K", [*(("mlp", K) for K in range(1, 6)), ("transformer", 2), ("transformer", 3)]
)
@pytest.mark.parametrize("stage,more", [(1, {}), (2, {}), (3, {}), (3, {"free_after_forward": False})])
def test_every_step_is_the_step_of_unsharded_adamw_and_sends_what_the_formula_says(stage, more, problem, K):
    make, data, loss = PROBLEMS[problem]
    batches = data(3, 60 if problem == "mlp" else 6)
    expected = unsharded(make(100), batches, loss, **ADAMW)
    results = launch(sharded, K, stage, make, batches, loss, **ADAMW, **more).results
    for rank, (path, sent, sizes) in enumerate(results):
        assert gap(path, expected) < 1e-10  # Adam divides small numbers by each other
        assert all(torch.equal(a, b) for a, b in zip(path, results[0][0], strict=True))
        assert set(sent) == {zero_bytes(K, sizes, 8, stage, **more)[rank]}
        assert sum(sizes) == len(expected[0])


@pytest.mark.parametrize("stage", STAGES)
def test_gradients_of_several_backward_passes_gather_for_other_optimizers_too(stage):
    batches, sgd = points(6, 12), {"optimizer": torch.optim.SGD, "lr": 0.1, "momentum": 0.9, "nesterov": True}
    expected = unsharded(mlp(100), batches, squares, micro=3, **sgd)
    results = launch(sharded, 2, stage, mlp, batches, squares, micro=3, **sgd).results
    for rank, (path, sent, sizes) in enumerate(results):
        assert gap(path, expected) < 1e-10
        assert set(sent) == {zero_bytes(2, sizes, 8, stage, micro_batches=3)[rank]}


class Branchy(nn.Module):
    """A frozen layer, one used twice, one that not everybody uses, a parameter in none, an output that is a tuple."""

    def __init__(self, seed: int, recomputed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.twice, self.branch, self.out = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 1)
        self.scale, self.recomputed = nn.Parameter(torch.ones(5)), recomputed
        self.double()

    def forward(self, x, branch=None):
        branch = torch.is_grad_enabled() if branch is None else branch
        again = partial(checkpoint, self.way, use_reentrant=False)
        return (again if self.recomputed else self.way)(x, branch)

    def way(self, x, branch):
        h = self.twice(torch.tanh(self.twice(self.frozen(x)))) * self.scale
        return (self.out(h + self.branch(h) if branch else h),)


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("stage", STAGES)
def test_units_that_are_frozen_used_twice_not_used_or_recomputed(stage, recomputed):
    batches, sgd = points(3, 12), {"optimizer": torch.optim.SGD, "lr": 0.1}
    job = partial(Branchy, recomputed=recomputed), batches, lambda out, y: squares(out[0], y)
    expected = unsharded(Branchy(100), *job[1:], **sgd)
    for path, *_ in launch(sharded, 3, stage, *job, **sgd).results:
        assert gap(path, expected) < 1e-12


@pytest.mark.parametrize("stage", [1, 2])
def test_parameters_that_only_some_ranks_use(stage):
    def loss(model, t, k, x, y, K=2):
        return squares(model(x[k::K], (t + k) % 2)[0], y[k::K]) / K

    def f(comm):
        model = Branchy(comm.rank)
        opt = STAGES[stage](comm, model, torch.optim.SGD, lr=0.1)
        for t, xy in enumerate(points(4, 12)):
            (2 * loss(model, t, comm.rank, *xy)).backward()
            opt.step()
        return vector(model)

    model = Branchy(0)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for t, xy in enumerate(points(4, 12)):
        opt.zero_grad()
        (loss(model, t, 0, *xy) + loss(model, t, 1, *xy)).backward()
        opt.step()
    for got in launch(f, 2).results:
        assert float((got - vector(model)).abs().max()) < 1e-12


def big(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(*[nn.Linear(66, 66, bias=False) for _ in range(6)])


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


def keeps(comm, stage):
    before = live_bytes()
    model = big(comm.rank)
    opt = STAGES[stage](comm, model, torch.optim.AdamW, lr=0.01)
    for _ in range(2):  # the state is made in the first step
        loss = (model(torch.randn(3, 66) + comm.rank) ** 2).mean()
        loss.backward()
        del loss
        kept, alive = opt.kept_bytes(), live_bytes() - before
        opt.step()
    return kept, alive


@pytest.mark.processes
def test_a_worker_keeps_what_the_formula_says_counted_from_every_tensor_alive():
    K, few = 3, 2048  # few: the steps' numbers, seeds and the like
    with Processes(device="cpu").ready(K) as pool:
        for stage in STAGES:
            for kept, alive in launch(keeps, K, stage, world=Processes(pool=pool)).results:
                cut = [stage >= 3, stage >= 2, True]
                said = [P * size / (K if c else 1) for size, c in zip(SINGLE, cut, strict=True)]
                assert list(kept.values()) == said
                assert sum(kept.values()) <= alive <= sum(kept.values()) + few


def test_stage_3_never_has_more_than_one_unit_there():
    def f(comm):
        model, seen = big(comm.rank), []
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


def test_more_workers_than_parameters_are_fine():
    def f(comm, stage):
        model = nn.Linear(1, 2, bias=False)
        opt = STAGES[stage](comm, model, torch.optim.AdamW, lr=0.1)
        before = whole(opt, model).clone()
        model(torch.ones(1, 1) * (comm.rank + 1)).sum().backward()
        opt.step()
        return float((whole(opt, model) - before).abs().min())

    for stage in STAGES:
        assert all(moved > 0.05 for moved in launch(f, 5, stage).results)


def test_a_model_that_cannot_be_sharded_is_refused():
    def f(comm):
        Zero1(comm, model := nn.Linear(1, 2), torch.optim.SGD, lr=0.1)
        for made, why in (
            (
                nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double()),
                "one dtype to be sharded, got .*32.*64",
            ),
            (nn.ReLU(), "parameters that want a gradient, but it has none"),
            (model, "a Zero1 looks after it already"),
        ):
            with pytest.raises(ValueError, match=why):
                Zero2(comm, made, torch.optim.SGD, lr=0.1)

    launch(f, 2)


def beside_fsdp(comm, batches):
    """The largest gap between torch's FSDP and our stage 3."""
    from torch.distributed.fsdp import fully_shard

    ours, theirs = transformer(100), transformer(100)  # not tied: FSDP's units share no weights
    mesh = torch.distributed.init_device_mesh("cpu", (comm.K,))
    for unit in (*theirs.blocks, theirs):
        fully_shard(unit, mesh=mesh)
    zero3 = Zero3(comm, ours, torch.optim.AdamW, **ADAMW)
    adamw = torch.optim.AdamW(theirs.parameters(), **ADAMW)
    for x, y in batches:
        for model, opt in ((ours, zero3), (theirs, adamw)):
            surprise(model(rows(x, comm)), rows(y, comm)).backward()
            opt.step()
            opt.zero_grad()
    gathered = torch.cat([p.full_tensor().detach().reshape(-1) for p in theirs.parameters()])
    return gap([whole(zero3, ours)], [gathered])


@pytest.mark.processes
def test_torchs_fsdp_takes_the_same_steps():
    assert max(launch(beside_fsdp, 2, texts(4, 12), world=Processes(device="cpu")).results) < 1e-10
