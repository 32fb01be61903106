"""The figures' JavaScript as one piece of text: what they share, the style, and one figure.

The same text in two forms: an ES module for anywidget (and tests), and a script that a page of the book loads by a plain
``<script>``, which also works where a page is opened as a file, without a server.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from labkit.show import palette

HERE = Path(__file__).parent
SHARED = ("common.js", "stage.js", "interactive.js")
NO_FIGURES = (*SHARED, "still.js")

# Where a page says that it is dark or light: this book's theme, Colab, JupyterLab, VS Code; else the reader's system does.
_DARK = (
    'html[data-theme="dark"] .lk',
    'html[theme="dark"] .lk',
    'body[data-jp-theme-light="false"] .lk',
    "body.vscode-dark .lk",
)
_UNTOLD = "html:not([data-theme], [theme]) body:not([data-jp-theme-light], .vscode-light) .lk"


def names() -> tuple[str, ...]:
    """The figures there are: one JavaScript file each."""
    return tuple(sorted(p.stem for p in HERE.glob("*.js") if p.name not in NO_FIGURES))


@cache
def module(name: str) -> str:
    """The ES module of a figure: its default export has ``render({model, el})``, and ``compute(state)`` is exported."""
    shared = "\n".join(_read(file, keep_exports=False) for file in SHARED)
    return f"const STYLE = {json.dumps(style())};\n{shared}\n{_read(f'{name}.js', keep_exports=True)}"


@cache
def script(name: str) -> str:
    """The same as a classic script, which puts ``render`` and a model into ``labkitFigures[name]``."""
    body = re.sub(r"^export default ", "const figure = ", module(name), count=1, flags=re.M)
    body = re.sub(r"^export ", "", body, flags=re.M)
    return (
        f'"use strict";\n(() => {{\n{body}\n'
        f"(globalThis.labkitFigures ??= {{}})[{json.dumps(name)}] = {{ ...figure, pageModel }};\n}})();\n"
    )


def style() -> str:
    """The style sheet: the palette as variables, for light and for dark ground, and figures.css."""
    colours = _variables(
        {name.lower(): getattr(palette, name) for name in palette.DATA_COLOURS}
        | {f"worker-{k}": colour for k, colour in enumerate(palette.WORKERS)}
    )
    light, dark = _variables(palette.LIGHT), _variables(palette.DARK)
    return "\n".join(
        [
            f".lk {{ color-scheme: light; {colours} {light} }}",
            f"@media screen {{ {', '.join(_DARK)} {{ color-scheme: dark; {dark} }} }}",
            f"@media screen and (prefers-color-scheme: dark) {{ {_UNTOLD} {{ color-scheme: dark; {dark} }} }}",
            (HERE / "figures.css").read_text(encoding="utf-8"),
        ]
    )


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--lk-{name}: {colour};" for name, colour in colours.items())


def _read(file: str, keep_exports: bool) -> str:
    """A file without its imports, which name each other only; `export` stays only in the figure's own."""
    text = (HERE / file).read_text(encoding="utf-8")
    text = re.sub(r"^import [^;]*? from \"\./[\w]+\.js\";\n", "", text, flags=re.M)
    return text if keep_exports else re.sub(r"^export ", "", text, flags=re.M)
