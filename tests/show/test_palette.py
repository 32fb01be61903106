"""The palette stays apart for every reader, and the style can be read on a phone and on a dark page."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from labkit.show import palette

# Machado, Oliveira & Fernandes 2009, severity 1, on linear RGB
VISION = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}  # fmt: skip
TOGETHER = ["COMPUTE WAIT COMMUNICATE PAPER", "PREDICTED SIMULATED MEASURED GUESS PAPER"]


def linear(colour):
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    t = xyz / [0.9505, 1.0, 1.089]
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one, other):
    y = sorted(np.array([0.2126, 0.7152, 0.0722]) @ linear(c) for c in (one, other))
    return (y[1] + 0.05) / (y[0] + 0.05)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("names", TOGETHER)
def test_colours_that_stand_together_stay_apart(names, vision):
    rgb = {n: VISION[vision] @ linear(getattr(palette, n)) for n in names.split()}
    seen = {n: lab(np.clip(colour, 0, 1)) for n, colour in rgb.items()}
    for a, b in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[a] - seen[b]) > 17, (a, b)  # a just noticeable difference is 2.3


def test_ink_can_be_read_on_paper_and_the_paper_is_opaque_on_a_dark_page():
    assert contrast(palette.INK, palette.PAPER) > 7  # WCAG AAA
    assert palette.RC["figure.facecolor"] == palette.RC["axes.facecolor"] == palette.PAPER
    assert palette.RC["savefig.transparent"] is False


def test_letters_are_legible_on_a_phone():
    letters = [v for k, v in palette.RC.items() if k.startswith(("font", "axes", "legend", "xtick", "ytick"))]
    sizes = [v for v in letters if type(v) is int]
    assert palette.RC["figure.figsize"][0] == 6.4 and len(sizes) >= 5 and min(sizes) >= 11
    labs = Path(__file__).parents[2].glob("notebooks/**/*.md")
    by_hand = [float(size) for lab in labs for size in re.findall(r"fontsize=([\d.]+)", lab.read_text())]
    # 9 points are 10.4 pixels where the page draws a plot narrowest (tests/book/test_built_book.py).
    assert len(by_hand) > 10 and min(by_hand) >= 9 and palette.RC["figure.dpi"] == 100


def test_the_style_ends_with_its_context_and_use_style_stays():
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcParams["font.size"] = 5
        with palette.style():
            assert matplotlib.rcParams["font.size"] == 12
        assert matplotlib.rcParams["font.size"] == 5
        palette.use_style()
        assert matplotlib.rcParams["font.size"] == 12
