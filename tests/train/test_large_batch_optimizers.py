"""LARS, LAMB and sharpness: numpy equals torch, both equal an independent implementation, and the edges are defined."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labkit.learn.lamb import LAMB  # noqa: E402
from labkit.learn.lars import LARS  # noqa: E402
from labkit.learn.layers import Layer, layers_of  # noqa: E402
from labkit.learn.optimisers import AdamW, Momentum  # noqa: E402
from labkit.train.lamb import LAMB as TorchLAMB  # noqa: E402
from labkit.train.lars import LARS as TorchLARS  # noqa: E402
from labkit.train.sharpness import sharpness  # noqa: E402

SHAPES = [(4, 3), (4,), (2, 4), (2,)]


def tensors(seed, scale=1.0, dtype=torch.float64):
    """One tensor per shape, the second a bias of zeros, as networks begin."""
    rng = np.random.default_rng(seed)
    parts = [scale * rng.standard_normal(shape) for shape in SHAPES]
    parts[1] *= 0
    return [torch.tensor(p, dtype=dtype, requires_grad=True) for p in parts]


def gradients(T=8):
    rng = np.random.default_rng(11)
    return [[rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3) for shape in SHAPES] for _ in range(T)]


def flat(parts):
    return np.concatenate([np.asarray(p.detach() if hasattr(p, "detach") else p).ravel() for p in parts])


def by_torch(params, make, rates, grads):
    """Every iterate, flat, of a torch optimizer whose rate changes."""
    optimizer, path = make(params), []
    for lr, gs in zip(rates, grads, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        for p, g in zip(params, gs, strict=True):
            p.grad = torch.tensor(g, dtype=p.dtype)
        optimizer.step()
        path.append(flat(params).copy())
    return np.array(path)


def by_numpy(w, optimiser, rates, grads):
    memory, path = optimiser.start(w), []
    for eta, gs in zip(rates, grads, strict=True):
        before = w.copy()
        new, memory = optimiser.step(w, flat(gs), eta, memory)
        assert np.array_equal(w, before)  # returned, not changed
        w = new
        path.append(w)
    return np.array(path)


RATES = [0.1, 0.2, 0.3, 0.3, 0.3, 0.05, 0.05, 0.4]
LARS_SETTINGS = [
    {},
    {"weight_decay": 0.1, "trust": 0.02},
    {"rate_inside": False, "weight_decay": 0.1},
    {"clip": True, "trust": 0.5},
    {"clip": True, "trust": 0.5, "rate_inside": False, "eps": 1e-3, "momentum": 0.0},
]
LAMB_SETTINGS = [
    {},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "correct_bias": False, "longest": 1.5, "trust_eps": 1e-2},
    {"beta1": 0.5, "beta2": 0.9, "eps": 1e-2},
]


@pytest.mark.parametrize("settings", LARS_SETTINGS)
@pytest.mark.parametrize("vectors", [False, True])
def test_lars_in_numpy_is_lars_in_torch(settings, vectors):
    adapt = True if vectors else None
    theirs = by_torch(tensors(1), lambda p: TorchLARS(p, lr=1.0, adapt=adapt, **settings), RATES, gradients())
    ours = by_numpy(flat(tensors(1)), LARS(layers_of(SHAPES, vectors), **settings), RATES, gradients())
    np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("settings", LAMB_SETTINGS)
@pytest.mark.parametrize("vectors", [False, True])
def test_lamb_in_numpy_is_lamb_in_torch(settings, vectors):
    adapt, ours = True if vectors else None, LAMB(layers_of(SHAPES, vectors), **settings)
    asked = {k: v for k, v in settings.items() if not k.startswith("beta")}
    asked["betas"] = ours.beta1, ours.beta2
    theirs = by_torch(tensors(1), lambda p: TorchLAMB(p, lr=1.0, adapt=adapt, **asked), RATES, gradients())
    np.testing.assert_allclose(
        by_numpy(flat(tensors(1)), ours, RATES, gradients()), theirs, rtol=1e-11, atol=1e-13
    )


@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_lars_agrees_with_pytorch_optimizer(decay):
    theirs = pytest.importorskip("pytorch_optimizer").LARS
    settings = {"weight_decay": decay, "momentum": 0.8}
    one = by_torch(
        tensors(2), lambda p: theirs(p, lr=1.0, trust_coefficient=0.01, **settings), RATES, gradients()
    )
    same = by_torch(
        tensors(2), lambda p: TorchLARS(p, 1.0, trust=0.01, rate_inside=False, **settings), RATES, gradients()
    )
    paper = by_torch(tensors(2), lambda p: TorchLARS(p, 1.0, trust=0.01, **settings), RATES, gradients())
    np.testing.assert_allclose(same, one, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(paper[0], one[0], rtol=1e-11)  # until the rate changes
    assert np.abs(paper - one).max() > 1e-3  # it changes: inside is not outside


@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_lamb_agrees_with_pytorch_optimizer(decay):
    """Theirs divides the rate by 1 - beta1^t instead of correcting the moments (``adam_debias`` turns that off),
    limits a layer's norm to 10, and adds eps to the direction's norm."""
    theirs = pytest.importorskip("pytorch_optimizer").Lamb
    settings = {"weight_decay": decay, "eps": 1e-4}
    convention = {"correct_bias": False, "longest": 10.0, "trust_eps": 1e-4, "adapt": True}
    for scale in (1.0, 30.0):  # norms below and above their limit
        one = by_torch(
            tensors(3, scale),
            lambda p: theirs(p, 1.0, weight_decouple=False, adam_debias=True, **settings),
            RATES,
            gradients(),
        )
        same = by_torch(
            tensors(3, scale), lambda p: TorchLAMB(p, 1.0, **settings, **convention), RATES, gradients()
        )
        np.testing.assert_allclose(same, one, rtol=1e-10, atol=1e-12)


def test_lamb_that_adapts_nothing_is_adamw():
    """The oracle is torch.optim.AdamW, and the AdamW of this house."""
    layers = (Layer(0, 26, adapt=False),)
    ours = by_numpy(flat(tensors(4)), LAMB(layers, eps=1e-8, weight_decay=0.1), RATES, gradients())
    theirs = by_torch(
        tensors(4), lambda p: torch.optim.AdamW(p, lr=1.0, weight_decay=0.1), RATES, gradients()
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        ours, by_numpy(flat(tensors(4)), AdamW(weight_decay=0.1), RATES, gradients()), rtol=1e-9
    )


def test_lars_that_adapts_nothing_is_momentum():
    ours = by_numpy(
        flat(tensors(4)), LARS((Layer(0, 26, adapt=False),), rate_inside=False), RATES, gradients()
    )
    np.testing.assert_allclose(
        ours, by_numpy(flat(tensors(4)), Momentum(0.9), RATES, gradients()), rtol=1e-12
    )


def test_the_first_step_of_an_adapted_layer_is_a_fixed_share_of_its_length():
    """LARS: eta trust |w_l|; LAMB: eta |w_l|; whatever the gradient's scale."""
    w, layers = flat(tensors(5)), layers_of(SHAPES)
    for scale in (1e-6, 1.0, 1e6):
        g = scale * flat(gradients()[0])
        for optimiser, share in ((LARS(layers, trust=0.01), 0.01), (LAMB(layers, eps=1e-30), 1.0)):
            new, _ = optimiser.step(w, g, 0.5, optimiser.start(w))
            for layer in layers[::2]:
                moved, length = np.linalg.norm((new - w)[layer.at]), np.linalg.norm(w[layer.at])
                assert moved == pytest.approx(0.5 * share * length, rel=1e-9)


@pytest.mark.parametrize("kind", ["LARS", "LAMB"])
def test_zero_weights_and_zero_gradients_are_defined(kind):
    layers = layers_of([(2, 2), (3, 1)])
    optimiser = LARS(layers) if kind == "LARS" else LAMB(layers)
    w, g = np.array([0, 0, 0, 0, 1.0, 2, 3]), np.array([1.0, -2, 3, -4, 0, 0, 0])
    new, _ = optimiser.step(w, g, 0.1, optimiser.start(w))
    assert np.isfinite(new).all() and np.array_equal(new[4:], w[4:])
    plain = 0.1 * g[:4] if kind == "LARS" else 0.1 * np.sign(g[:4])
    np.testing.assert_allclose(new[:4], -plain, rtol=1e-5)  # ratio 1
    p = (
        torch.tensor(w[:4].reshape(2, 2), requires_grad=True),
        torch.tensor(w[4:].reshape(3, 1), requires_grad=True),
    )
    for part, grad in zip(p, (g[:4], g[4:]), strict=True):
        part.grad = torch.tensor(grad).reshape(part.shape)
    (TorchLARS if kind == "LARS" else TorchLAMB)(p, lr=0.1).step()
    np.testing.assert_allclose(flat(p), new, rtol=1e-12)


@pytest.mark.parametrize("make", [TorchLARS, TorchLAMB])
def test_torch_manners(make):
    """Sparse gradients refused, no gradient no step, groups of their own, state saved and loaded, bad settings named."""
    table = torch.nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="dense gradients"):
        make(table.parameters(), lr=0.1).step()
    with pytest.raises(ValueError, match="lr must be"):
        make([torch.ones(2, requires_grad=True)], lr=-1.0)
    with pytest.raises(ValueError, match="weight_decay must be"):
        make([{"params": [torch.ones(2, requires_grad=True)], "weight_decay": float("nan")}], lr=0.1)

    still, frozen, moved = (torch.ones(2, 2, requires_grad=True) for _ in range(3))
    frozen.grad, moved.grad = torch.ones(2, 2), torch.ones(2, 2)
    one = make([{"params": [still, moved]}, {"params": [frozen], "lr": 0.0}], lr=0.1)
    assert one.step(lambda: torch.tensor(3.0)).item() == 3.0
    assert bool((still == 1).all() and (frozen == 1).all() and (moved != 1).all())

    twin = copy.deepcopy(moved)
    other = make([{"params": [still, twin]}, {"params": [frozen], "lr": 0.0}], lr=0.7)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    moved.grad, twin.grad = torch.full((2, 2), 0.3), torch.full((2, 2), 0.3)
    one.step(), other.step()
    assert bool((moved == twin).all())


def test_layers_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="layers must cover w"):
        optimiser = LARS((Layer(0, 2), Layer(3, 4)))
        optimiser.step(np.ones(4), np.ones(4), 0.1, optimiser.start(np.ones(4)))
    with pytest.raises(ValueError, match="g must have"):
        LAMB((Layer(0, 4),)).step(np.ones(4), np.ones(3), 0.1, LAMB((Layer(0, 4),)).start(np.ones(4)))
    for bad in (
        lambda: Layer(3, 2),
        lambda: layers_of([]),
        lambda: LARS((), momentum=1.0),
        lambda: LAMB((), eps=0.0),
    ):
        with pytest.raises(ValueError, match="must"):
            bad()


def test_sharpness_is_the_hessians_largest_eigenvalue():
    rng = np.random.default_rng(6)
    X = torch.tensor(rng.standard_normal((30, 5)) * [3.0, 1, 1, 1, 1])  # one sharp direction
    W = [torch.tensor(rng.standard_normal(s), requires_grad=True) for s in ((4, 5), (4,))]

    def loss(A=W[0], b=W[1]):
        return torch.tanh(X @ A.T + b).square().mean() + (A**2).sum() * 0.01

    def of_flat(w):
        return loss(w[:20].reshape(4, 5), w[20:])

    H = torch.autograd.functional.hessian(of_flat, torch.cat([p.detach().ravel() for p in W]))
    eigenvalues = np.linalg.eigvalsh(H.numpy())
    largest = eigenvalues[np.abs(eigenvalues).argmax()]
    found = sharpness(loss, W, torch.Generator().manual_seed(0), iterations=300, rtol=1e-8)
    assert found == pytest.approx(largest, rel=1e-3)
    assert sharpness(lambda: -loss(), W, torch.Generator().manual_seed(0), 5000, 1e-10) == pytest.approx(
        -found
    )


def test_sharpness_of_nothing_is_refused_and_of_a_plane_is_zero():
    w, generator = torch.ones(3, requires_grad=True), torch.Generator()
    assert sharpness(lambda: w.sum() + 0 * (w**2).sum(), [w], generator) == 0
    with pytest.raises(ValueError, match="params must hold"):
        sharpness(lambda: w.sum(), [], generator)
    with pytest.raises(ValueError, match="loss must be finite"):
        sharpness(lambda: w.sum() * float("inf"), [w], generator)


@pytest.mark.parametrize("optimiser", [LARS(layers_of(SHAPES), weight_decay=0.1), LAMB(layers_of(SHAPES))])
def test_single_precision_stays_single_and_huge_gradients_stay_finite(optimiser):
    w, g = flat(tensors(1)).astype(np.float32), np.full(26, 1e12, np.float32)
    memory = optimiser.start(w)
    for _ in range(3):
        w, memory = optimiser.step(w, g, 1e-15, memory)
    assert w.dtype == memory[0].dtype == np.float32 and np.isfinite(w).all()
