"""The compressors' figure prices its runs as labkit does: bytes, seconds on any link, and where runs cross."""

import math
from typing import Any

import numpy as np
import pytest

from labkit.compress import QSGD, ErrorFeedback, Identity, PowerSGD, RandomK, Sign, TopK
from labkit.compress.scheme import sent_bytes, wire_time
from labkit.network import Link
from labkit_book.labs.fewer_bytes import DGC
from labkit_book.labs.figures.compressors import Curve

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
        Curve(name, how, 2 * np.exp(-pace * np.arange(T + 1) + 0.1 * rng.standard_normal(T + 1)), K, D, 4,
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
        {"against": str(rng.choice(["steps", "bytes", "seconds", "seconds"])), "target": float(10 ** rng.uniform(-1, 0.2)),
         "beta": float(10 ** rng.uniform(5, 10)), "alpha": float(rng.choice([0.0, 1e-4, 1e-2])),
         "compute_s": float(rng.choice([0.0, 0.01])), "coding": bool(rng.integers(2))}
        for _ in range(40)
    ]  # fmt: skip
    with figure_page("compressors", curves=runs) as page:
        page.evaluate("lab.of = (s) => lab.compute({ ...s, curves: lab.model.get('curves') })")
        show = """all => all.map(lab.of).map((r) => [
          r.runs.map(({ reaches, to_target, pays, sooner }) => ({ reaches, to_target, pays, sooner })), r.order])"""
        shown = page.evaluate(show, asked)
    crossed = 0
    for s, (seen, order) in zip(asked, shown, strict=True):
        plain_n = reaches(runs[0], s["target"])
        for run, own in zip(seen, runs, strict=True):
            name, n, every = own.name, reaches(own, s["target"]), EVERY.get(own.name, 1)
            assert run["reaches"] == n
            if n is not None:
                assert n == 0 or min(own.loss[:n]) > s["target"] >= own.loss[n]
                expected = {
                    "steps": n * every,
                    "bytes": sum(sent_bytes(WAYS[name], K, D, 4, t).max() for t in range(n)),
                    "seconds": seconds(name, n, s),
                }[s["against"]]
                assert run["to_target"] == pytest.approx(expected, rel=1e-9)
            for beta in (by * edge for by in (0.9, 1.1) for edge in run["pays"] if 0 < edge < math.inf):
                link = Link(s["alpha"], beta)
                plain, its = (wire_time(WAYS[n], K, D, 4, link, t=T - 1) for n in ("plain", name))
                ahead = plain - its - s["coding"] * (CODING[name] * every - CODING["plain"])
                assert (ahead > 0) == (run["pays"][0] < beta < run["pays"][1]), (name, beta)
            assert (run["sooner"] is None) == (n is None or plain_n is None)
            low, high = run["sooner"] or (0, 0)
            for edge in (low, high):
                for beta in (0.9 * edge, 1.1 * edge):
                    if 0 < beta < math.inf:
                        link = {**s, "beta": beta}
                        ahead = seconds("plain", plain_n, link) - seconds(name, n, link)
                        assert abs(ahead) < 1e-12 or (ahead > 0) == (low < beta < high), (name, beta)
                        crossed += 1
        assert [seen[i]["to_target"] for i in order] == sorted(run["to_target"] for run in seen)
    assert crossed > 30
