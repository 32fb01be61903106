"""The barrier figure makes labkit's timelines: on the same draws every span, and every number below, is equal."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import numpy as np
import pytest

from labkit.show.figures import parameters_of
from labkit.show.figures.barriers import LAWS, METHODS

pytestmark = pytest.mark.browser


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
        ours = parameters_of("barriers", **state)
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


def number(page: Any, key: str) -> float:
    return float(page.locator(f"[data-key={key}]").get_attribute("data-value"))


def test_slack_is_dialled_by_keyboard_and_backups_by_mouse(figure_page: Any) -> None:
    with figure_page("barriers", K=4, slowdown=3.0) as page:
        assert number(page, "elapsed_s") == pytest.approx(
            parameters_of("barriers", slowdown=3.0).totals().elapsed_s
        )
        page.get_by_role("radio", name="barrier", exact=True).focus()
        page.keyboard.press("ArrowRight")
        slack = page.get_by_role("slider", name="slack s")
        slack.wait_for()
        slack.focus()
        page.keyboard.press("ArrowRight")
        expected = parameters_of("barriers", slowdown=3.0, method="SSP", slack=2).totals()
        until(page, "waiting", expected.waiting)
        assert number(page, "staleness") == pytest.approx(expected.staleness)
        page.get_by_role("radio", name="backups").click()
        track = page.get_by_role("slider", name="backup workers b")
        track.wait_for()
        box = track.bounding_box()
        page.mouse.click(box["x"] + box["width"] - 12, box["y"] + box["height"] / 2)
        page.wait_for_function("lab.model.get('backups') === 3")
        expected = parameters_of("barriers", slowdown=3.0, method="backup", backups=3).totals()
        until(page, "elapsed_s", expected.elapsed_s)
        assert page.get_by_role("slider", name="slack s").count() == 0  # hidden: no dial without a meaning


def test_fewer_workers_than_backups_keep_one_that_counts(figure_page: Any) -> None:
    with figure_page("barriers", K=4, method="backup", backups=3) as page:
        page.evaluate("lab.model.set('K', 2)")
        expected = parameters_of("barriers", K=2, method="backup", backups=1).totals()
        until(page, "elapsed_s", expected.elapsed_s)
