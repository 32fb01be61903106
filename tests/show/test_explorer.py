"""An explorer redraws in place, and says what its function refuses."""

import base64

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pytest
from IPython.core.formatters import DisplayFormatter

from labkit.show import explorer, palette

pytest.importorskip("ipywidgets")
SLIDERS = {"slope": (0.0, 5.0, 0.5, 1.0), "K": [2, 8, 32]}


def draw(slope=1.0, K=2):
    if slope > 4:
        raise ValueError(f"slope must be <= 4, got {slope!r}")
    _, ax = plt.subplots()
    ax.plot([0, 1], [0, slope])
    ax.set_ylim(0, K)
    return ax


def test_moving_a_slider_replaces_the_picture_in_place():
    slope, K, image, _ = explorer(draw, labels={"slope": "slope λ"}, **SLIDERS).children
    assert (slope.description, K.description, slope.value, K.value) == ("slope λ", "K", 1.0, 2)
    before = image.value
    slope.value = 2.0
    assert image.value != before
    slope.value = 1.0
    assert image.value == before  # the same values make the same picture
    K.value = 32
    assert image.value != before
    assert type(explorer(draw, slope=(0, 3, 1, 1)).children[0]).__name__ == "IntSlider"


def test_a_value_that_the_function_refuses_is_said_under_the_figure():
    slope, _, image, said = explorer(draw, **SLIDERS).children
    before = image.value
    slope.value = 5.0
    assert said.value == "slope must be <= 4, got 5.0" and image.value == before
    slope.value = 3.0
    assert said.value == "" and image.value != before


def test_figures_are_closed_after_drawing_and_those_of_others_left_open():
    mine = plt.figure()
    slope, *_ = explorer(draw, **SLIDERS).children
    for value in (0.5, 1.5, 2.5):
        slope.value = value
    assert plt.get_fignums() == [mine.number]
    plt.close(mine)


@pytest.mark.parametrize("what", ["axes", "figure", "nothing"])
def test_the_function_may_return_an_axes_a_figure_or_nothing(what):
    def drawn():
        fig, ax = plt.subplots(facecolor=palette.WAIT)
        return {"axes": ax, "figure": fig, "nothing": None}[what]

    blank = explorer(lambda: plt.subplots(facecolor=palette.WAIT)[0])
    assert explorer(drawn).children[0].value == blank.children[0].value


@pytest.mark.parametrize("sliders, words", [
    ({"K": (1, 5, 1, 9)}, "K must be .* default in range"),
    ({"K": (1, 5, 0, 2)}, "K must be .*step > 0"),
    ({"K": (1, 5)}, r"K must be .* or a list of choices, got \(1, 5\)"),
    ({"K": []}, "K must be .*list of choices"),
])  # fmt: skip
def test_bad_sliders_are_refused(sliders, words):
    with pytest.raises(ValueError, match=words):
        explorer(draw, **sliders)


def test_beside_the_sliders_a_notebook_keeps_the_first_picture():
    made = explorer(draw, **SLIDERS)
    formatted, _ = DisplayFormatter().format(made)
    assert formatted["application/vnd.jupyter.widget-view+json"]["model_id"] == made.model_id
    assert base64.b64decode(formatted["image/png"]) == bytes(made.children[2].value)
    assert formatted["text/plain"].startswith("VBox(")
