"""``python -m labkit why FILE``: where the steps of a saved recording went, and what would help."""

from __future__ import annotations

import argparse
import sys

from labkit.train.recorder import Recording

_USE = """\
In your own script, two lines; every rank runs them:

  recorder = StragglerRecorder(model)    # from labkit.train.recorder, before DistributedDataParallel wraps it
  ...                                    # train as ever
  why = recorder.why()                   # print it on one; or keep recorder.measured() with save(FILE), for this command
"""


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit status: 0, and 2 for a file that is no recording."""
    parser = argparse.ArgumentParser(
        prog="python -m labkit why",
        description="Why isn't it faster? An account of a recorded job's step, and what would help.",
        epilog=_USE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="a recording, as Recording.save writes it")
    try:
        asked = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    try:
        print(Recording.load(asked.file).why())
    except (ValueError, OSError) as error:
        print(f"labkit why: {error}", file=sys.stderr)
        return 2
    return 0
