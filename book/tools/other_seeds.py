"""Do the verdicts hold under other seeds? Every lab executed anew, and every check in tests/claims/, from other starts.

    python book/tools/other_seeds.py [START ...] [--only WORDS]     (1000 2000 3000)

Prints a table: claim, verdict, and the starts from which the lab's own cell, or its check by another route, would have
come to another verdict. Nothing is stored. Exits 1 if any would.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import claims

import notebooks

ROOT = Path(__file__).resolve().parents[2]


def of_lab(name: str, found: list[claims.Claim]) -> dict[str, str]:
    """What became of each claim of the lab ``name``, executed with the seeds that the environment names: "" if it holds."""
    md = ROOT / "notebooks" / f"{name}.md"
    nb: Any = notebooks.read_source(md)
    for cell in notebooks.code_cells(nb):
        tags = cell.metadata.setdefault("tags", [])
        tags.append("raises-exception")  # go on: other claims stand further down
    notebooks.execute(nb, md.parent)
    became: dict[str, str] = {}
    for claim in found:
        own = [
            c
            for c in notebooks.code_cells(nb)
            if c.source.strip() and any(cell.strip().endswith(c.source.strip()) for cell in claim.cells)
        ]
        errors = {o.ename for c in own for o in c.outputs if o.output_type == "error"}
        became[claim.key] = "another" if errors == {"AssertionError"} else " ".join(sorted(errors))
    return became


def of_tests() -> dict[str, str]:
    """The same of each check in tests/claims/."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "tests/claims", f"--junitxml={report}"]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        cases = ET.parse(report).iter("testcase")
    return {
        str(case.get("name")).removeprefix("test_").replace("_", "-"): "another"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Which verdicts would change under other seeds?")
    parser.add_argument("starts", nargs="*", default=["1000", "2000", "3000"], metavar="START")
    parser.add_argument("--only", default="", help="only labs whose text holds this")
    args = parser.parse_args()
    labs = [(name, found) for name, _, found in claims.audited(only=args.only) if found]
    against: dict[str, list[str]] = {claim.key: [] for _, found in labs for claim in found}
    for start in args.starts:
        os.environ["LABKIT_SEEDS"] = start
        tests = of_tests()
        for name, found in labs:
            print(f"{name} from {start} ...", file=sys.stderr, flush=True)
            became = of_lab(name, found)
            for key, what in became.items():
                if what:
                    against[key].append(f"{start} (lab: {what})")
                if tests.get(key):
                    against[key].append(f"{start} (tests/claims)")
    print(f"{'claim':<32}{'verdict':<18}another verdict from the starts")
    for _, found in labs:
        for claim in found:
            print(f"{claim.key:<32}{claim.form:<18}{', '.join(against[claim.key]) or 'none'}")
    changed = sum(bool(starts) for starts in against.values())
    print(f"{changed} of {len(against)} verdicts would have been another from {', '.join(args.starts)}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
