"""Learning rates for large batches, momentum under a changing rate, the deep network, and the walk."""

import numpy as np
import pytest

from labkit.learn import MLP, Diverged, LeastSquares, Momentum, linear_data, minibatches, sgd
from labkit.learn.deep import DeepMLP
from labkit.learn.rate_inside import MomentumRateInside
from labkit.learn.schedules import ConstantWarmUp, StepDecay, WarmUp, linear_rate, sqrt_rate
from labkit.learn.walk import walk


@pytest.fixture
def problem():
    X, y, _ = linear_data(60, 4, np.random.default_rng(1))
    return LeastSquares(X, y)


def batches(problem):
    return minibatches(problem.N, 7, np.random.default_rng(2), epochs=None)


def test_the_two_rules_scale_mean_and_variance_of_a_sum_of_steps():
    """One step with K times the batch against K steps: linear keeps the mean of what is added, sqrt its variance."""
    rng, K, b, eta = np.random.default_rng(0), 16, 4, 0.3
    g = 1.0 + rng.standard_normal((20_000, K, b))  # gradients of mean 1, deviation 1
    many = eta * g.mean(axis=2).sum(axis=1)
    one = g.mean(axis=(1, 2))
    assert linear_rate(eta, K) * one.mean() == pytest.approx(many.mean(), rel=1e-12)
    # sigma of a sample variance of n normals is sqrt(2 / n) = 1 %: 5 % is five of them, 6e-7 false alarms
    assert np.var(sqrt_rate(eta, K) * one) == pytest.approx(eta**2 / b, rel=0.05)
    assert sqrt_rate(eta, 4) == pytest.approx(2 * eta) and linear_rate(eta, 1) == sqrt_rate(eta, 1) == eta


def test_warm_up_goes_in_equal_increments_from_start_to_eta_and_stays_there():
    rates = np.array([WarmUp(1.6, 5, start=0.1)(t) for t in range(9)])
    assert rates[0] == pytest.approx(0.1) and np.allclose(rates[5:], 1.6)
    assert np.allclose(np.diff(rates[:6]), 0.3) and WarmUp(1.6, 0)(0) == 1.6


def test_warm_up_into_a_decay_meets_it_where_it_ends():
    eta = WarmUp(StepDecay(1.0, at=(4, 10), factor=0.1), steps=6, start=0.0)
    assert [round(eta(t), 12) for t in (0, 3, 6, 9, 10, 50)] == [0, 0.05, 0.1, 0.1, 0.01, 0.01]


def test_constant_warm_up_jumps():
    assert [ConstantWarmUp(2.0, 3, start=0.5)(t) for t in (0, 2, 3)] == [0.5, 0.5, 2.0]


@pytest.mark.parametrize(
    "bad, named",
    [
        (lambda: linear_rate(0.1, 0), "K"),
        (lambda: sqrt_rate(float("nan"), 2), "eta"),
        (lambda: linear_rate(True, 2), "eta"),
        (lambda: WarmUp(-1.0, 3), "eta"),
        (lambda: WarmUp(1.0, 2.5), "steps"),
        (lambda: WarmUp(1.0, 3, start=-1), "start"),
        (lambda: ConstantWarmUp(1.0, -1, 0.1), "steps"),
        (lambda: StepDecay(1.0, at=(5, 5)), "at"),
        (lambda: MomentumRateInside(1.0), "momentum"),
    ],
)
def test_a_bad_setting_is_named(bad, named):
    with pytest.raises(ValueError, match=named):
        bad()


def test_without_momentum_the_walk_is_sgd(problem):
    eta = WarmUp(0.05, 10)
    one = sgd(problem, np.ones(4), eta, batches(problem), T=20)
    other = np.array(list(walk(problem, np.ones(4), Momentum(0.0), eta, batches(problem), T=20)))
    assert np.array_equal(one[1:], other)


def test_momentum_with_the_rate_inside_is_torchs_only_with_the_correction(problem):
    """Goyal et al. 2017, equation 10, with torch.optim.SGD as the oracle for the rate outside."""
    torch = pytest.importorskip("torch")
    eta = WarmUp(StepDecay(0.03, at=(15,)), 10, start=0.002)
    w = torch.ones(4, dtype=torch.float64, requires_grad=True)
    theirs, optimizer = [], torch.optim.SGD([w], lr=1.0, momentum=0.9)
    for t, idx in zip(range(20), batches(problem), strict=False):
        optimizer.param_groups[0]["lr"] = eta(t)
        w.grad = torch.from_numpy(problem.grad(w.detach().numpy(), idx))
        optimizer.step()
        theirs.append(w.detach().numpy().copy())

    def ours(optimiser):
        return np.array(list(walk(problem, np.ones(4), optimiser, eta, batches(problem), T=20)))

    np.testing.assert_allclose(ours(MomentumRateInside()), theirs, rtol=1e-9)
    np.testing.assert_allclose(ours(Momentum(0.9)), theirs, rtol=1e-9)
    assert np.abs(ours(MomentumRateInside(correct=False)) - theirs).max() > 1e-3


def test_a_correction_by_nothing_is_refused(problem):
    with pytest.raises(ValueError, match="eta must not rise from 0"):
        list(walk(problem, np.ones(4), MomentumRateInside(), WarmUp(0.1, 3), batches(problem), T=3))


def test_the_walk_says_where_it_diverged(problem):
    with pytest.raises(Diverged) as caught:
        list(walk(problem, np.ones(4), Momentum(0.9), 1e3, [None] * 400))
    assert 0 < caught.value.step < 400 and caught.value.eta == 1e3


# -- the deep network -----------------------------------------------------------------------------------------------


def a_net(widths=(5, 7, 3), activation="relu", N=11):
    rng = np.random.default_rng(4)
    return DeepMLP(rng.standard_normal((N, 6)), rng.integers(0, 4, N), widths, 4, activation)


def test_with_one_hidden_layer_it_is_the_mlp():
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((20, 6)), rng.integers(0, 3, 20)
    deep, flat = DeepMLP(X, y, [8], 3, "tanh"), MLP(X, y, 8, 3, "tanh")
    w = deep.init(np.random.default_rng(6))
    assert deep.d == flat.d and np.array_equal(w, flat.init(np.random.default_rng(6)))
    np.testing.assert_allclose(deep.grad(w, [0, 3, 3]), flat.grad(w, [0, 3, 3]), rtol=1e-12)
    assert deep.loss(w) == pytest.approx(flat.loss(w)) and deep.accuracy(w) == flat.accuracy(w)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_loss_and_gradient_are_torchs(activation):
    torch = pytest.importorskip("torch")
    net = a_net(activation=activation)
    w = net.init(np.random.default_rng(7)) + 0.1
    A, parts = torch.from_numpy(net.X), [torch.from_numpy(p.copy()).requires_grad_() for p in net.unpack(w)]
    for i in range(0, len(parts), 2):
        A = torch.nn.functional.linear(A, parts[i], parts[i + 1])
        if i + 2 < len(parts):
            A = getattr(torch, activation)(A)
    loss = torch.nn.functional.cross_entropy(A, torch.from_numpy(net.y))
    loss.backward()
    assert net.loss(w) == pytest.approx(loss.item(), rel=1e-12)
    theirs = np.concatenate([p.grad.numpy().ravel() for p in parts])
    np.testing.assert_allclose(net.grad(w), theirs, rtol=1e-9, atol=1e-12)


def test_sums_over_parts_add_up_to_the_gradient_of_all():
    net = a_net()
    w = net.init(np.random.default_rng(8))
    parts = net.grad_sum(w, [0, 1, 2]) + net.grad_sum(w, np.arange(3, 11)) + net.grad_sum(w, [])
    np.testing.assert_allclose(parts / net.N, net.grad(w), rtol=1e-10, atol=1e-14)


def test_the_layers_cut_w_and_float32_stays_float32():
    net = DeepMLP(np.ones((2, 3), np.float32), [0, 1], (4, 5), 2)
    assert [s.stop - s.start for s in net.layers] == [12, 4, 20, 5, 10, 2] and net.layers[-1].stop == net.d
    w = net.init(np.random.default_rng(0))
    assert w.dtype == net.grad(w).dtype == np.float32


@pytest.mark.parametrize(
    "change, named",
    [
        ({"widths": []}, "widths"),
        ({"widths": [3, 0]}, "widths"),
        ({"widths": [2.0]}, "widths"),
        ({"classes": 1}, "classes"),
        ({"activation": "gelu"}, "activation"),
        ({"y": [0, 9]}, "y must hold labels"),
    ],
)
def test_a_network_that_cannot_be_is_named(change, named):
    good = {"X": np.ones((2, 3)), "y": [0, 1], "widths": [3], "classes": 2}
    with pytest.raises(ValueError, match=named):
        DeepMLP(**good | change)
