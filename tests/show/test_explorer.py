"""An explorer redraws in place, says what its function refuses, and is a still figure without a kernel."""

import base64
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pytest

from labkit.show import explorer, palette
from labkit.show.explorer import Explorer

PNG = b"\x89PNG"


def draw(slope=1.0, K=2):
    if slope > 4:
        raise ValueError(f"slope must be <= 4, got {slope!r}")
    _, ax = plt.subplots()
    ax.plot([0, 1], [0, slope])
    ax.set_ylim(0, K)
    return ax


@pytest.fixture
def kernel(monkeypatch):
    pytest.importorskip("ipywidgets")
    monkeypatch.setattr(sys.modules[Explorer.__module__], "_kernel", lambda: True)


SLIDERS = {"slope": (0.0, 5.0, 0.5, 1.0), "K": [2, 8, 32]}


def test_without_a_kernel_one_sentence_and_the_figure_of_the_defaults(capsys):
    made = explorer(draw, **SLIDERS)
    assert capsys.readouterr().out.count(".") == 1
    assert not made.live and made.png.startswith(PNG) and made.values == {"slope": 1.0, "K": 2}
    bundle = made._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == made.png and len(bundle) == 2


def test_without_ipywidgets_it_is_the_same(monkeypatch, kernel, capsys):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert not explorer(draw, **SLIDERS).live
    assert "ipywidgets" in capsys.readouterr().out


def test_moving_a_slider_replaces_the_picture_in_place(kernel, capsys):
    made = explorer(draw, labels={"slope": "slope λ"}, **SLIDERS)
    assert made.live and capsys.readouterr().out == ""
    image, before = made.box.children[-2], made.png
    assert image.value == before
    made.sliders["slope"].value = 2.0
    assert made.values["slope"] == 2.0 and image.value == made.png != before
    assert made.box.children[-2] is image
    made.sliders["slope"].value = 1.0
    assert image.value == before  # the same values make the same picture
    made.sliders["K"].value = 32
    assert made.values == {"slope": 1.0, "K": 32} and image.value != before
    assert made.sliders["slope"].description == "slope λ" and made.sliders["K"].description == "K"


def test_a_value_that_the_function_refuses_is_said_under_the_figure(kernel):
    made = explorer(draw, **SLIDERS)
    before = made.png
    made.sliders["slope"].value = 5.0
    said = made.box.children[-1]
    assert said.value == "slope must be <= 4, got 5.0" and made.png == before
    made.sliders["slope"].value = 3.0
    assert said.value == "" and made.png != before


def test_a_page_without_a_kernel_finds_a_picture_beside_the_sliders(kernel):
    bundle = explorer(draw, **SLIDERS)._repr_mimebundle_()
    assert {"image/png", "text/plain", "application/vnd.jupyter.widget-view+json"} <= set(bundle)


def test_whole_numbers_slide_in_whole_numbers(kernel):
    kinds = explorer(draw, slope=(0, 3, 1, 1), K=[2, 4]).sliders
    assert (type(kinds["slope"]).__name__, type(kinds["K"]).__name__) == ("IntSlider", "SelectionSlider")


def test_figures_are_closed_after_drawing_and_those_of_others_left_open():
    mine = plt.figure()
    made = explorer(draw, **SLIDERS)
    for slope in (0.5, 1.5, 2.5):
        made.set(slope=slope)
    assert plt.get_fignums() == [mine.number]
    plt.close(mine)


@pytest.mark.parametrize("what", ["axes", "figure", "nothing"])
def test_the_function_may_return_an_axes_a_figure_or_nothing(what):
    def drawn():
        fig, ax = plt.subplots(facecolor=palette.WAIT)
        return {"axes": ax, "figure": fig, "nothing": None}[what]

    def same():
        plt.subplots(facecolor=palette.WAIT)

    assert explorer(drawn).png == explorer(same).png


@pytest.mark.parametrize(
    "sliders, words",
    [
        ({"K": (1, 5, 1, 9)}, "K must be .* default in range"),
        ({"K": (1, 5, 0, 2)}, "K must be .*step > 0"),
        ({"K": (1, 5)}, r"K must be \(low, high, step, default\) or a list of choices, got \(1, 5\)"),
        ({"K": []}, "K must be .*list of choices"),
        ({"K": [2], "labels": {"k": "workers"}}, "labels must name sliders, K, got 'k'"),
    ],
)
def test_bad_sliders_are_refused(sliders, words):
    with pytest.raises(ValueError, match=words):
        explorer(draw, **sliders)


def test_setting_what_is_no_slider_is_refused():
    with pytest.raises(ValueError, match="values must be among slope, K, got 'colour'"):
        explorer(draw, **SLIDERS).set(colour=1)
