"""Interactive figures from Python: what a bundle holds, with and without a kernel or anywidget, and what is refused."""

import base64
import configparser
import html
import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from labkit.compress import Identity
from labkit.show import palette
from labkit.show.figures import base
from labkit.timing import ShiftedExponential, draw
from labkit_book.labs import figures
from labkit_book.labs.figures import figure
from labkit_book.labs.figures.compressors import Curve

VIEW = "application/vnd.jupyter.widget-view+json"
RUN = Curve("plain", Identity(), [2, 1, 0.5], 4, 100)
every_figure = pytest.mark.parametrize("name", figures.names())


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anywidget")
    monkeypatch.setattr(base, "_kernel", lambda: True)


@every_figure
def test_a_page_gets_the_state_and_a_still_picture_with_words(make_figure: Any, name: str) -> None:
    pytest.importorskip("quickjs")
    made = make_figure(name)
    bundle = made._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"} and made.widget is None and made.numbers
    box, image = bundle["text/html"].split("<img ")
    assert f'data-figure="{name}"' in box and len(box) + len(image) < 75_000
    state = json.loads(html.unescape(re.search(r'data-state="([^"]*)"', box)[1]))  # type: ignore[index]
    assert state == json.loads(json.dumps(made.values))
    alt = html.unescape(re.search(r'alt="([^"]*)"', image)[1])  # type: ignore[index]
    assert len(alt) > 60 and alt in bundle["text/plain"]
    svg = ElementTree.fromstring(base64.b64decode(re.search(r'svg\+xml;base64,([^"]*)"', image)[1]))  # type: ignore[index]
    assert re.match(r"\s*svg \{[^}]*--lk-paper:", next(e.text for e in svg.iter() if e.tag.endswith("style")))
    width, height = float(svg.get("width")), float(svg.get("height"))  # type: ignore[arg-type]
    assert width == 640 and 200 < height < 1000 and "NaN" not in ElementTree.tostring(svg, "unicode")


def test_without_an_engine_one_sentence_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    base._engine.cache_clear()
    monkeypatch.setitem(sys.modules, "quickjs", None)
    made = figure("ring")
    assert "<img" not in made.html and "quickjs-ng" in repr(made) and "quickjs-ng" in made.html


@every_figure
def test_a_notebook_s_widget_holds_the_same_state_and_code(make_figure: Any, name: str, kernel: None) -> None:
    made = make_figure(name)
    assert VIEW in made._repr_mimebundle_()[0]
    shown = made.widget.get_state()
    assert {key: shown[key] for key in made.values} == made.values
    assert shown["_esm"] == figures.module(name)


def test_values_follow_the_reader_and_figures_do_not_share_them(kernel: None) -> None:
    one, other = figure("ring", K=np.int64(4)), figure("ring", K=5)
    one.widget.set_state({"K": 7})  # what a message from the browser does
    assert one.values["K"] == 7 and other.values["K"] == 5 and one.state()["K"] == 4
    one.widget.round = 3  # and Python may move it too
    assert one.values["round"] == 3


def test_without_anywidget_the_still_picture_says_how_it_moves(
    kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    made = figure("ring")
    assert made.widget is None and "anywidget" in made.html
    assert set(made._repr_mimebundle_()) == {"text/plain", "text/html"}


@pytest.mark.parametrize(("name", "given", "words"), [
    ("rings", {}, "ring, "), ("ring", {"K": 1}, "K"), ("ring", {"K": 4.0}, "K"), ("ring", {"K": True}, "K"),
    ("ring", {"K": 3, "round": 5}, "round"), ("ring", {"alpha": float("nan")}, "alpha"),
    ("ring", {"workers": 3}, "workers"), ("step_time", {"algorithm": "hypercube"}, "halving"),
    ("step_time", {"backward": 1.5}, "backward"), ("step_time", {"buckets": 0}, "buckets"),
    ("barriers", {"K": 13}, "K must be"), ("barriers", {"law": "normal"}, "law must be"),
    ("barriers", {"slowdown": 101}, "slowdown must .* 100,"), ("barriers", {"spread": 0.58}, "spread must .* 0.57,"),
    ("barriers", {"method": "backup", "K": 3, "backups": 3}, "backups must be"),
    ("stale", {"tau": 17}, "tau must be"), ("stale", {"view": "map"}, "view must be"),
    ("compressors", {"curves": (RUN,)}, "curves must be"), ("compressors", {}, "curves must be"),
    ("compressors", {"curves": (RUN, "top")}, "curves must be"),
    ("compressors", {"curves": (RUN, RUN), "target": 0}, "target must be"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_sentence(name: str, given: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        figure(name, **given)
    assert "got" in str(refused.value) and "\n" not in str(refused.value)


def test_a_run_needs_losses_that_a_logarithm_can_take() -> None:
    for loss in ([1.0], [1.0, np.nan], [1.0, 0.0], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="loss must hold"):
            Curve("plain", Identity(), loss, 4, 100)


def test_the_uniform_numbers_that_travel_are_those_that_the_laws_draw_from() -> None:
    u = np.array(figure("barriers").state()["u"][2])[:5]
    law = ShiftedExponential(0.01, 0.01)
    assert np.array_equal(draw(law, 5, 10, 2), law.isf(1 - u))


def test_the_style_is_the_palette() -> None:
    css = figures.module("ring").split("\n", 1)[0]
    data = {name.lower(): getattr(palette, name) for name in palette.DATA_COLOURS}
    for colours in (data, palette.LIGHT, palette.DARK):
        assert all(f"--lk-{name}: {colour};" in css for name, colour in colours.items())
    used, made = re.findall(r"var\((--lk-[\w-]+)\)", css), re.findall(r"(--lk-[\w-]+):", css)
    assert set(used) <= set(made) and set(palette.DARK) == set(palette.LIGHT)


def test_nbval_compares_all_of_a_figure_but_its_picture() -> None:
    pytest.importorskip("quickjs")
    rules = configparser.ConfigParser()
    rules.read(Path(__file__).parents[1] / "nbval.cfg")
    pictures = rules["still pictures inside interactive figures"]

    def compared(text: str) -> str:
        return re.sub(pictures["regex"], pictures["replace"], text)

    one, elsewhere, other = figure("ring", K=4), figure("ring", K=4), figure("ring", K=4, n=7)
    elsewhere.__dict__["_still"] = "<svg>another machine's</svg>", one._still[1]
    other.__dict__["_still"] = "<svg/>", one._still[1]
    assert one.html != elsewhere.html and compared(one.html) == compared(elsewhere.html)
    assert compared(one.html) != compared(other.html) and len(compared(one.html)) < 2000


@every_figure
def test_the_script_is_the_module_and_names_no_other_host(name: str) -> None:
    script = figures.script(name)
    assert not re.search(r"^(export|import) ", script, flags=re.M) and "</script" not in script
    assert set(re.findall(r"https?://[^\s\"']+", script)) <= {"http://www.w3.org/2000/svg"}
    assert len(script) < 60_000
