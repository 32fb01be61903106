"""A reader's environment: every package of this one, but labkit from the wheel, and nothing of the checkout.

    python tests/reader.py FOLDER

makes one there, with a kernel of the name `reader` for whoever has FOLDER/share/jupyter in JUPYTER_PATH.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "tools"))

import build  # noqa: E402


class Environment:
    """A virtual environment with the packages of this one, labkit excepted. folder: where it is made.

    pip finds in it what is there, and in `offered`, its only index; nothing is downloaded.
    """

    def __init__(self, folder: Path, offered: Path) -> None:
        venv.create(folder)
        self.folder, self.python = folder, folder / "bin" / "python"
        site = next(folder.glob("lib/python*/site-packages"))
        for path in Path(np.__file__).parents[1].iterdir():
            if not re.match(r"labkit|distributed_optimisation_labkit|__|.*\.pth$", path.name):
                (site / path.name).symlink_to(path)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
        self.env = {**kept, "PYTHONNOUSERSITE": "1", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(offered)}

    def run(self, *command: Any, cwd: Path) -> subprocess.CompletedProcess[str]:
        """What the environment's Python says to these arguments."""
        pipes = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        return subprocess.run([self.python, *command], cwd=cwd, env=self.env, **pipes)


def main(folder: Path) -> None:
    """Make it anew, with the kernel."""
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as offered:
        reader = Environment(folder, Path(offered))
        wheel = build.make_wheel(Path(offered))
        done = reader.run("-m", "pip", "install", "-q", "--no-deps", wheel, cwd=folder)
        if done.returncode:
            sys.exit(f"pip could not install {wheel.name} in {folder}:\n{done.stderr}")
    kernel = folder / "share" / "jupyter" / "kernels" / "reader" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    command = [str(reader.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    its_own = {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
    spec = {"argv": command, "display_name": "A reader's Python", "language": "python", "env": its_own}
    kernel.write_text(json.dumps(spec), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
