"""The step-time figure shows labkit's numbers: closed forms, overlap, and the K from which communication is longer."""

from typing import Any

import numpy as np
import pytest

from labkit import Link
from labkit.collectives import ALLREDUCES

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
ALGORITHMS = ["ring", "tree", "halving", "doubling", "naive"]


def comm_s(K: Any, s: dict[str, Any]) -> Any:
    """Seconds of communication in a step of K workers, hidden or not."""
    part = s["P"] * s["itemsize"] / s["buckets"]
    return s["buckets"] * ALLREDUCES[s["algorithm"]].time(K, part, Link(s["alpha"], s["beta"]))


def step_s(K: int, s: dict[str, Any]) -> float:
    """Seconds of a step of K workers."""
    back, comm, L = s["backward"] * s["t_comp"], comm_s(K, s), s["buckets"]
    # with equal buckets the last is late behind the backward pass, or all of them behind the first
    return s["t_comp"] - back + max(back + comm / L, back / L + comm)


def takes_over(first: int | None, s: dict[str, Any]) -> bool:
    """Whether ``first`` is the smallest K at which communication takes longer than computation, up to ties."""
    longer = lambda K: comm_s(K, s) > s["t_comp"] * (1 + 1e-12)  # noqa: E731
    if first is None:
        return not longer(np.array([2**m for m in range(53)])).any()
    before = np.unique(np.concatenate([np.arange(1, min(first, 3000)), [max(1, first - 1)]]))
    return bool(longer(first)) and (first == 1 or not longer(before).any())


def settings(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "P": float(rng.choice([0.0, *(10 ** rng.uniform(3, 11, 9))])), "itemsize": int(rng.choice([1, 2, 4, 8])),
        "t_comp": float(rng.choice([0.0, *(10 ** rng.uniform(-3, 1, 9))])),
        "alpha": float(rng.choice([0.0, *(10 ** rng.uniform(-7, -2, 4))])), "beta": float(10 ** rng.uniform(7, 12)),
        "K": int(rng.choice([1, 2, 3, *rng.integers(4, 5000, 3)])), "algorithm": str(rng.choice(ALGORITHMS)),
        "buckets": int(rng.choice([1, 1, 2, 7, 32])), "backward": float(rng.choice([0.0, 0.5, 2 / 3, 1.0])),
    }  # fmt: skip


def test_its_numbers_are_labkits(figure_page: Any) -> None:
    rng = np.random.default_rng(903)
    asked = [settings(rng) for _ in range(200)]
    with figure_page("step_time") as page:
        shown = page.evaluate("all => all.map((s) => lab.compute(s))", asked)
    for state, seen in zip(asked, shown, strict=True):
        Ks = [state["K"], *(bar["K"] for bar in seen["bars"])]
        theirs = [(bar["t_comm"], bar["step_s"]) for bar in (seen, *seen["bars"])]
        np.testing.assert_allclose(theirs, [(comm_s(K, state), step_s(K, state)) for K in Ks], rtol=1e-12)
        exposed = max(0.0, step_s(state["K"], state) - state["t_comp"])
        parts, off = [exposed, seen["t_comm"] - exposed], 1e-12 * (1 + seen["step_s"])
        np.testing.assert_allclose([seen["exposed_s"], seen["hidden_s"]], parts, atol=off)
        assert takes_over(seen["takeover"], state)
