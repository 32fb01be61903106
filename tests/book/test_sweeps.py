"""What a sweep stored is what its script, as it stands, computed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS, STORED = ROOT / "notebooks" / "sweeps", ROOT / "labkit_book" / "labs" / "sweeps"
SWEEPS = sorted({p.stem for p in [*SCRIPTS.glob("*.py"), *STORED.glob("*.json")]})


@pytest.mark.parametrize("name", SWEEPS)
def test_a_stored_sweep_says_where_and_by_which_script_it_was_made(name: str) -> None:
    script, stored = SCRIPTS / f"{name}.py", STORED / f"{name}.json"
    found = json.loads(stored.read_text(encoding="utf-8"))
    text = script.read_bytes().replace(b"\r\n", b"\n")
    assert found["script_sha256"] == hashlib.sha256(text).hexdigest(), f"run: {found['command']}"
    assert found["found"] and found["seconds"] > 0 and " core" in found["where"]
