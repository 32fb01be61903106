"""The barrier figure makes labkit's timelines: on the same draws every span, and every number below, is equal."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from labkit.show.figures.barriers import METHODS, Barriers
from labkit.timing import (
    Asynchronous,
    Constant,
    Law,
    LocalSteps,
    OneStraggler,
    Pareto,
    ServerPolicy,
    ShiftedExponential,
    StaleSynchronous,
    Synchronous,
    Timeline,
    Uniform,
    Updates,
    draw,
)

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
LAWS: dict[str, Callable[[float, float], Law]] = {
    "constant": lambda mean, spread: Constant(mean),
    "uniform": lambda mean, spread: Uniform(
        mean - math.sqrt(3) * spread * mean, mean + math.sqrt(3) * spread * mean
    ),
    "exponential": lambda mean, spread: ShiftedExponential(mean - spread * mean, spread * mean),
    "pareto": lambda mean, spread: _pareto(mean, 1 + math.sqrt(1 + spread**-2)),
}


def _pareto(mean: float, shape: float) -> Law:
    return Pareto(mean * (shape - 1) / shape, shape)


class Totals(NamedTuple):
    """elapsed_s: all have taken their steps. waiting: share of the workers' time until then. rate: gradients a second that
    are used, while all are at work. staleness, stalest: mean and largest, in versions; None where each has its own w."""

    elapsed_s: float
    waiting: float
    rate: float
    staleness: float | None
    stalest: int | None


class Ours(Barriers):
    """The same run by labkit."""

    @property
    def policy(self) -> ServerPolicy | LocalSteps:
        """Who may go on."""
        policies: dict[str, ServerPolicy | LocalSteps] = {
            "sync": Synchronous(),
            "ssp": StaleSynchronous(self.slack),
            "async": Asynchronous(),
            "backup": Synchronous(self.backups),
            "local": LocalSteps(self.H),
        }
        return policies[self.method]

    def _asked(self) -> tuple[Any, ...]:
        """What every method of the policy takes: compute times, seconds of communication, of an asynchronous server."""
        return (self.times(), self.comm_s, *([self.server_s] if self.method == "async" else []))

    def times(self) -> Any:
        """(K, T) compute times, seconds."""
        law = OneStraggler(LAWS[self.law](self.mean_s, self.spread), self.slowdown)
        return draw(law, self.K, self.T, self.seed)

    def timeline(self) -> Timeline:
        """The run."""
        return self.policy.timeline(*self._asked())

    def updates(self) -> Updates | None:
        """What the run means for learning; None for local steps, where each worker has parameters of its own."""
        return None if isinstance(self.policy, LocalSteps) else self.policy.updates(*self._asked())

    def free_s(self) -> float:
        """Seconds until all are done if nobody waits for anybody."""
        return float(Asynchronous().ends(self.times(), self.comm_s)[-1])

    def totals(self) -> Totals:
        """The numbers under the picture."""
        run, updates = self.timeline(), self.updates()
        elapsed = float(self.policy.ends(*self._asked())[-1])  # late workers may go on after the run
        waiting = run.idle_s / (self.K * elapsed)
        if updates is None:
            return Totals(elapsed, waiting, self.K * self.T / elapsed, None, None)
        until, used = elapsed, len(updates.tau)
        if self.method in ("ssp", "async"):  # until the first has nothing left to do
            last = updates.step == self.T - 1
            until = float(updates.applied_s[last].min())
            used = int((updates.applied_s <= until).sum())
        return Totals(elapsed, waiting, used / until, float(updates.tau.mean()), int(updates.tau.max()))


def settings(rng: np.random.Generator, method: str, law: str) -> dict[str, Any]:
    K = int(rng.integers(1, 13))
    return {
        "K": K,
        "slowdown": float(rng.choice([1.0, 2.0, rng.uniform(1, 6)])),
        "law": law,
        "spread": float(rng.uniform(0.05, 0.55)),
        "mean_s": float(rng.choice([0.02, 10 ** rng.uniform(-3, 1)])),
        "method": method,
        "slack": int(rng.integers(0, 13)),
        "server_s": float(rng.choice([0.0, 0.005, 0.02, 0.05])),
        "backups": int(rng.integers(0, K)),
        "H": int(rng.integers(1, 13)),
        "comm_s": float(rng.choice([0.0, 0.002, 0.02])),
        "T": 10,
        "seed": int(rng.integers(0, 4)),
    }


def test_its_spans_and_totals_are_labkits(figure_page: Any) -> None:
    rng = np.random.default_rng(22)
    asked = [settings(rng, *kind) for kind in product(METHODS, LAWS) for _ in range(5)]
    with figure_page("barriers") as page:
        said = page.evaluate(
            "(all) => JSON.stringify(all.map((s) => lab.compute({ ...s, u: lab.model.get('u') })))", asked
        )
    for state, seen in zip(asked, json.loads(said), strict=True):
        ours = Ours(**state)
        run, totals = ours.timeline(), ours.totals()
        theirs = np.array(seen["spans"], dtype=float)
        assert len(theirs) == len(run.kind), state
        assert np.array_equal(theirs[:, :3].T, [run.rank, run.step, run.kind])
        assert np.allclose(theirs[:, 3:5].T, [run.start_s, run.end_s], rtol=1e-9, atol=1e-12)
        for name in ("elapsed_s", "waiting", "rate", "staleness", "stalest"):
            value = getattr(totals, name)
            same = (
                seen[name] is None
                if value is None
                else seen[name] == pytest.approx(value, rel=1e-9, abs=1e-12)
            )
            assert same, (name, seen[name], value, state)
        assert seen["free_s"] == pytest.approx(ours.free_s(), rel=1e-9)
        dropped = {(k, t) for k, t, *_, gone in seen["spans"] if gone}
        if state["method"] == "backup":
            started = set(
                zip(run.rank[run.kind == 0].tolist(), run.step[run.kind == 0].tolist(), strict=True)
            )
            assert dropped == {(k, t) for k, t in started if np.isnan(run.arrivals_s[k, t])}
        else:
            assert not dropped


def until(page: Any, key: str, value: float) -> None:
    """Wait for a number under the picture."""
    near = "([key, x]) => Math.abs(document.querySelector(`[data-key=${key}]`).dataset.value - x) < 1e-9"
    page.wait_for_function(near, arg=[key, value])


def test_slack_is_dialled_by_keyboard_and_backups_by_mouse(figure_page: Any) -> None:
    with figure_page("barriers", K=4, slowdown=3.0) as page:
        until(page, "elapsed_s", Ours(slowdown=3.0).totals().elapsed_s)
        slack = page.get_by_role("slider", name="slack s")
        expect(slack).to_have_count(0)  # hidden: no dial without a meaning
        page.get_by_role("radio", name="barrier", exact=True).press("ArrowRight")
        slack.press("ArrowRight")
        expected = Ours(slowdown=3.0, method="ssp", slack=2).totals()
        until(page, "waiting", expected.waiting)
        until(page, "staleness", expected.staleness)
        page.get_by_role("radio", name="backups").click()
        track = page.get_by_role("slider", name="backup workers b")
        expect(track).to_be_visible()
        expect(slack).to_have_count(0)
        box = track.bounding_box()
        page.mouse.click(box["x"] + box["width"] - 12, box["y"] + box["height"] / 2)
        page.wait_for_function("lab.model.get('backups') === 3")
        expected = Ours(slowdown=3.0, method="backup", backups=3).totals()
        until(page, "elapsed_s", expected.elapsed_s)


def test_fewer_workers_than_backups_keep_one_that_counts(figure_page: Any) -> None:
    with figure_page("barriers", K=4, method="backup", backups=3) as page:
        page.evaluate("lab.model.set('K', 2)")
        expected = Ours(K=2, method="backup", backups=1).totals()
        until(page, "elapsed_s", expected.elapsed_s)


def test_all_laws_have_the_mean_and_the_deviation_that_they_say() -> None:
    q = (np.arange(200_000) + 0.5) / 200_000
    for law in set(LAWS) - {"constant"}:
        x = LAWS[law](0.02, 0.3).isf(q)
        assert x.mean() == pytest.approx(0.02, rel=1e-3) and x.std() == pytest.approx(0.006, rel=0.03)
