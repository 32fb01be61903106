"""Long sweeps: computed once, stored with machine, date and command, read and plotted by the labs.

`notebooks/sweeps/NAME.py` defines `sweep()`, which returns what JSON can hold. `labkit_book/labs/sweeps/NAME.json` has what
it returned, when, where, in how many seconds and from which text; a lab reads `data_file("sweeps/NAME.json")`.

    python book/tools/sweeps.py [NAME ...]     recompute these, or all
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks" / "sweeps"
STORED = ROOT / "labkit_book" / "labs" / "sweeps"


def digest(script: Path) -> str:
    """SHA-256 of the script, the same for either kind of line ending."""
    return hashlib.sha256(script.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def compute(script: Path) -> float:
    """Run one sweep, store what it found, return its seconds."""
    from labkit import machine

    spec = importlib.util.spec_from_file_location(f"sweep_{script.stem}", script)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    began = time.perf_counter()
    found = module.sweep()
    seconds = time.perf_counter() - began
    stored = {
        "command": f"make sweeps NAME={script.stem}",
        "where": machine.describe(),
        "seconds": round(seconds, 1),
        "script_sha256": digest(script),
        "found": found,
    }
    text = json.dumps(stored, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (STORED / f"{script.stem}.json").write_text(text, encoding="utf-8")
    return seconds


def main(names: list[str]) -> int:
    scripts = [FOLDER / f"{name}.py" for name in names] or sorted(FOLDER.glob("*.py"))
    for script in scripts:
        if not script.exists():
            have = ", ".join(p.stem for p in sorted(FOLDER.glob("*.py")))
            print(f"NAME must be one of {have}, got {script.stem}", file=sys.stderr)
            return 2
        print(f"{script.stem}: computing ...", flush=True)
        print(f"{script.stem}: stored after {compute(script):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
