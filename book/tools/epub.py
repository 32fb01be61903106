"""A Sphinx extension: what Sphinx's own EPUB builder leaves open; `make epub` runs it.

A reader runs no script: math-core makes MathML of each formula, or breaks the build. A page is XML; cells' HTML need not be.
"""

import re
from pathlib import Path
from posixpath import normpath
from typing import Any

from docutils import nodes
from math_core import LatexToMathML
from sphinx.builders.epub3 import Epub3Builder

MENDED = {
    r"<(img|br|hr|col)\b([^>]*?)\s*/?>": r"<\1\2 />",
    r"<svg (?!xmlns=)": '<svg xmlns="http://www.w3.org/2000/svg" ',
    r'(href="(?!\w+:)[^"]*\.)html\b': r"\1xhtml",
    r'(<summary)[^>]*>\s*<p class="collapsed[^>]*>(.*?)</p>.*?(</summary>)': r"\1>\2\3",
    r"(<m(?:frac|row|table)\b)(?: (?:displaystyle|scriptlevel)=\S+?)+(?=[ >])": r"\1",  # EPUB 3 has MathML 3, not Core
    r"<link [^>]*(?:mystnb|copybutton|togglebutton|design)[^>]*>": "",  # of what needs a script
}


def formula(page: Any, node: nodes.math | nodes.math_block) -> None:
    tex = LatexToMathML(xml_namespace=True)
    mathml = tex.convert_with_local_state(node.astext(), displaystyle=isinstance(node, nodes.math_block))
    page.body.append(mathml.replace("&ApplyFunction;", "\u2061"))
    raise nodes.SkipNode


class Epub(Epub3Builder):
    math_renderer_name = "mathml"

    def build_content(self) -> None:
        out, has = Path(self.outdir), dict[str, str]()
        for moved in self.config.redirects:
            (out / f"{moved}.xhtml").unlink()
        for page in self.refnodes:  # as seen from book/
            page["refuri"] = normpath(page["refuri"])
        for path in out.rglob("*.xhtml"):
            text = path.read_text("utf-8")
            for written, mended in MENDED.items():
                text = re.sub(written, mended, text, flags=re.S)
            path.write_text(text, "utf-8")
            kinds = " ".join(kind for kind, tag in (("mathml", "<math"), ("svg", "<svg")) if tag in text)
            has[f'"{path.relative_to(out)}"'] = f' properties="{kinds}"' if kinds else ""
        super().build_content()
        opf = out / "content.opf"
        said = re.sub(r'"\S+"(?= media-type)', lambda m: m[0] + has.get(m[0], ""), opf.read_text("utf-8"))
        opf.write_text(said, "utf-8")


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.add_builder(Epub, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
