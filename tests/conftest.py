"""Scripts under test are interrupted as at a terminal, and end with the test, also when it fails; so do figures."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
# Before numpy and torch are loaded, here or by what a test starts: several threads wait for one another by spinning, and
# tests that run beside each other on a few cores have better use for those. Arrays as small as many here gain nothing.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# Each day the same examples: what one in some hundred runs would find is for the week. A busy machine takes its time.
ours = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ours", **ours, derandomize="LABKIT_NEW_EXAMPLES" not in os.environ)
settings.load_profile("ours")
# Most objects belong to modules that stay: looking through them again and again took a tenth of the tests' time.
gc.set_threshold(100_000, 10, 10)
MARK = "LABKIT_STARTED_BY_TEST"  # inherited by whatever the script starts, torchrun's sessions of their own included


@contextlib.contextmanager
def _started(command: Sequence[Any], env: Any = None, preexec_fn: Any = None, **options: Any) -> Any:
    mark = uuid.uuid4().hex

    def first() -> None:
        # Nohup and many runners ignore it, and that is inherited.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if preexec_fn is not None:
            preexec_fn()

    env = {**({**os.environ, "PYTHONPATH": str(ROOT)} if env is None else env), MARK: mark}
    process = subprocess.Popen([str(c) for c in command], env=env, text=True, preexec_fn=first, **options)
    try:
        yield process
    finally:
        while left := _family(process.pid, mark):
            for p in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    p.kill()
            process.poll()
            psutil.wait_procs(left, timeout=5)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _family(pid: int, mark: str) -> list[psutil.Process]:
    """The process, those under it, and those that it left to others, as far as they live."""
    found = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        found |= {psutil.Process(pid), *psutil.Process(pid).children(recursive=True)}
    for p in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if p.environ().get(MARK) == mark:
                found.add(p)
    alive = []
    for p in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            if p.status() != psutil.STATUS_ZOMBIE:
                alive.append(p)
    return alive


@pytest.fixture(scope="session")
def started() -> Callable[..., AbstractContextManager[subprocess.Popen[str]]]:
    """`with started(command, **options) as process`: a Popen of text, whose whole family ends with the `with`.

    Where no environment is given, it is this one, with this checkout's labkit."""
    return _started


@pytest.fixture(scope="session")
def ran() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ran(command, timeout, **options)`: what subprocess.run gives, and nothing that the command started is left."""

    def run(command: Sequence[Any], timeout: float, **options: Any) -> subprocess.CompletedProcess[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with _started(command, **pipes, **options) as process:
            out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess([str(c) for c in command], process.returncode, out, err)

    return run


@pytest.fixture(autouse=True)
def figures_end_with_their_test() -> Iterator[None]:
    """A figure of pyplot's that a test leaves open would be counted by the next one on the same worker."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def make_figure() -> Callable[..., Any]:
    """`make_figure(name, **parameters)`; the figure of compressors gets some runs to show where none are given."""
    import numpy as np

    from labkit.compress import QSGD, ErrorFeedback, Identity, Sign, TopK
    from labkit_book.labs.figures import figure
    from labkit_book.labs.figures.compressors import Curve

    ways = {
        "plain": (Identity(), 0.10, 0.0), "QSGD, s = 7": (QSGD(7), 0.095, 4e-6),
        "top 1 %": (ErrorFeedback(TopK(0.01)), 0.03, 4e-6),
        "sign": (ErrorFeedback(Sign()), 0.09, 4e-6), "top 10 %": (ErrorFeedback(TopK(0.1)), 0.08, 4e-6),
    }  # fmt: skip
    runs = [
        Curve(n, how, 2 * np.exp(-pace * np.arange(41)), 4, 200, 8, s) for n, (how, pace, s) in ways.items()
    ]

    def made(name: str, **parameters: Any) -> Any:
        return figure(name, **({"curves": runs} if name == "compressors" else {}) | parameters)

    return made


#: Files whose tests are handed out a parameter at a time: problem sets, the book's pages, each opened once.
BY_PARAMETER = ("test_sets.py", "test_built_book.py")


@pytest.hookimpl(optionalhook=True)  # there may be no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile` a file's tests stay with one process, or those of one parameter of a file in BY_PARAMETER.

    By their names: from pytest 9.2 on xdist 3.8 does not see its own marks of groups any more (pytest-xdist issue 1386).
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileAndParameter(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            parameters = test.partition("[")[2].rstrip("]")
            return f"{file}[{parameters.partition('-')[0]}" if file.endswith(BY_PARAMETER) else file

    return ByFileAndParameter(config, log)
