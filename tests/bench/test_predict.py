"""The benchmark of predictions on a scale that a test can afford."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from labkit.comm import emulated


def script() -> ModuleType:
    """The benchmark, as nobody's module, so that workers get its functions by value."""
    spec = importlib.util.spec_from_file_location("predict_bench", Path(__file__).with_name("predict.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


predict = script()
MBIT, WAYS, Point = predict.MBIT, predict.WAYS, predict.Point
WHY = emulated.unavailable()


@pytest.mark.alone
@pytest.mark.processes
@pytest.mark.skipif(WHY is not None, reason=f"no network namespaces: {WHY}")
def test_long_vectors_on_three_hosts_are_predicted_from_short_ones_on_two():
    rate = 100 * MBIT
    fitted = [Point(w, 2, n, rate) for w in ("naive", "ring") for n in (1_000, 40_000, 400_000)]
    model = predict.learn(predict.measure(fitted, launches=5))  # six points bear no stray one
    asked = [Point(w, 3, 1_000_000, rate) for w in WAYS]
    for p, seconds in predict.measure(asked, launches=3).items():
        assert abs(predict.error(predict.predict(model, p), seconds)) < 0.25, predict.row(
            p, predict.predict(model, p), seconds
        )


@pytest.mark.parametrize("name", WAYS)
def test_the_shapers_gift_is_at_most_all_the_bytes_and_at_most_a_burst_for_every_port_that_rested(name):
    short, long = (predict.gift(Point(name, 4, n, 100 * MBIT)) for n in (4, 4_000_000))
    assert 0 < short < 1e-5
    assert long == pytest.approx(0.001 * WAYS[name].rested(4))


def test_handling_counts_the_busiest_rank_or_all_of_them_on_all_cores(monkeypatch):
    monkeypatch.setattr(predict.machine, "cores", lambda: 2)
    predict.handled.cache_clear()
    assert predict.handled("naive", 4) == 6  # the server's; all ranks together handle 12
    assert predict.handled("ring", 4) == 24  # 12 each, 48 on two cores
    predict.handled.cache_clear()
