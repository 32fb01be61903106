"""Does labkit hold at the oldest versions that pyproject.toml allows of what the labs need, at the newest, and at Colab's?

    python tests/bounds.py lowest|newest|colab [NAME==VERSION ...]

makes an environment of its own in `_build/lowest`, say, runs tests there, and runs labs from top to bottom. An error in any
output fails, also one that its cell survives, as that of a figure which cannot be shown. With Colab's versions labkit is not
installed before, and no tests run: each lab stands with the wheel in a folder of its own, and its first cell installs it.
The weekly workflow calls all three (`make lowest`, ...). NAME==VERSION stands for one that cannot be had here, as another
torch without its gigabytes. Needs nothing but Python.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: What runs the tests and the labs; of Jupyter the kernel alone, at its bound too.
RUNNERS = [
    "hypothesis", "ipykernel", "jupytext", "nbclient", "psutil", "pytest>=9", "pytest-timeout", "pyyaml",
]  # fmt: skip
#: What Colab has (on 19 August 2026), as far as labs import it.
COLAB = [
    "anywidget==0.9.21", "ipykernel==6.17.1", "ipython==7.34.0", "ipywidgets==7.7.1", "matplotlib==3.10.0",
    "numpy==2.1.3", "scipy==1.16.3", "torch==2.11.0",
]  # fmt: skip
#: Two runs: IPython 7 puts a folder with a package `tests` onto the path, where worker processes would look for ours.
ROOMS = "collectives comm/test_worlds.py network learn timing test_examples.py"
TESTS = (["tests/show"], [f"tests/{room}" for room in ROOMS.split()])
# Plots, figures, an explorer, predictions, worker processes.
LABS = ["10_3_synchronous_sgd", "10_5_all_reduce"]


def requirements(extra: str | None = None) -> list[str]:
    """What labkit needs, with `extra` and what that refers to."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = list(project["dependencies"]) if extra is None else []
    for line in project["optional-dependencies"][extra] if extra else ():
        own = re.fullmatch(rf"{project['name']}\[(.+)\]", line)
        found += [r for name in own[1].split(",") for r in requirements(name.strip())] if own else [line]
    return found


def constraints(versions: str) -> list[str]:
    """Lines of a constraints file. ValueError unless `versions` is lowest, newest or colab."""
    if versions not in ("lowest", "newest", "colab"):
        raise ValueError(f"versions must be lowest, newest or colab, got {versions!r}")
    if versions != "lowest":
        return COLAB if versions == "colab" else []
    kernel = [line for line in requirements("notebooks") if line.startswith("ipykernel")]
    wanted = [*requirements(), *requirements("labs"), *kernel]
    return sorted({re.sub(r">=([\w.]+).*", r"==\1", line) for line in wanted if ">=" in line})


def errors(cells: list[Any]) -> list[str]:
    """What went wrong in the outputs of a notebook, a line each: errors, and tracebacks that were only printed."""
    found = []
    for n, cell in enumerate(cells, 1):
        for output in cell.get("outputs", []):
            if output["output_type"] == "error" and "raises-exception" not in cell["metadata"].get(
                "tags", []
            ):
                found.append(f"code cell {n}: {output['ename']}: {output['evalue']}")
            elif output["output_type"] == "stream" and "Traceback (most recent" in output["text"]:
                found.append(f"code cell {n} prints: {output['text'].strip().splitlines()[-1]}")
    return found


def run_lab(path: Path) -> list[str]:
    """Run a notebook in its folder, in this Python's kernel; its `errors`."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    nb = nbformat.read(path, as_version=4)
    try:
        NotebookClient(
            nb, timeout=600, kernel_name="python3", resources={"metadata": {"path": path.parent}}
        ).execute()
    except CellExecutionError as error:
        return [str(error)]
    return errors([cell for cell in nb.cells if cell.cell_type == "code"])


def with_wheel(python: Path, folder: Path, env: dict[str, str]) -> list[Path]:
    """The labs, each in a folder of its own below `folder`, with the wheel beside it."""
    command = [python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT]
    subprocess.run(command, env=env, check=True)
    alone = [folder / name / f"{name}.ipynb" for name in LABS]
    for lab in alone:
        lab.parent.mkdir()
        shutil.copy(ROOT / "notebooks" / lab.name, lab)
        shutil.copy(next(folder.glob("*.whl")), lab.parent)
    return alone


def main(versions: str, *instead: str) -> int:
    """Make the environment, run everything in it; the exit status."""
    home = ROOT / "_build" / versions
    pins = list({line.partition("==")[0]: line for line in [*constraints(versions), *instead]}.values())
    venv.create(home, with_pip=True, clear=True)
    (home / "bounds.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")
    python = home / "bin" / "python"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"MPLBACKEND": "agg", "PIP_CONSTRAINT": str(home / "bounds.txt")}
    before = [*pins, "nbclient"] if versions == "colab" else [f"{ROOT}[labs]", *RUNNERS]
    subprocess.run([python, "-m", "pip", "install", "-q", *before], env=env, check=True)
    failed = 0
    for tests in TESTS if versions != "colab" else ():
        failed |= subprocess.run([python, "-m", "pytest", "-q", *tests], cwd=ROOT, env=env).returncode
    del env["MPLBACKEND"]  # the kernel chooses its own: inline
    labs = [ROOT / "notebooks" / f"{name}.ipynb" for name in LABS]
    for lab in with_wheel(python, home / "labs", env) if versions == "colab" else labs:
        failed |= subprocess.run([python, __file__, "lab", lab], cwd=ROOT, env=env).returncode
    return failed


if __name__ == "__main__":
    if sys.argv[1:2] == ["lab"]:
        lab = Path(sys.argv[2]).resolve()
        wrong = run_lab(lab)
        print("\n".join([f"{lab.stem}: {'no error in any output' if not wrong else 'FAILED'}", *wrong]))
        sys.exit(bool(wrong))
    sys.exit(main(*sys.argv[1:]))
