"""Interactive figures from Python: what a bundle holds, with and without a kernel or anywidget, and what is refused."""

from __future__ import annotations

import base64
import configparser
import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from labkit.show import figure, figures, palette
from labkit.show.figures.shown import Figure

VIEW = "application/vnd.jupyter.widget-view+json"
every_figure = pytest.mark.parametrize("name", figures.names())


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Figure.__module__], "_kernel", lambda: True)


def plain(bundle: object) -> dict[str, str]:
    return bundle[0] if isinstance(bundle, tuple) else bundle  # type: ignore[return-value]


@every_figure
def test_a_page_gets_the_state_and_a_still_picture_with_words(
    make_figure: Any, name: str, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("quickjs")
    made = make_figure(name)
    bundle = plain(made._repr_mimebundle_())
    assert set(bundle) == {"text/plain", "text/html"} and not made.live and capsys.readouterr().out == ""
    box, picture = bundle["text/html"].split("<img ")
    assert f'data-figure="{name}"' in box
    state = json.loads(html.unescape(re.search(r'data-state="([^"]*)"', box)[1]))  # type: ignore[index]
    assert state == json.loads(json.dumps(made.values))
    alt = html.unescape(re.search(r'alt="([^"]*)"', picture)[1])  # type: ignore[index]
    assert len(alt) > 60 and alt in bundle["text/plain"] and len(box) + len(picture) < 75_000
    svg = ElementTree.fromstring(base64.b64decode(re.search(r'svg\+xml;base64,([^"]*)"', picture)[1]))  # type: ignore[index]
    width, height = float(svg.get("width")), float(svg.get("height"))  # type: ignore[arg-type]
    assert width == 640 and 200 < height < 1000 and "NaN" not in ElementTree.tostring(svg, "unicode")


@every_figure
def test_it_computes_without_a_browser_too(make_figure: Any, name: str) -> None:
    pytest.importorskip("quickjs")
    assert make_figure(name).numbers


def test_without_an_engine_one_sentence_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    figures.stills._context.cache_clear()
    monkeypatch.setitem(sys.modules, "quickjs", None)
    made = figure("ring")
    assert "<img" not in made.html and "quickjs-ng" in repr(made) and "quickjs-ng" in made.html


@every_figure
def test_a_notebook_gets_a_widget_that_holds_the_same_state_and_code(
    make_figure: Any, name: str, kernel: None
) -> None:
    pytest.importorskip("anywidget")
    made = make_figure(name)
    assert made.live and VIEW in plain(made._repr_mimebundle_())
    assert {key: made.widget.get_state()[key] for key in made.values} == made.values
    assert made.widget.get_state()["_esm"] == figures.module(name)


def test_numbers_of_numpy_are_numbers() -> None:
    assert (
        figure("ring", K=np.int64(5), alpha=np.float64(1e-3)).values == figure("ring", K=5, alpha=1e-3).values
    )


def test_values_follow_the_reader_and_figures_do_not_share_them(kernel: None) -> None:
    pytest.importorskip("anywidget")
    one, other = figure("ring", K=4), figure("ring", K=5)
    one.widget.set_state({"K": 7})  # what a message from the browser does
    assert one.values["K"] == 7 and other.values["K"] == 5 and one.parameters.K == 4
    one.widget.round = 3  # and Python may move it too
    assert one.values["round"] == 3


def test_without_anywidget_the_still_picture_says_how_it_moves(
    kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    made = figure("ring")
    assert not made.live and "anywidget" in made.html
    assert set(plain(made._repr_mimebundle_())) == {"text/plain", "text/html"}


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("rings", {}, "ring, "), ("ring", {"K": 1}, "K"), ("ring", {"K": 4.0}, "K"), ("ring", {"K": True}, "K"),
        ("ring", {"K": 3, "round": 5}, "round"), ("ring", {"n": -1}, "n"), ("ring", {"alpha": float("nan")}, "alpha"),
        ("ring", {"beta": 0}, "beta"), ("ring", {"workers": 3}, "workers"), ("step_time", {"P": "2e8"}, "P"),
        ("step_time", {"algorithm": "hypercube"}, "halving"), ("step_time", {"backward": 1.5}, "backward"),
        ("step_time", {"buckets": 0}, "buckets"), ("step_time", {"t_comp": float("inf")}, "t_comp"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_sentence(name: str, given: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        figure(name, **given)
    assert "got" in str(refusal.value) and "\n" not in str(refusal.value)


def test_the_style_is_the_palette() -> None:
    css = figures.module("ring").split("\n", 1)[0]
    for name in palette.DATA_COLOURS:
        assert f"--lk-{name.lower()}: {getattr(palette, name)};" in css
    for colours in (palette.LIGHT, palette.DARK):
        assert set(colours) == set(palette.LIGHT)
        assert all(f"--lk-{name}: {colour};" in css for name, colour in colours.items())
    assert {"--lk-" + v for v in re.findall(r"var\(--lk-([\w-]+)\)", css)} <= set(
        re.findall(r"(--lk-[\w-]+):", css)
    )


def test_nbval_compares_all_of_a_figure_but_its_picture() -> None:
    pytest.importorskip("quickjs")
    rules = configparser.ConfigParser()
    rules.read(Path(__file__).parents[1] / "nbval.cfg")
    pictures = rules["still pictures inside interactive figures"]

    def compared(text: str) -> str:
        return re.sub(pictures["regex"], pictures["replace"], text)

    one, elsewhere, other = figure("ring", K=4), figure("ring", K=4), figure("ring", K=4, n=7)
    words = one._still[1]
    elsewhere._still, other._still = (
        ("<svg>another machine's</svg>", words),
        ("<svg/>", words),
    )  # cached properties
    assert one.html != elsewhere.html and compared(one.html) == compared(elsewhere.html) != compared(
        other.html
    )
    assert len(compared(one.html)) < 2000


@every_figure
def test_the_script_is_the_module_and_names_no_other_host(name: str) -> None:
    script = figures.script(name)
    assert not re.search(r"^(export|import) ", script, flags=re.M) and "</script" not in script
    assert set(re.findall(r"https?://[^\s\"']+", script)) <= {"http://www.w3.org/2000/svg"}
    assert len(script) < 60_000


def test_importing_figures_brings_nothing_heavy_and_the_wheel_its_scripts() -> None:
    code = (
        "import sys, labkit.show.figures as f; f.script('ring'); "
        "print([m for m in ('anywidget', 'matplotlib', 'torch', 'IPython') if m in sys.modules])"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
    assert '"labkit.show.figures" = ["*.js", "*.css"]' in (root / "pyproject.toml").read_text()
