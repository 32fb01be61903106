"""The ways in agree: pyproject.toml, constraints.txt, environment.yml, the Makefile; and `import labkit` is light."""

import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
IMPORT_S = 0.3
HEAVY = ("torch", "matplotlib", "scipy", "sklearn", "IPython", "ipywidgets", "anywidget")
ROOMS = "labkit.collectives, labkit.learn, labkit.show, labkit.timing, labkit_book.labs.figures"


def direct() -> list[Requirement]:
    """Every dependency that pyproject names, of labkit and of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = sum(project["optional-dependencies"].values(), project["dependencies"])
    return [r for r in map(Requirement, lines) if r.name != "distributed-optimisation-labkit"]


def constraints() -> dict[str, Version]:
    """name -> version, of lines `name==version`; comments and options are passed over."""
    found: dict[str, Version] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith(("#", "-")):
            name, version = re.fullmatch(r"([\w.-]+)==([\w.!+]+)", line.strip()).groups()  # type: ignore[union-attr]
            assert canonicalize_name(name) not in found, f"{name} is pinned twice"
            found[canonicalize_name(name)] = Version(version)
    return found


def test_every_direct_dependency_is_pinned_to_a_version_that_pyproject_allows() -> None:
    pinned = constraints()
    for requirement in direct():
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"constraints.txt does not pin {requirement.name}"
        assert requirement.specifier.contains(pinned[name]), f"{requirement} excludes {pinned[name]}"


def test_environment_yml_installs_what_make_does_at_the_same_versions() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    by_pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    wanted = ["-c constraints.txt", "-e .[dev]"]
    assert [line for line in by_pip if "index-url" not in line] == wanted
    assert "-c constraints.txt" in MAKEFILE and "-e '.[dev]'" in MAKEFILE


def python_of_make(env: dict[str, str]) -> str:
    """With which Python `make lab` would open JupyterLab in this environment."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CONDA", "VIRTUAL_ENV", "MAKE"))}
    asked = ["make", "-n", "lab"]
    done = subprocess.run(asked, cwd=ROOT, env=clean | env, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1].removesuffix(" -m jupyter lab --config=book/lab/config.py")


def test_make_uses_the_active_environment_where_labkit_is_in_it(tmp_path: Path) -> None:
    for name, has in (("with", "true"), ("without", "false")):
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\n{has}\n")
        python.chmod(0o755)
    ours, other = str(tmp_path / "with"), str(tmp_path / "without")
    assert python_of_make({"VIRTUAL_ENV": ours}) == f"{ours}/bin/python"
    assert python_of_make({"CONDA_PREFIX": ours, "CONDA_DEFAULT_ENV": "labkit"}) == f"{ours}/bin/python"
    made = {"VIRTUAL_ENV": str(ROOT / ".venv")}  # by make, which keeps it up to date
    base = {"CONDA_PREFIX": ours, "CONDA_DEFAULT_ENV": "base"}
    for env in ({}, {"VIRTUAL_ENV": other}, made, base):
        assert python_of_make(env) == ".venv/bin/python"


@pytest.mark.alone
def test_import_labkit_is_quick() -> None:
    """The best of five fresh interpreters; a busy machine, which only adds, gets fifteen more."""
    best = float("inf")
    for attempt in range(20):
        if attempt >= 5 and best < IMPORT_S:
            break
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import labkit"], cwd=ROOT, check=True)
        best = min(best, time.perf_counter() - began)
    assert best < IMPORT_S


def test_import_labkit_and_its_rooms_brings_nothing_heavy() -> None:
    code = f"import sys, labkit, {ROOMS}; [getattr(labkit, name) for name in labkit.__all__]"
    code += f"; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
