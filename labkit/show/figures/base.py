"""What an interactive figure is on the Python side: its parameters, checked, and how a notebook or a page shows it.

A figure called NAME is a frozen dataclass that inherits `Figure`, and beside its file stands its front end NAME.js,
which computes, draws and puts in words. The fields are what the reader can move, by the same names. JupyterLab and Colab
show the widget; a page of the book finds ``<div class="labkit-figure">`` and brings it to life; whoever can do neither shows
the picture inside. The script has two forms: an ES module for anywidget, and a classic script, which also works where a page
is opened as a file. QuickJS runs it where no browser is, so that a figure is computed and drawn in one language.
"""

import base64
import dataclasses
import html
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from labkit.show import palette

_STILL = (
    "<p>A still picture: to move it, run this cell where anywidget is installed.</p>"
)
_NO_STILL = "A still picture of it needs quickjs-ng (pip install quickjs-ng)."


def parameter(default: Any, check: Callable[..., object], **bounds: Any) -> Any:
    """A field of a figure, and the check of `labkit.checks` that holds its values within ``bounds``."""
    return dataclasses.field(
        default=default, metadata={"check": partial(check, **bounds)}
    )


@dataclasses.dataclass(frozen=True, repr=False)
class Figure:
    """An interactive figure, by its parameters. ValueError for one out of its bounds."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if check := field.metadata.get("check"):
                check(field.name, getattr(self, field.name))

    def state(self) -> dict[str, Any]:
        """All that the front end gets, as JSON can say it: the parameters, and what labkit has computed for it."""
        return dataclasses.asdict(self)

    @cached_property
    def widget(self) -> Any:
        """An anywidget with a trait for each piece of state; None outside of a notebook's kernel, and without anywidget."""
        if not _kernel():
            return None
        try:
            import anywidget
            import traitlets
        except ImportError:
            return None
        traits = {
            key: traitlets.Any(value).tag(sync=True)
            for key, value in self.state().items()
        }
        return type(
            self.name, (anywidget.AnyWidget,), {"_esm": module(self._own), **traits}
        )()

    @property
    def values(self) -> dict[str, Any]:
        """The present settings: where the reader has moved them, if a widget shows them."""
        start = self.state()
        return (
            {key: getattr(self.widget, key) for key in start}
            if self.widget
            else start
        )

    @property
    def numbers(self) -> dict[str, Any]:
        """What the figure itself computes of its present settings. ImportError without quickjs-ng."""
        return compute(self._own, self.values)

    @cached_property
    def html(self) -> str:
        """What a page needs: the state, and inside it the still picture with its description."""
        state = html.escape(
            json.dumps(self.state(), separators=(",", ":"), allow_nan=False)
        )
        svg, words = self._still
        inside = html.escape(words)
        if svg:
            data = base64.b64encode(svg.encode()).decode()
            inside = f'<img alt="{inside}" src="data:image/svg+xml;base64,{data}">'
        return f'<div class="labkit-figure" data-figure="{self.name}" data-state="{state}">{inside}{_STILL}</div>'

    @property
    def _own(self) -> Path:
        """The file of its front end."""
        return Path(inspect.getfile(type(self))).with_name(f"{self.name}.js")

    @cached_property
    def _still(self) -> tuple[str, str]:
        """The picture of the parameters and its words; without an engine to draw it, a sentence."""
        try:
            return picture(self._own, self.state())
        except ImportError:
            return "", _NO_STILL

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        bundle = {"text/plain": repr(self), "text/html": self.html}
        if self.widget is None:
            return bundle
        shown: Any = self.widget._repr_mimebundle_() or ({}, {})
        view, about = shown if isinstance(shown, tuple) else (shown, {})
        return {
            **view,
            **bundle,
        }, about  # Colab reads from the metadata where its widget manager is

    def __repr__(self) -> str:
        return f"Interactive figure {self.name!r}: {self._still[1]}"


def _kernel() -> bool:
    """Whether this runs inside a notebook kernel."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


_HERE = Path(__file__).parent
_SHARED = ("common.js", "stage.js", "interactive.js")
# Where a page says that it is dark or light: this book's theme, Colab, JupyterLab, VS Code; else the reader's system does.
_DARK = (
    'html[data-theme="dark"] .lk, html[theme="dark"] .lk, '
    'body[data-jp-theme-light="false"] .lk, body.vscode-dark .lk'
)
_UNTOLD = "html:not([data-theme], [theme]) body:not([data-jp-theme-light], .vscode-light) .lk"


@cache
def module(own: Path) -> str:
    """The ES module of a figure: its default export has ``render({model, el})``, and ``compute(state)`` is exported."""
    shared = [
        re.sub(r"^export ", "", _read(_HERE / file), flags=re.M) for file in _SHARED
    ]
    style = json.dumps("\n".join(_style()))
    return "\n".join([f"const STYLE = {style};", *shared, _read(own)])


@cache
def script(own: Path) -> str:
    """The same as a classic script, which puts ``render`` and a model into ``labkitFigures.NAME``."""
    body = re.sub(
        r"^export default ", "const figure = ", module(own), count=1, flags=re.M
    )
    body = re.sub(r"^export ", "", body, flags=re.M)
    shown = f"(globalThis.labkitFigures ??= {{}}).{own.stem} = {{ ...figure, pageModel }};"
    return f'"use strict";\n(() => {{\n{body}\n{shown}\n}})();\n'


def compute(own: Path, state: dict[str, Any]) -> dict[str, Any]:
    """What the figure computes of its state, as JSON says it: None for what is infinite."""
    return _evaluate(own, f"labkitFigures.{own.stem}.compute({json.dumps(state)})")


def picture(own: Path, state: dict[str, Any]) -> tuple[str, str]:
    """What the figure shows: as an SVG document, and the same in words."""
    light, *_, rules = _style()
    drawn = (".lk-text", ".lk-axis", ".lk-grid")
    parts = [rule for rule in rules.splitlines() if rule.startswith(drawn)]
    ground = (
        "svg { background: var(--lk-paper); font-family: system-ui, sans-serif; }"
    )
    style = "\n".join([light.replace(".lk", "svg", 1), ground, *parts])
    svg, words = _evaluate(
        own, f"still({', '.join(map(json.dumps, (own.stem, state, style)))})"
    )
    return svg, words


def _evaluate(own: Path, expression: str) -> Any:
    return json.loads(_engine(own).eval(f"JSON.stringify({expression})"))


@cache
def _engine(own: Path) -> Any:
    """QuickJS (2.5 MB, draws in 8 ms) that knows the figure, with ``still.js`` for a document; ImportError without it."""
    context = importlib.import_module("quickjs").Context()
    context.eval(_read(_HERE / "still.js"))
    context.eval(script(own))
    return context


def _style() -> list[str]:
    """The style sheet: the palette as variables, for light and for dark ground, and figures.css."""
    data = {name.lower(): getattr(palette, name) for name in palette.DATA_COLOURS}
    data |= {f"worker-{k}": colour for k, colour in enumerate(palette.WORKERS)}
    light, dark = _variables(data | palette.LIGHT), _variables(palette.DARK)
    dark = f"{{ color-scheme: dark; {dark} }}"
    return [
        f".lk {{ color-scheme: light; {light} }}",
        f"@media screen {{ {_DARK} {dark} }}",
        f"@media screen and (prefers-color-scheme: dark) {{ {_UNTOLD} {dark} }}",
        (_HERE / "figures.css").read_text(encoding="utf-8"),
    ]


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--lk-{name}: {colour};" for name, colour in colours.items())


def _read(file: Path) -> str:
    """A script without its imports, which only name what figures share."""
    text = file.read_text(encoding="utf-8")
    return re.sub(r'^import [^;]*? from "[^"]*\.js";\n', "", text, flags=re.M)
