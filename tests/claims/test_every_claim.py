"""No claim of the book goes unchecked, and no check outlives its claim."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_claim_has_an_oracle_of_its_own(claims):
    tests = {
        name.replace("_", "-")
        for path in Path(__file__).parent.glob("test_*.py")
        for name in re.findall(r"^def test_((?:\d|[a-z]_)\w+)\(", path.read_text(encoding="utf-8"), re.M)
    }
    assert tests == set(claims)
