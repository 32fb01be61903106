"""The wheel: both packages, nothing else, no key; and what readers are told to install."""

import email
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import build
import closure
import first_cell
import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from reader import Environment

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the book offers."""
    return build.make_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_carries_every_file_of_both_packages_and_no_other(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    own = {name for name in names if ".dist-info/" not in name}
    files = (p for package in closure.PACKAGES for p in (ROOT / package).rglob("*") if p.is_file())
    left = {"__pycache__", ".ipynb_checkpoints", ".ruff_cache", "ruff.toml"}
    assert own == {p.relative_to(ROOT).as_posix() for p in files if not left & set(p.parts)}
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)


def test_no_key_is_in_the_wheel(wheel: Path) -> None:
    table = rb"^(SOLUTIONS|MUTANTS|HIDDEN)\b.*="
    key = (ROOT / "tests" / "problems" / "key_2_2.py").read_bytes()
    assert re.search(table, key, re.M), "this test looks for another form"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            looks_so = re.search(r"(^|/)(tests?|key_\w+|keys?)(/|\.py$)", name)
            assert not looks_so or name == "labkit_book/grader/key.py", name
            assert not re.search(table, archive.read(name), re.M), name


def test_the_wheel_asks_for_numpy_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/METADATA"))
        said = email.message_from_string(archive.read(name).decode())
    needs = [r for r in said.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert [re.match(r"[\w-]+", r)[0] for r in needs] == ["numpy"]  # type: ignore[index]


ALONE = """
import sys
sys.path[:] = [sys.argv[1], *sys.path]
import numpy as np
import labkit, pkgutil, importlib
from labkit import Link, Simulated, launch
from labkit.collectives import ring
from labkit.timing import LogNormal
assert labkit.__file__.startswith(sys.argv[1])
for name in ("scipy", "torch", "cloudpickle", "matplotlib"):
    assert importlib.util.find_spec(name) is None, name
for room in ("collectives", "comm", "compress", "network", "learn", "show", "timing"):
    importlib.import_module(f"labkit.{room}")
run = launch(lambda comm: ring.allreduce(comm, np.arange(8.0) * comm.rank), 3, world=Simulated(Link(1e-4, 1e8)))
assert all((total == np.arange(8.0) * 3).all() for total in run.results)
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
assert importlib.util.find_spec("labkit_book") is None
sys.path.append(sys.argv[2])
from labkit_book import check
from labkit_book.labs.text import shakespeare
assert len(shakespeare().vocabulary) > 50
from labkit_book.planner.__main__ import main
def step(comm, batches, w, eta, decay, c): ...
assert check("10.3-1", step).status == "todo"
sys.exit(main(["--example"]))
"""


def test_installed_beside_these_two_alone_it_imports_simulates_and_says_what_the_rest_needs(
    ran: Any, wheel: Path, tmp_path: Path
) -> None:
    options = ["-q", "--no-deps", "--no-index", "--no-compile", "--target"]
    install = [sys.executable, "-m", "pip", "install", *options, tmp_path / "here", wheel]
    subprocess.run(install, check=True, stdin=subprocess.DEVNULL)
    for found in Path(np.__file__).parents[1].glob("numpy*"):
        (tmp_path / "here" / found.name).symlink_to(found)
    (tmp_path / "companion").mkdir()
    shutil.move(tmp_path / "here" / "labkit_book", tmp_path / "companion")
    alone = [sys.executable, "-I", "-S", "-c", ALONE, tmp_path / "here", tmp_path / "companion"]
    done = ran(alone, timeout=200, cwd=tmp_path)
    said = done.stdout.splitlines()
    assert len(said) == 8, done.stderr
    assert said[1] == (
        "LaunchError: world='processes' needs torch and cloudpickle (No module named 'torch': pip install "
        "torch cloudpickle); world='simulated' does not"
    )

    needs = "this needs {0}, which is not installed: pip install {0}".format
    others = ["scipy", "torch", *["matplotlib"] * 4, "ipywidgets"]
    assert [said[0], *said[2:]] == [f"ImportError: {needs(other)}" for other in others]
    assert done.returncode == 2  # the planner's example
    assert done.stderr.splitlines()[-1] == f"labkit_book.planner: {needs('scipy')}"


# -- what is asked for is ours, or one of our requirements --------------------------------------------------------


def requirements() -> set[str]:
    """Every package that pyproject.toml names, ours among them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra), project["name"]]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def advised() -> Iterator[tuple[Path, str]]:
    """(file, what it advises to install), a word each, in everything that a reader may see; not `.`, what is there."""
    listed = ["git", "ls-files", "-z", *closure.PACKAGES, "book", "notebooks", "README.md"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for path in (ROOT / name for name in tracked if name):
        if not path.exists() or path.suffix not in (".py", ".md", ".js", ".txt", ".yml", ".ipynb", ".html"):
            continue
        text = path.read_text(encoding="utf-8").replace('\\"', '"')
        for line in re.findall(r"pip install ([^`\n;)\"]*)", text):
            words = re.sub(r"\{.*?\}|(?<!\S)-(c \S+|\S+)", "", line.partition(". ")[0]).split()
            asked = [word.strip("'.,/").replace(first_cell.WHEEL, first_cell.DISTRIBUTION) for word in words]
            yield from ((path, word) for word in asked if word and word[0] != "[")
        yield from ((path, found) for found in re.findall(r"(?<![\w-])labkit\[[a-z,]+\]", text))


def test_whoever_is_told_to_install_something_is_told_a_package_of_ours_or_a_requirement() -> None:
    found = list(advised())
    assert {word for _, word in found} >= {"quickjs-ng", "nvidia-ml-py"}
    known = requirements()
    strangers = [(p, w) for p, w in found if canonicalize_name(re.sub(r"\[.*", "", w)) not in known]
    assert not strangers


def test_a_first_cell_does_not_take_a_stranger_s_package_for_ours(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment", wheel.parent)
    (tmp_path / "labkit").mkdir()
    (tmp_path / "labkit" / "__init__.py").write_text("import nothing_that_is_here")
    (tmp_path / "cell.py").write_text(first_cell.source(""), encoding="utf-8")
    said = environment.run("cell.py", cwd=tmp_path).stderr.splitlines()[-1]
    assert "Another package of the name labkit" in said and str(tmp_path / "labkit") in said


def test_a_first_cell_says_which_file_to_fetch_and_installs_labkit_from_it_once(
    wheel: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "environment", wheel.parent)
    (tmp_path / "cell.py").write_text(first_cell.source(""), encoding="utf-8")
    asked = environment.run("cell.py", cwd=tmp_path).stderr.splitlines()[-1]
    assert f"Download {first_cell.WHEEL} from the book" in asked
    shutil.copy(wheel, tmp_path / first_cell.WHEEL)
    done = environment.run("cell.py", cwd=tmp_path)
    assert "labkit is installed; this machine offers" in done.stdout, done.stderr
    assert environment.run("cell.py", cwd=tmp_path).stdout == ""
    where = environment.run(
        "-c", "import labkit, labkit_book as b; print(labkit.__file__, b.__file__)", cwd=tmp_path
    )
    assert all(file.startswith(str(tmp_path)) for file in where.stdout.split()) and where.stdout
