"""Interactive figures on the Python side: draws that are labkit's own, refusals in one sentence, still pictures."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from labkit.compress import Identity
from labkit.show.figures import figure
from labkit.show.figures.barriers import METHODS
from labkit.show.figures.compressors import curve
from labkit.timing import ShiftedExponential, draw


def test_the_uniform_numbers_that_travel_are_those_that_the_laws_draw_from() -> None:
    u = np.array(figure("barriers").parameters.data()["u"][2])[:5]
    law = ShiftedExponential(0.01, 0.01)
    assert np.array_equal(draw(law, 5, 10, 2), law.isf(1 - u))


@pytest.mark.parametrize("method", METHODS)
def test_states_are_small_and_say_the_same_every_time(method: str) -> None:
    made = figure("barriers", method=method).parameters
    assert len(json.dumps(made.state())) < 20_000 and made.state() == figure("barriers", method=method).values


RUN = curve("plain", Identity(), [2, 1, 0.5], 4, 100)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("barriers", {"K": 13}, "K must be"), ("barriers", {"K": 2.0}, "K must be"),
        ("barriers", {"law": "normal"}, "law must be"),
        ("barriers", {"method": "backup", "K": 3, "backups": 3}, "backups must be"),
        ("barriers", {"spread": 0.0}, "spread must be"),
        ("barriers", {"comm_s": float("nan")}, "comm_s must be"), ("stale", {"tau": 17}, "tau must be"),
        ("stale", {"eta_L": -1}, "eta_L must be"), ("stale", {"view": "map"}, "view must be"),
        ("compressors", {"curves": (RUN,)}, "curves must be"), ("compressors", {}, "curves must be"),
        ("compressors", {"curves": (RUN, "top")}, "curves must be"),
        ("compressors", {"curves": (RUN, RUN), "target": 0}, "target must be"),
        ("compressors", {"curves": (RUN, RUN), "coding": 1}, "coding must be"),
        ("sketch", {"truth": (1, 2)}, "truth must hold"), ("sketch", {"high": 3.0}, "low and high must"),
        ("sketch", {"x": (1, 1)}, "x must hold"), ("sketch", {"drawn": (1,)}, "drawn must hold"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_sentence(name: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        figure(name, **given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("loss", [[1.0], [1.0, np.nan], [1.0, 0.0], [[1.0, 2.0]]])
def test_a_run_needs_losses_that_a_logarithm_can_take(loss: Any) -> None:
    with pytest.raises(ValueError, match="loss must hold"):
        curve("plain", Identity(), loss, 4, 100)
