"""The workflows and the citation against the published schemas of their formats, as check-jsonschema carries them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMAS = {"vendor.github-workflows": WORKFLOWS, "vendor.citation-file-format": [ROOT / "CITATION.cff"]}


def main() -> int:
    command = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema"]
    return max(subprocess.run([*command, name, *paths]).returncode for name, paths in SCHEMAS.items())


if __name__ == "__main__":
    sys.exit(main())
