"""Every verdict of the book by another route: another method, a closed form, a plain loop, torch.

A test is named after its claim (``test_10_2_noise_scale`` for `claim-10-2-noise-scale`), recomputes the conclusion
without labkit's helper for it, and compares the word it comes to with the lab's: ``verdict``. What is random takes
``seed``; LABKIT_SEEDS=1000 gives another. A claim that rests on seeds says in which settings it is tried:

    @pytest.mark.settings(dict(condition=10, N=400), dict(condition=1), dict(N=100), dict(condition=30, verdict="false"))
    def test_10_2_word(verdict, seed, at): ... at.condition, at.N ...

The first is the page's own, and each of the others says in what it differs: data, size, condition, schedule, length. With
``verdict`` among them the word is expected to be another there, and the page says so. `make elsewhere` tries them all,
each from another seed; else a test runs in the first alone.
"""

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@cache
def audited(only: str = "") -> dict[str, Any]:
    """Every claim by its key, of labs whose text holds ``only``."""
    spec = importlib.util.spec_from_file_location("claims_of_labs", ROOT / "book" / "tools" / "claims.py")
    assert spec and spec.loader
    tool = sys.modules["claims_of_labs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return {claim.key: claim for _, _, claims in tool.audited(only=only) for claim in claims}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for ``at`` runs in its first setting, and in LABKIT_ELSEWHERE's case in all of them."""
    mark = metafunc.definition.get_closest_marker("settings")
    if mark:
        own, *others = mark.args
        tried = [{}, *others] if os.environ.get("LABKIT_ELSEWHERE") else [{}]
        names = [", ".join(f"{name}={value}" for name, value in one.items()) or "page" for one in tried]
        places = [SimpleNamespace(**{**own, "verdict": "", **one}, index=i) for i, one in enumerate(tried)]
        metafunc.parametrize("at", places, ids=names)


def elsewhere(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The setting of this test."""
    return getattr(request.node, "callspec", SimpleNamespace(params={})).params.get(
        "at", SimpleNamespace(verdict="", index=0)
    )


@pytest.fixture(scope="session")
def claims() -> dict[str, Any]:
    return audited()


@pytest.fixture
def verdict(request: pytest.FixtureRequest) -> str:
    """The word of the lab on the claim that this test is named after: "true", "true if", "false" or "not decided here";
    in a setting that names another, that one."""
    if marked := elsewhere(request).verdict:
        return marked
    key = request.node.originalname.removeprefix("test_").replace("_", "-")
    return audited(f":name: claim-{key}\n")[key].form


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Where a random check starts: in each setting elsewhere."""
    return int(os.environ.get("LABKIT_SEEDS", "0")) + 1000 * elsewhere(request).index
