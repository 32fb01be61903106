"""Long sweeps: computed once, stored with machine, date and command, read and plotted by the labs.

`notebooks/sweeps/NAME.py` defines `sweep()`, which returns what JSON can hold. `labkit_book/labs/sweeps/NAME.json` has what
it returned, when, where, in how many seconds and from which text; a lab reads `data_file("sweeps/NAME.json")`.

    python book/tools/sweeps.py [--busy] [NAME ...]     recompute these, or all, on a calm machine (with --busy on any, and
                                                        then it says so of the machine)
"""

import importlib.util
import json
import sys
import time
from pathlib import Path

import calm
import closure

from labkit import machine

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks" / "sweeps"
STORED = ROOT / "labkit_book" / "labs" / "sweeps"


def compute(script: Path, where: str) -> float:
    """Run one sweep, store what it found, return its seconds."""
    spec = importlib.util.spec_from_file_location(f"sweep_{script.stem}", script)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where its processes look for it
    spec.loader.exec_module(module)
    began = time.perf_counter()
    found = module.sweep()
    seconds = time.perf_counter() - began
    stored = {"command": f"make sweeps NAME={script.stem}", "where": where, "seconds": round(seconds, 1)}
    stored |= {"script_sha256": closure.digest(script.read_bytes()), "found": found}
    text = json.dumps(stored, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (STORED / f"{script.stem}.json").write_text(text, encoding="utf-8")
    return seconds


def main(arguments: list[str]) -> int:
    busy, names = "--busy" in arguments, [a for a in arguments if a != "--busy"]
    scripts = [FOLDER / f"{name}.py" for name in names] or sorted(FOLDER.glob("*.py"))
    for script in scripts:
        if not script.exists():
            have = ", ".join(p.stem for p in sorted(FOLDER.glob("*.py")))
            print(f"NAME must be one of {have}, got {script.stem}", file=sys.stderr)
            return 2
        if not busy and (disturbed := calm.disturbance()):
            print(f"{script.stem}: NOT computed. {disturbed}", file=sys.stderr)
            return 1
        print(f"{script.stem}: computing ...", flush=True)
        where = machine.describe() + ", beside other work" * busy
        print(f"{script.stem}: stored after {compute(script, where):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
