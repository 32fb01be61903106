"""What stands in for GPUs and nccl where there are none, so that the rules of both can be broken in a test.

``there(devices)`` gives the environment in which every Python process, worker processes and kernels included, has that many
devices named "pretend", collectives among them through "pnccl", and a labkit that computes on them. torch itself loads them:
they are declared as its entry point "torch.backends" (its way for devices that it does not know), in a folder made for it.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEVICES, TIMEOUT = "PRETENDED_DEVICES", "PRETENDED_TIMEOUT_S"


@contextmanager
def there(devices: int, timeout_s: float = 60.0) -> Iterator[dict[str, str]]:
    """The environment of a process with so many devices; what never meets there fails after ``timeout_s``."""
    with tempfile.TemporaryDirectory() as folder:
        declared = Path(folder) / "pretended-0.dist-info"
        declared.mkdir()
        (declared / "METADATA").write_text("Metadata-Version: 2.1\nName: pretended\nVersion: 0\n")
        (declared / "entry_points.txt").write_text("[torch.backends]\npretended = pretended.device:use\n")
        path = [folder, str(HERE.parent), str(HERE.parents[2]), os.environ.get("PYTHONPATH", "")]
        yield {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            DEVICES: str(devices),
            TIMEOUT: str(timeout_s),
        }
