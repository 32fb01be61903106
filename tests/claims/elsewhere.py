"""Do the verdicts hold on other data? Every check of a claim that rests on seeds, in all its settings (`conftest.py`).

    python tests/claims/elsewhere.py [LAB ...]      such as 10_2

Prints, claim by claim, the lab's word and each setting: whether the check comes to that word there, or to another one
that the page names (marked). Exits 1 if anywhere it comes to a word that nobody marked.
"""

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools")]

import conftest  # noqa: E402  (which needs them)


def run(labs: list[str]) -> list[tuple[str, str, bool, float]]:
    """Of each check in each setting: its claim, the setting, whether it came to the word expected there, its seconds."""
    files = [f"tests/claims/test_{lab}.py" for lab in labs] or ["tests/claims"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *files, f"--junitxml={report}"]
        environment = {**os.environ, "LABKIT_ELSEWHERE": "1"}
        subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, stdin=subprocess.DEVNULL)
        cases = list(ET.parse(report).iter("testcase"))
    rows = []
    for case in cases:
        found = re.fullmatch(r"test_(\w+)\[(.*)\]", str(case.get("name")))
        if found:
            held = case.find("failure") is None and case.find("error") is None
            rows.append((found[1].replace("_", "-"), found[2], held, float(case.get("time", 0))))
    return rows


def main() -> int:
    claims = conftest.audited()
    rows = sorted(row for row in run(sys.argv[1:]) if row[0] in claims)
    print(f"{'claim':<34}{'the lab says':<18}{'setting':<60}{'there':<10}{'s':>6}")
    for key, setting, held, seconds in rows:
        there = ("marked" if "verdict=" in setting else "the same") if held else "ANOTHER"
        print(f"{key:<34}{claims[key].form:<18}{setting:<60}{there:<10}{seconds:>6.1f}")
    others = [row for row in rows if row[1] != "page"]
    changed = sum(not held for _, _, held, _ in rows)
    print(
        f"{len({row[0] for row in rows})} claims in {len(others)} other settings: {changed} unmarked changes"
    )
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
