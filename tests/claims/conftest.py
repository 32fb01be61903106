"""Every verdict of the book by another route: another method, a closed form, a plain loop, torch.

A test is named after its claim (``test_10_2_noise_scale`` for `claim-10-2-noise-scale`), recomputes the conclusion
without labkit's helper for it, and compares the word it comes to with the lab's: ``verdict``. What is random takes
``seed``; LABKIT_SEEDS=1000 gives another.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
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


@pytest.fixture(scope="session")
def claims() -> dict[str, Any]:
    return audited()


@pytest.fixture
def verdict(request: pytest.FixtureRequest) -> str:
    """The word of the lab on the claim that this test is named after: "true", "true if", "false" or "not decided here"."""
    key = request.node.originalname.removeprefix("test_").replace("_", "-")
    return audited(f":name: claim-{key}\n")[key].form


@pytest.fixture
def seed() -> int:
    """Where a random check starts."""
    return int(os.environ.get("LABKIT_SEEDS", "0"))
