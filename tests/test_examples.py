"""The examples in docstrings and on the pages of the API reference do what they say."""

import ast
import doctest
import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
FLAGS = doctest.NORMALIZE_WHITESPACE  # a line may be broken for the page


def with_examples() -> list[str]:
    """Every module of both packages whose docstrings hold an example."""
    files = sorted(ROOT.glob("labkit*/**/*.py"))
    return [
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for p in files
        if ">>> " in p.read_text(encoding="utf-8")
    ]


MODULES = with_examples()


def test_only_what_is_still_being_filled_can_be_changed():
    code = "\n".join(p.read_text(encoding="utf-8") for p in ROOT.glob("labkit*/**/*.py"))
    made = re.findall(r"^@(?:dataclasses\.)?dataclass\b(.*)\nclass (\w+)", code, re.M)
    assert {name for how, name in made if "frozen=True" not in how} == {"Bucket", "_Step", "_Played"}


def reader_s_names(module: Any) -> dict[str, Any]:
    """What a reader of the reference has at hand: numpy, labkit's own names, the room's and the module's own public ones.

    Not what a module has imported for itself: an example must not lean on that.
    """
    room = importlib.import_module(".".join(module.__name__.split(".")[:2]))
    public = {name: value for name, value in vars(room).items() if not name.startswith("_")}
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    own = {
        n.name
        for n in tree.body
        if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not n.name.startswith("_")
    }
    labkit = importlib.import_module("labkit")
    names = {"np": np, **{name: getattr(labkit, name) for name in labkit.__all__}, **public}
    names |= {name: getattr(module, name) for name in own}
    if module.__name__.startswith("labkit.train"):
        names["torch"] = importlib.import_module("torch")
    return names


def failures(test: doctest.DocTest) -> str:
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    runner.run(test, out=said.append)
    assert runner.tries
    return "".join(said)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_do_what_they_say(name: str) -> None:
    if name.startswith("labkit.train"):
        pytest.importorskip("torch")
    module = importlib.import_module(name)
    found = doctest.DocTestFinder(exclude_empty=True).find(module, globs=reader_s_names(module))
    tests = [test for test in found if test.examples]
    assert tests
    assert "".join(map(failures, tests)) == ""


@pytest.mark.parametrize("page", sorted((ROOT / "book" / "api").glob("*.md")), ids=lambda p: p.stem)
def test_the_examples_on_a_page_of_the_reference_do_what_they_say(page: Path) -> None:
    for n, block in enumerate(
        re.findall(r"^```pycon\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    ):
        test = doctest.DocTestParser().get_doctest(block, {}, f"{page.stem} {n}", str(page), 0)
        assert failures(test) == ""
