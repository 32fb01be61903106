"""The compressors' figure prices its runs as labkit does: bytes, seconds on any link, and where runs cross."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from labkit.compress import (
    DGC,
    QSGD,
    ErrorFeedback,
    Identity,
    PowerSGD,
    RandomK,
    Sign,
    TopK,
    pays,
    sent_bytes,
    wire_time,
)
from labkit.network import Link
from labkit.show.figures.compressors import Curve, curve

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
K, D, T = 4, 9_000, 30
WAYS: dict[str, Any] = {
    "plain": Identity(), "QSGD": QSGD(7, bucket=512), "top": ErrorFeedback(TopK(0.01)), "random": RandomK(0.05),
    "sign": ErrorFeedback(Sign()), "DGC": DGC(0.01, momentum=0.9, warmup=4), "PowerSGD": PowerSGD([(90, 100)], r=2),
    "local": Identity(),
}  # fmt: skip
EVERY = {"local": 8}
CODING = dict(zip(WAYS, np.linspace(0, 7e-3, 8), strict=True))


def made(rng: np.random.Generator) -> tuple[Curve, ...]:
    """Runs whose losses fall at different paces, with a little noise; some don't get far."""
    paces = rng.uniform(0.02, 0.25, len(WAYS))
    return tuple(
        curve(name, how, 2 * np.exp(-pace * np.arange(T + 1) + 0.1 * rng.standard_normal(T + 1)), K, D, 4,
              CODING[name], EVERY.get(name, 1))
        for (name, how), pace in zip(WAYS.items(), paces, strict=True)
    )  # fmt: skip


def reaches(run: Curve, target: float) -> int | None:
    """The number of exchanges after which the loss is first at most ``target``; None if never."""
    return next((i for i, loss in enumerate(run.loss) if loss <= target), None)


def seconds(name: str, n: int, s: dict[str, Any]) -> float:
    """Of n exchanges and the steps around them, one after the other."""
    steps = n * EVERY.get(name, 1)
    own = steps * (s["compute_s"] + s["coding"] * CODING[name])
    return own + sum(wire_time(WAYS[name], K, D, 4, Link(s["alpha"], s["beta"]), t=t) for t in range(n))


def test_bytes_seconds_ranks_and_crossings_are_labkits(figure_page: Any) -> None:
    rng = np.random.default_rng(107)
    runs = made(rng)
    asked = [
        {
            "against": str(rng.choice(["steps", "bytes", "seconds", "seconds"])),
            "target": float(10 ** rng.uniform(-1, 0.2)),
            "beta": float(10 ** rng.uniform(5, 10)),
            "alpha": float(rng.choice([0.0, 1e-4, 1e-2])),
            "compute_s": float(rng.choice([0.0, 0.01])),
            "coding": bool(rng.integers(2)),
        }
        for _ in range(40)
    ]
    with figure_page("compressors", curves=runs) as page:
        page.evaluate("lab.of = (s) => lab.compute({ ...s, curves: lab.model.get('curves') })")
        show = """all => all.map(lab.of).map((r) => [
          r.runs.map(({ reaches, to_target, pays, sooner }) => ({ reaches, to_target, pays, sooner })), r.order])"""
        shown = page.evaluate(show, asked)
    crossed = 0
    for s, (seen, order) in zip(asked, shown, strict=True):
        plain_n = reaches(runs[0], s["target"])
        for run, own in zip(seen, runs, strict=True):
            name = own.name
            n = reaches(own, s["target"])
            assert run["reaches"] == n
            if n is not None:
                assert n == 0 or min(own.loss[:n]) > s["target"] >= own.loss[n]
                expected = {
                    "steps": n * EVERY.get(name, 1),
                    "bytes": sum(sent_bytes(WAYS[name], K, D, 4, t).max() for t in range(n)),
                    "seconds": seconds(name, n, s),
                }[s["against"]]
                assert run["to_target"] == pytest.approx(expected, rel=1e-9)
            coding_s = s["coding"] * CODING[name] * EVERY.get(name, 1)
            base = s["coding"] * CODING["plain"]
            assert base == 0 and run["pays"] == pytest.approx(
                tuple(pays(WAYS[name], K, D, 4, s["alpha"], coding_s, T - 1)), rel=1e-9
            )
            assert (run["sooner"] is None) == (n is None or plain_n is None)
            if run["sooner"]:
                low, high = run["sooner"]
                for beta in (
                    1e3,
                    1e6,
                    1e9,
                    1e12,
                    *(x for edge in (low, high) for x in (0.9 * edge, 1.1 * edge)),
                ):
                    if 0 < beta < math.inf:
                        link = {**s, "beta": beta}
                        ahead = seconds("plain", plain_n, link) - seconds(name, n, link)
                        assert abs(ahead) < 1e-12 or (ahead > 0) == (low < beta < high), (
                            name,
                            beta,
                            low,
                            high,
                        )
                        crossed += beta not in (1e3, 1e6, 1e9, 1e12)
        times = [seen[i]["to_target"] for i in order]
        assert times == sorted(run["to_target"] for run in seen)
    assert crossed > 30


def numbers(page: Any, **state: Any) -> dict[str, Any]:
    """What the figure computes of its present state, but for what is given."""
    names = "Object.keys(lab.default.defaults).map((k) => [k, lab.model.get(k)])"
    return page.evaluate(f"s => lab.compute({{ ...Object.fromEntries({names}), ...s }})", state)


def takes(page: Any, x: float) -> None:
    """Wait until the figure says that the first run takes x."""
    near = "x => Math.abs(document.querySelector('[data-key=to_target]').dataset.value / x - 1) < 1e-9"
    page.wait_for_function(near, arg=x)


def test_the_link_is_dialled_by_keyboard_and_the_target_dragged_by_mouse(figure_page: Any) -> None:
    with figure_page("compressors") as page:
        page.get_by_role("slider", name="link").press("End")
        page.wait_for_function("lab.model.get('beta') === 1.25e10")
        first = numbers(page, beta=1.25e10)["first"]
        takes(page, first["to_target"])
        expect(page.locator("[data-key=first]")).to_have_attribute("data-value", first["name"])
        box = page.locator(".lk-target").bounding_box()
        page.mouse.move(box["x"] + 5, box["y"] + 9)
        page.mouse.down()
        page.mouse.move(box["x"] + 5, box["y"] - 40, steps=3)
        page.mouse.up()
        page.wait_for_function("lab.model.get('target') > 0.3")
        target = page.evaluate("lab.model.get('target')")
        takes(page, numbers(page, beta=1.25e10, target=target)["first"]["to_target"])
        page.get_by_role("radio", name="bytes").check()
        words = re.compile("bytes sent by each worker")
        expect(page.locator(".lk-svg")).to_have_attribute("aria-label", words)
        expect(page.get_by_role("slider", name="link")).to_have_count(0)  # bytes don't depend on it


def test_without_the_time_of_coding_nobody_is_later(figure_page: Any) -> None:
    with figure_page("compressors", beta=1e8) as page:
        before, after = (numbers(page, coding=coding)["first"]["to_target"] for coding in (True, False))
        assert after < before
        takes(page, before)
        page.get_by_role("checkbox").press("Space")
        takes(page, after)
