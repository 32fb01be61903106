"""Is it green every time? Stages of `make test`, again and again, on a machine as busy as one likes.

    python tests/repeat.py 10 browser                     ten times
    python tests/repeat.py 3 tests alone --load 8         while eight processes do nothing but keep the cores busy
    python tests/repeat.py 1 tests --no-interrupt         started with SIGINT ignored, as many runners do
    python tests/repeat.py 20 browser -- -k keyboard      pytest's own options after --

Prints for each stage how many runs were green, and which tests failed how often; exits with 1 if any run was red.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import stages

BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(10**6))"  # ends with who started it


@contextlib.contextmanager
def load(n: int) -> Iterator[None]:
    """n busy processes, for as long as the `with` lasts or this process lives."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(n)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def red_tests(report: Path) -> dict[str, str]:
    """Of each test that failed, or could not run, its name and what went wrong, from a JUnit report."""
    found = {}
    for case in ET.parse(report).iter("testcase") if report.exists() else ():
        for what in case.iter():
            if what.tag in ("failure", "error"):
                found[f"{case.get('classname')}::{case.get('name')}"] = what.get("message", "")[:600]
    return found


def ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main(argv: list[str]) -> int:
    """Run it; the exit status."""
    split = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(prog="repeat.py", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("times", type=int)
    parser.add_argument("stages", nargs="+")
    parser.add_argument("--load", type=int, default=0, metavar="N")
    parser.add_argument("--no-interrupt", action="store_true")
    args = parser.parse_args(argv[:split])
    if wrong := stages.unknown(args.stages):
        parser.error(wrong)
    chosen = [
        (name, [*command, *argv[split + 1 :]]) for name, command in stages.STAGES if name in args.stages
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and with it the stage that runs
    before = {"preexec_fn": ignore_interrupt} if args.no_interrupt else {}
    green, red = Counter[str](), {name: Counter[str]() for name, _ in chosen}
    with load(args.load), tempfile.TemporaryDirectory() as folder:
        for i in range(args.times):
            for name, command in chosen:
                began, report = time.perf_counter(), Path(folder) / f"{name}{i}.xml"
                status = stages.run(name, command, report, capture_output=True, **before)
                failed = red_tests(report)
                green[name] += status == 0
                red[name].update(list(failed))
                took = f"{time.perf_counter() - began:.0f} s"
                print(
                    f"{name} {i + 1}: {f'exit status {status}' if status else 'green'} in {took}", flush=True
                )
                for test, why in failed.items():
                    print(f"  {test}: {why}", flush=True)
    for name, _ in chosen:
        print(f"{name}: {green[name]} of {args.times} green")
        for test, n in red[name].most_common():
            print(f"  red {n} times: {test}")
    return int(any(green[name] < args.times for name, _ in chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
