"""``python -m labkit_book.why FILE``: where the steps of a saved recording went, and what would help."""

from __future__ import annotations

import argparse
import sys

from labkit_book.why import Steps, account


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit status: 0, and 2 for a file that is no recording."""
    parser = argparse.ArgumentParser(prog="python -m labkit_book.why", description="Why isn't it faster?")
    parser.add_argument("file", help="a recording: what measure(recorder) returns, saved by its save(path)")
    try:
        print(account(Steps.load(parser.parse_args(argv).file)))
    except (ValueError, OSError) as error:
        print(f"labkit_book.why: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
