"""The wheel that the book offers: labkit and labkit_book as one file, which a downloaded notebook's first cell installs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import closure

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: What pip knows labkit by, the wheel's file name, and where it lies in the built book.
DISTRIBUTION = PROJECT["name"]
NAME = f"{DISTRIBUTION.replace('-', '_')}-{PROJECT['version']}-py3-none-any.whl"
PLACE = "downloads"


def make(folder: Path) -> Path:
    """Make the wheel in `folder`, from a copy (setuptools leaves its traces in the source) and offline; its path.

    Raises subprocess.CalledProcessError, after pip's own words on stderr.
    """
    skip = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "*.pyc")
    with tempfile.TemporaryDirectory() as source:
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        for package in closure.PACKAGES:
            shutil.copytree(ROOT / package, Path(source, package), ignore=skip)
        offline = ["--no-build-isolation", "--no-deps", "--no-index"]
        command = [sys.executable, "-m", "pip", "wheel", "-q", *offline, "-w", folder.resolve(), "."]
        subprocess.run(command, cwd=source, check=True, stdin=subprocess.DEVNULL)
    return folder / NAME
