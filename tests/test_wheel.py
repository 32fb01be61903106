"""The wheel: all of labkit, nothing else, no key; and it works beside numpy and greenlet."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOT_SHIPPED = ("__pycache__", ".ipynb_checkpoints", "*.pyc")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built offline from a copy (setuptools leaves its traces in the source)."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "labkit", source / "labkit", ignore=shutil.ignore_patterns(*NOT_SHIPPED))
    (source / "tests" / "exercises").mkdir(parents=True)  # what must stay behind has to be there to be left
    shutil.copy(ROOT / "tests" / "exercises" / "key_2_2.py", source / "tests" / "exercises")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "-w",
        "out",
        ".",
    ]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return next((source / "out").glob("*.whl"))


def test_the_wheel_carries_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    own = {name for name in names if ".dist-info/" not in name}
    source = wheel.parents[1]
    assert own == {p.relative_to(source).as_posix() for p in (source / "labkit").rglob("*") if p.is_file()}
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)


def test_no_key_is_in_the_wheel(wheel: Path) -> None:
    table = rb"^(SOLUTIONS|MUTANTS|HIDDEN)\b.*="
    key = (ROOT / "tests" / "exercises" / "key_2_2.py").read_bytes()
    assert re.search(table, key, re.M), "this test looks for another form"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            inside = name.removeprefix("labkit/exercises/")  # the sets ship, and nothing else of that name
            assert not re.search(r"(^|/)(tests?|exercises|key_\w+|keys?)(/|\.py$)", inside) or (
                name == "labkit/grade/key.py"
            ), name
            assert not re.search(table, archive.read(name), re.M), name


def test_the_wheel_asks_for_numpy_and_greenlet_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/METADATA"))
        said = email.message_from_string(archive.read(name).decode())
    needs = [r for r in said.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert [re.match(r"[\w-]+", r)[0] for r in needs] == ["greenlet", "numpy"]  # type: ignore[index]


ALONE = """
import sys
sys.path[:] = [sys.argv[1], *sys.path]
import numpy as np
import labkit, pkgutil, importlib
from labkit.__main__ import main
from labkit import Link, Simulated, check, launch
from labkit.collectives import ring
from labkit.learn import shakespeare
from labkit.timing import LogNormal
assert labkit.__file__.startswith(sys.argv[1])
for name in ("scipy", "torch", "cloudpickle", "matplotlib"):
    assert importlib.util.find_spec(name) is None, name
for room in ("collectives", "comm", "compress", "network", "exercises", "learn", "show", "timing"):
    home = importlib.import_module(f"labkit.{room}")
    [getattr(home, name) for name in home.__all__]
run = launch(lambda comm: ring.allreduce(comm, np.arange(8.0) * comm.rank), 3, world=Simulated(Link(1e-4, 1e8)))
assert all((total == np.arange(8.0) * 3).all() for total in run.results)
assert len(shakespeare().vocabulary) > 50
def step(comm, batches, w, eta, decay, c): ...
assert check("10.3-1", step).status == "todo"
from labkit.show import explorer, lanes, late, palette, predicted_measured
for needy in (
    lambda: LogNormal(1.0, 0.5).sf(1.0),
    lambda: launch(print, 2, world="processes"),
    lambda: importlib.import_module("labkit.train.recorder"),
    lambda: lanes(run.timeline),
    lambda: late(run.timeline, None),
    lambda: predicted_measured([1.0], {"predicted": [1.0]}, xlabel="", ylabel=""),
    palette.use_style,
    lambda: explorer(print, K=[1]),
):
    try:
        needy()
    except Exception as error:
        print(type(error).__name__ + ": " + str(error))
sys.exit(main(["plan", "--example"]))
"""


def test_installed_beside_these_two_alone_it_imports_simulates_and_says_what_the_rest_needs(
    wheel: Path, tmp_path: Path
) -> None:
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--target",
    ]
    subprocess.run([*install, str(tmp_path / "here"), str(wheel)], check=True, stdin=subprocess.DEVNULL)
    for name in ("numpy*", "greenlet*"):
        for found in Path(np.__file__).parents[1].glob(name):
            (tmp_path / "here" / found.name).symlink_to(found)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ALONE, str(tmp_path / "here")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    said = done.stdout.splitlines()
    assert len(said) == 8, done.stderr
    assert said[1] == (
        "LaunchError: world='processes' needs torch and cloudpickle, not installed here (pip install "
        "'labkit[torch]', or just torch cloudpickle); world='simulated' does not"
    )

    def needs(package: str, extra: str) -> str:
        return (
            f"this needs {package}, which is not installed: pip install 'labkit[{extra}]', or just {package}"
        )

    matplotlib = [("matplotlib", "plots")] * 4
    others = [("scipy", "scipy"), ("torch", "torch"), *matplotlib, ("ipywidgets", "labs")]
    assert [said[0], *said[2:]] == [f"ImportError: {needs(*other)}" for other in others]
    assert done.returncode == 2  # the planner's example, on stderr after its arguments
    assert done.stderr.splitlines()[-1] == f"labkit plan: {needs('scipy', 'scipy')}"
