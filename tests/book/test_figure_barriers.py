"""The barrier figure makes labkit's timelines: on the same draws every span, and every number below, is equal."""

import json
import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from labkit import timing
from labkit_book.labs.figures.barriers import METHODS

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser
LAWS = ("constant", "uniform", "exponential", "pareto")
NUMBERS = ("elapsed_s", "waiting", "rate", "staleness", "stalest", "free_s")


def law_of(s: dict[str, Any]) -> Any:
    """The law of a state's name, with its mean and its standard deviation of `spread` means."""
    mean, deviation, shape = s["mean_s"], s["spread"] * s["mean_s"], 1 + math.sqrt(1 + s["spread"] ** -2)
    if s["law"] == "uniform":
        return timing.Uniform(mean - math.sqrt(3) * deviation, mean + math.sqrt(3) * deviation)
    if s["law"] == "exponential":
        return timing.ShiftedExponential(mean - deviation, deviation)
    return timing.Pareto(mean * (shape - 1) / shape, shape) if s["law"] == "pareto" else timing.Constant(mean)


def by_labkit(s: dict[str, Any]) -> tuple[Any, dict[str, float | None]]:
    """The same run's timeline, and the numbers under the picture."""
    policy = {
        "sync": timing.Synchronous(), "ssp": timing.StaleSynchronous(s["slack"]), "async": timing.Asynchronous(),
        "backup": timing.Synchronous(s["backups"]), "local": timing.LocalSteps(s["H"]),
    }[s["method"]]  # fmt: skip
    times = timing.draw(timing.OneStraggler(law_of(s), s["slowdown"]), s["K"], s["T"], s["seed"])
    asked = (times, s["comm_s"], *([s["server_s"]] if s["method"] == "async" else []))
    run, free_s = policy.timeline(*asked), float(timing.Asynchronous().ends(times, s["comm_s"])[-1])
    # late workers may go on after the run
    elapsed = run.finish_s if s["method"] == "async" else float(policy.ends(times, s["comm_s"])[-1])
    waiting = run.idle_s / (s["K"] * elapsed)
    if s["method"] == "local":  # each has parameters of its own
        own = (elapsed, waiting, s["K"] * s["T"] / elapsed, None, None, free_s)
        return run, dict(zip(NUMBERS, own, strict=True))
    updates = policy.updates(*asked)
    until, used = elapsed, len(updates.tau)
    if s["method"] in ("ssp", "async"):  # until the first has nothing left to do
        until = float(updates.applied_s[updates.step == s["T"] - 1].min())
        used = int((updates.applied_s <= until).sum())
    numbers = (elapsed, waiting, used / until, float(updates.tau.mean()), int(updates.tau.max()), free_s)
    return run, dict(zip(NUMBERS, numbers, strict=True))


def settings(rng: np.random.Generator, method: str, law: str) -> dict[str, Any]:
    K = int(rng.integers(1, 13))
    return {
        "K": K, "slowdown": float(rng.choice([1.0, 2.0, rng.uniform(1, 6)])), "law": law,
        "spread": float(rng.uniform(0.05, 0.55)), "mean_s": float(rng.choice([0.02, 10 ** rng.uniform(-3, 1)])),
        "method": method, "slack": int(rng.integers(0, 13)), "server_s": float(rng.choice([0.0, 0.005, 0.02, 0.05])),
        "backups": int(rng.integers(0, K)), "H": int(rng.integers(1, 13)), "T": 10, "seed": int(rng.integers(0, 4)),
        "comm_s": float(rng.choice([0.0, 0.002, 0.02])),
    }  # fmt: skip


def test_its_spans_and_totals_are_labkits(figure_page: Any) -> None:
    rng = np.random.default_rng(22)
    asked = [settings(rng, *kind) for kind in product(METHODS, LAWS) for _ in range(5)]
    with figure_page("barriers") as page:
        compute = "(all) => JSON.stringify(all.map((s) => lab.compute({ ...s, u: lab.model.get('u') })))"
        said = page.evaluate(compute, asked)
    for state, seen in zip(asked, json.loads(said), strict=True):
        run, numbers = by_labkit(state)
        theirs = np.array(seen["spans"], dtype=float)
        assert len(theirs) == len(run.kind), state
        assert np.array_equal(theirs[:, :3].T, [run.rank, run.step, run.kind])
        assert np.allclose(theirs[:, 3:5].T, [run.start_s, run.end_s], rtol=1e-9, atol=1e-12)
        for name, value in numbers.items():
            same = value if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)
            assert seen[name] == same, (name, state)
        dropped = {(k, t) for k, t, *_, gone in seen["spans"] if gone}
        computed = zip(run.rank[run.kind == 0].tolist(), run.step[run.kind == 0].tolist(), strict=True)
        backup = state["method"] == "backup"
        assert dropped == {at for at in computed if backup and np.isnan(run.arrivals_s[at])}
