"""The reference run of 10.3: K = 8 workers of 512 examples against one with all 4096, 30 steps from zero."""

import numpy as np

from labkit.learn import linear_data, split

N, d, K, ETA, T = 4096, 20, 8, 0.05, 30
SHARDS = split(np.arange(N), K)


def one_by_one(X, y, w):
    """The gradient, products and examples added strictly in their order: the same bits on every machine."""
    z = np.add.reduce(X.T.copy() * w[:, None], axis=0)
    return 2 * np.add.reduce(X * (z - y)[:, None], axis=0) / len(y)


def descent(gradient):
    """All T + 1 iterates, (31, 20), of plain gradient descent from zero."""
    w = np.zeros(d)
    iterates = [w]
    for _ in range(T):
        w = w - ETA * gradient(w)
        iterates.append(w)
    return np.array(iterates)


def test_adding_examples_in_order_gives_the_printed_digits():
    rng = np.random.default_rng(7)
    X, w_true = rng.standard_normal((N, d)), rng.standard_normal(d)
    noise = rng.standard_normal(N)
    # y too with sums in order, so that no bit depends on a library's matrix product
    y = np.add.reduce(X.T.copy() * w_true[:, None], axis=0) + 0.1 * noise
    np.testing.assert_allclose(y, linear_data(N, d, np.random.default_rng(7))[1], rtol=1e-12, atol=1e-14)
    alone = descent(lambda w: one_by_one(X, y, w))
    together = descent(lambda w: np.mean([one_by_one(X[s], y[s], w) for s in SHARDS], axis=0))
    assert f"{np.abs(together - alone).max():.2e}" == "6.66e-16"
    assert f"{np.linalg.norm(together[-1] - alone[-1]):.0e}" == "3e-16"
