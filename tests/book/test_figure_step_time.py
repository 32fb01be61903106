"""The step-time figure shows labkit's numbers: closed forms, overlap, and the K from which communication is longer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from labkit import Link, cost
from labkit.show.figures import parameters_of
from labkit.show.figures.step_time import FORMS

pytestmark = pytest.mark.browser


def settings(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "P": float(rng.choice([0.0, *(10 ** rng.uniform(3, 11, 9))])),
        "itemsize": int(rng.choice([1, 2, 4, 8])),
        "t_comp": float(rng.choice([0.0, *(10 ** rng.uniform(-3, 1, 9))])),
        "alpha": float(rng.choice([0.0, *(10 ** rng.uniform(-7, -2, 4))])),
        "beta": float(10 ** rng.uniform(7, 12)),
        "K": int(rng.choice([1, 2, 3, *rng.integers(4, 5000, 3)])),
        "algorithm": str(rng.choice(list(FORMS))),
        "buckets": int(rng.choice([1, 1, 2, 7, 32])),
        "backward": float(rng.choice([0.0, 0.5, 2 / 3, 1.0])),
    }


def test_its_numbers_are_labkits(figure_page: Any) -> None:
    rng = np.random.default_rng(903)
    asked = [settings(rng) for _ in range(200)]
    with figure_page("step_time") as page:
        shown = page.evaluate("all => all.map((s) => lab.compute(s))", asked)
    for state, seen in zip(asked, shown, strict=True):
        ours = parameters_of("step_time", **state)
        Ks = [state["K"], *(bar["K"] for bar in seen["bars"])]
        theirs = [(bar["t_comm"], bar["step_s"]) for bar in (seen, *seen["bars"])]
        np.testing.assert_allclose(theirs, [(ours.comm_s(K), ours.step_s(K)) for K in Ks], rtol=1e-12)
        exposed = max(0.0, ours.step_s(state["K"]) - state["t_comp"])
        parts = [exposed, seen["t_comm"] - exposed]
        np.testing.assert_allclose(
            [seen["exposed_s"], seen["hidden_s"]], parts, atol=1e-12 * (1 + seen["step_s"])
        )
        assert seen["takeover"] == ours.takeover()


def test_the_reference_ties_at_two_exceeds_at_three_and_eight_is_the_labs(figure_page: Any) -> None:
    with figure_page("step_time", P=2e8, itemsize=4, t_comp=0.08, alpha=0.0, beta=10e9, K=2) as page:
        assert page.locator("[data-key=takeover]").inner_text() == "from K = 3"
        assert page.locator("[data-key=share]").inner_text() == "50.0 %"
        page.get_by_role("slider", name="workers K").focus()
        for _ in range(5):
            page.keyboard.press("ArrowRight")
        page.wait_for_function("document.querySelector('[data-key=step_s]').textContent === '220 ms'")
        assert page.locator("[data-key=t_comm]").inner_text() == "140 ms"
        assert page.locator("[data-key=share]").inner_text() == "63.6 %"
        link = Link(0, 10e9)
        assert cost.ring_crossover(2e8, 4, 0.08, link) == 3
        share = cost.communication_share(0.08, cost.ring_time(8, 8e8, link))
        assert float(page.locator("[data-key=share]").get_attribute("data-value")) == pytest.approx(share)


def test_a_bar_is_chosen_by_mouse_and_an_algorithm_by_keyboard(figure_page: Any) -> None:
    with figure_page("step_time", alpha=25e-6, K=1) as page:
        box = page.locator(".lk-svg").bounding_box()
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 150)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 6, box["y"] + 160, steps=4)
        page.mouse.up()
        page.wait_for_function("lab.model.get('K') === 1024")
        page.get_by_role("radio", name="ring").focus()
        page.keyboard.press("ArrowRight")
        expected = parameters_of("step_time", alpha=25e-6, K=1024, algorithm="tree").step_s(1024)
        page.wait_for_function("lab.model.get('algorithm') === 'tree'")
        page.wait_for_function(
            "x => Math.abs(document.querySelector('[data-key=step_s]').dataset.value / x - 1) < 1e-12",
            arg=expected,
        )
