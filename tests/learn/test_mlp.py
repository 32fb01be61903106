"""A network of any depth against torch's autograd; one layer is the list of one."""

import numpy as np
import pytest

from labkit.learn import MLP, digits, minibatches


def a_net(widths=(5, 7, 3), activation="relu", N=11):
    rng = np.random.default_rng(4)
    return MLP(rng.standard_normal((N, 6)), rng.integers(0, 4, N), widths, 4, activation)


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
    net = MLP(np.ones((2, 3), np.float32), [0, 1], (4, 5), 2)
    assert [s.stop - s.start for s in net.layers] == [12, 4, 20, 5, 10, 2] and net.layers[-1].stop == net.d
    w = net.init(np.random.default_rng(0))
    assert w.dtype == net.grad(w).dtype == np.float32


@pytest.mark.parametrize(
    "change, named",
    [
        ({"hidden": []}, "hidden"),
        ({"hidden": [3, 0]}, "hidden"),
        ({"hidden": [2.0]}, "hidden"),
        ({"classes": 1}, "classes"),
        ({"activation": "gelu"}, "activation"),
        ({"y": [0, 9]}, "y must hold labels"),
    ],
)
def test_a_network_that_cannot_be_is_named(change, named):
    good = {"X": np.ones((2, 3)), "y": [0, 1], "hidden": [3], "classes": 2}
    with pytest.raises(ValueError, match=named):
        MLP(**good | change)


def test_it_lays_its_parameters_out_as_documented_and_learns():
    rng = np.random.default_rng(1)
    data = digits(rng)
    net = MLP(data.X, data.y, hidden=16, classes=10)
    w = net.init(rng)
    assert w.shape == (net.d,) == (64 * 16 + 16 + 16 * 10 + 10,)
    W1, b1, W2, b2 = net.unpack(w)
    assert [part.shape for part in (W1, b1, W2, b2)] == [(16, 64), (16,), (10, 16), (10,)]
    np.testing.assert_array_equal(W1.ravel(), w[: 16 * 64])
    assert net.accuracy(w) < 0.4
    for idx in minibatches(net.N, 32, rng, epochs=6):
        w = w - 0.5 * net.grad(w, idx)
    assert net.accuracy(w) > 0.9
    assert MLP(data.X_test, data.y_test, [16], 10).accuracy(w) > 0.85
    with pytest.raises(ValueError, match="at least one"):
        net.accuracy(w, idx=[])
