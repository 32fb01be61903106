"""The optimisers take torch's steps, and remember nothing that is not handed to them."""

import numpy as np
import pytest

from labkit.learn import AdamW, Momentum

torch = pytest.importorskip("torch")


def paths(rule, make, eta=0.05, steps=40, dtype=np.float64):
    """The path of a rule and of torch's optimiser along the same gradients, which depend on where each one is."""
    rng = np.random.default_rng(4)
    A = rng.standard_normal((6, 6))
    noise = rng.standard_normal((steps, 6))
    w = rng.standard_normal(6).astype(dtype)
    v = torch.tensor(w, requires_grad=True)
    optimiser, memory = make([v], eta), rule.start(w)
    ours, theirs = [], []
    for n in noise:
        w, memory = rule.step(w, (A @ np.tanh(w) + n).astype(dtype), eta, memory)
        v.grad = torch.from_numpy((A @ np.tanh(v.detach().numpy()) + n).astype(dtype))
        optimiser.step()
        ours.append(w)
        theirs.append(v.detach().numpy().copy())
    assert ours[0].dtype == dtype and np.ptp(ours) > 0.5
    return np.array(ours), np.array(theirs)


@pytest.mark.parametrize("dtype,close", [(np.float64, 1e-12), (np.float32, 2e-4)])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adamw_is_torch_s_adamw(decay, dtype, close):
    ours, theirs = paths(
        AdamW(beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=decay),
        lambda p, lr: torch.optim.AdamW(p, lr=lr, betas=(0.8, 0.95), eps=1e-6, weight_decay=decay),
        dtype=dtype,
    )
    np.testing.assert_allclose(ours, theirs, rtol=close, atol=close)


def test_adamw_s_defaults_are_torch_s():
    ours, theirs = paths(AdamW(), lambda p, lr: torch.optim.AdamW(p, lr=lr))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("momentum,nesterov", [(0.0, False), (0.9, False), (0.9, True), (0.0, True)])
def test_momentum_is_torch_s_sgd(momentum, nesterov):
    ours, theirs = paths(
        Momentum(momentum, nesterov),
        lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=momentum, nesterov=nesterov and momentum > 0),
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("rule", [AdamW(), Momentum(0.9, nesterov=True)])
def test_a_step_changes_neither_w_nor_g_nor_the_memory(rule):
    w, g = np.arange(3.0), np.ones(3)
    memory = rule.start(w)
    _, memory = rule.step(w, g, 0.1, memory)
    before = [np.copy(part) for part in memory]
    one, _ = rule.step(w, g, 0.1, memory)
    two, _ = rule.step(w, g, 0.1, memory)
    assert one.tobytes() == two.tobytes()
    np.testing.assert_array_equal(w, np.arange(3.0))
    np.testing.assert_array_equal(g, np.ones(3))
    for part, was in zip(memory, before, strict=True):
        np.testing.assert_array_equal(part, was)


@pytest.mark.parametrize(
    "make,says",
    [
        (lambda: Momentum(1.0), "momentum must be at least 0 and below 1, got 1.0"),
        (lambda: Momentum(float("nan")), "momentum must be"),
        (lambda: AdamW(beta1=-0.1), "beta1 must be at least 0 and below 1, got -0.1"),
        (lambda: AdamW(beta2=1.0), "beta2 must be"),
        (lambda: AdamW(eps=0.0), "eps must be finite and > 0, got 0.0"),
        (lambda: AdamW(weight_decay=float("inf")), "weight_decay must be finite and >= 0, got inf"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make()
