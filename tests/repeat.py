"""Is it green every time? Stages of `make test`, again and again, on a machine as busy as one likes.

    python tests/repeat.py 10 browser                     ten times
    python tests/repeat.py 3 tests alone --load 8         while eight processes do nothing but keep the cores busy
    python tests/repeat.py 1 tests --no-interrupt         started with SIGINT ignored, as many runners do

Pytest says what failed; the last lines say how often each stage was red. Exits with 1 if any was red.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import stages

BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(10**6))"  # ends with who started it


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("times", type=int)
    parser.add_argument("stages", nargs="+", choices=[name for name, _ in stages.STAGES])
    parser.add_argument("--load", type=int, default=0, metavar="N")
    parser.add_argument("--no-interrupt", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and with it the stage that runs
    if args.no_interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # which what is started from here inherits
    red = Counter[str]()
    with ExitStack() as opened:
        report = Path(opened.enter_context(tempfile.TemporaryDirectory()), "report.xml")
        for _ in range(args.load):
            busy = opened.enter_context(subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]))
            opened.callback(busy.kill)
        for _ in range(args.times):
            for name, command in stages.STAGES:
                if name in args.stages:
                    red[name] += stages.run(name, command, report) != 0
    print("\n".join(f"{name}: red {red[name]} times in {args.times} runs" for name in args.stages))
    return int(red.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
