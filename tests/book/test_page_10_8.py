"""Page 10.8, layer by layer: its LARS and LAMB are pytorch_optimizer's."""

from pathlib import Path

import myst
import numpy as np
import pytest

torch = pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "notebooks" / "10_8_layer_by_layer.md"
SHAPES = [(4, 3), (4,), (2, 4), (2,)]
AT = [slice(0, 12), slice(12, 16), slice(16, 24), slice(24, 26)]


@pytest.fixture(scope="module")
def page():
    """LARS and LAMB, from the page's cells."""
    names = {"np": np, "norm": np.linalg.norm}
    for cell in myst.codes(PAGE.read_text(encoding="utf-8")):
        for name in ("class LARS", "class LAMB"):
            if name in cell:
                exec(name + cell.partition(name)[2].partition("\n\n\n")[0], names)
    return names


def gradients(T=8):
    rng = np.random.default_rng(11)
    return [
        np.concatenate([rng.standard_normal(s).ravel() * 10.0 ** rng.integers(-3, 3) for s in SHAPES])
        for _ in range(T)
    ]


def start(scale=1.0):
    w = scale * np.random.default_rng(2).standard_normal(26)
    w[AT[1]] = 0.0  # a bias of zeros, as networks begin
    return w


def ours(rule, w, rates):
    memory, path = rule.start(w), []
    for eta, g in zip(rates, gradients(), strict=True):
        w, memory = rule.step(w, g, eta, memory)
        path.append(w)
    return np.array(path)


def theirs(make, w, rates, parts=(0, 1, 2, 3)):
    """Every iterate of a torch optimizer whose rate changes; only these parts of w."""
    params = [torch.tensor(w[AT[i]].reshape(SHAPES[i]), requires_grad=True) for i in parts]
    optimizer, path = make(params), []
    for eta, g in zip(rates, gradients(), strict=True):
        optimizer.param_groups[0]["lr"] = eta
        for i, p in zip(parts, params, strict=True):
            p.grad = torch.tensor(g[AT[i]].reshape(SHAPES[i]))
        optimizer.step()
        path.append(np.concatenate([p.detach().numpy().ravel() for p in params]))
    return np.array(path)


def test_lars_is_pytorch_optimizers_while_the_rate_stands_still(page):
    """Theirs has the rate outside the velocity, the paper inside: once it changes the two are not the same."""
    LARS = pytest.importorskip("pytorch_optimizer").LARS

    def make(p):
        return LARS(p, lr=1.0, trust_coefficient=0.01, momentum=0.8)

    rule = page["LARS"](AT, c=0.01, m=0.8)
    still, rising = [0.3] * 8, [0.1, 0.2, 0.3, 0.3, 0.3, 0.05, 0.05, 0.4]
    np.testing.assert_allclose(
        ours(rule, start(), still), theirs(make, start(), still), rtol=1e-10, atol=1e-13
    )
    mine, other = ours(rule, start(), rising), theirs(make, start(), rising)
    np.testing.assert_allclose(mine[0], other[0], rtol=1e-10)
    assert np.abs(mine - other).max() > 1e-3


def test_lamb_is_pytorch_optimizers_where_the_bias_correction_cancels(page):
    """Theirs does not correct the moments: that scales a layer's direction, whose length is divided out, but for eps."""
    Lamb = pytest.importorskip("pytorch_optimizer").Lamb
    weights, rates = (0, 2), [0.1, 0.2, 0.3, 0.3, 0.3, 0.05, 0.05, 0.4]
    mine = ours(page["LAMB"](AT), start(), rates)[:, np.r_[AT[0], AT[2]]]
    other = theirs(
        lambda p: Lamb(p, 1.0, weight_decay=0.0, adam_debias=True, eps=1e-9), start(), rates, weights
    )
    np.testing.assert_allclose(mine, other, rtol=5e-3, atol=1e-4)
