"""Why-boxes of lab A by plain loops: who needs which element, every message of every ring, two queues over time."""

import numpy as np
import pytest
from replay import messages


def test_why_a_bytes():
    """A cut Adam takes the same steps, a cut optimizer with a length does not; bytes by asking who needs which element."""
    rng, K, P = np.random.default_rng(0), 3, 24
    chunks = np.array_split(np.arange(P), K)

    def adam(w, g, m, v):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        return w - 0.01 * m / (np.sqrt(v) + 1e-8), m, v

    w, g, m, v = (np.abs(rng.normal(size=P)) for _ in range(4))
    whole = adam(w, g, m, v)
    parts = [adam(w[c], g[c], m[c], v[c]) for c in chunks]
    joined = [np.concatenate(each) for each in zip(*parts, strict=True)]
    assert np.array_equal(whole, joined)
    clipped = np.concatenate([g[c] / np.linalg.norm(g[c]) for c in chunks])
    assert not np.allclose(clipped, g / np.linalg.norm(g))

    size = {"parameter": 2, "gradient": 2, "master": 4, "first": 4, "second": 4}
    for stage, said in enumerate((16, 4 + 12 / K, 2 + 14 / K, 16 / K)):
        whole = {what for what in size if stage < {"parameter": 3, "gradient": 2}.get(what, 1)}
        every = [(what, i, mine) for what in size for mine in chunks for i in range(P)]
        kept = sum(size[what] for what, i, mine in every if what in whole or i in mine)
        assert kept / (K * P) == pytest.approx(said)


def test_why_a_traffic():
    K, n = 5, 100.0
    unit = (K - 1) / K * n

    def step(stage, m, keeps=False):
        passes = m * (2 - keeps) if stage == 3 else 0  # parameters
        passes += m if stage >= 2 else 1  # gradients
        passes += stage <= 2  # gradients again, or new parameters
        return passes * sum(b for src, _, b in messages(range(K), n) if src == 0) / unit

    for m in (1, 2, 4, 7):
        said = [2, 2, m + 1, 3 * m]
        assert [step(stage, m) for stage in range(4)] == pytest.approx(said)
    assert step(2, 4) / 2 == pytest.approx(2.5) and step(3, 1, keeps=True) == pytest.approx(2)


def test_why_a_hidden():
    """Two queues, computation and network, layer by layer; the least batch at which the computation never waits."""
    K, e, F, beta = 4, 2, 3e9, 5e6
    said = (K - 1) / K * e * F / (2 * beta)

    def waits(b, p, flops, vectors):
        """Seconds that the computation waits, after the first gather, for vectors sent a layer."""
        compute, send = flops * p * b / F, vectors * (K - 1) / K * e * p / beta
        there, clock, waited = send, send, 0.0
        for _ in range(20):
            asked = max(clock, there)
            clock, there = asked + compute, asked + send
            waited += max(0.0, there - clock)
        return waited

    for p in (1e5, 7e6):
        for flops, vectors in ((2, 1), (4, 2)):  # forward: a gather; backward: that and a reduce-scatter
            assert waits(1.001 * said, p, flops, vectors) == 0 < waits(0.999 * said, p, flops, vectors)
        assert waits(1.5 * said, p, 2, 2) > 0
