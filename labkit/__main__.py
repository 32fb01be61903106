"""``python -m labkit``: why a job isn't faster, and what this machine can run."""

from __future__ import annotations

import importlib
import os
import sys

#: The commands: where each one's ``main(argv) -> int`` is, and what it does.
COMMANDS = {
    "why": ("labkit.train.why_command", "where a recorded job's step goes, and what would make it faster"),
    "doctor": ("labkit.doctor", "what this machine can run, and how fast its workers talk"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command that ``argv`` names; the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0] in COMMANDS:
        return importlib.import_module(COMMANDS[argv[0]][0]).main(argv[1:])
    lines = [
        "usage: python -m labkit COMMAND ...",
        "",
        *(f"  {name:<8}{what}" for name, (_, what) in COMMANDS.items()),
    ]
    lines += ["", "python -m labkit COMMAND --help says more."]
    asked = not argv or argv[0] in ("-h", "--help", "help")
    if not asked:
        print(f"labkit: the command must be one of {', '.join(COMMANDS)}, got {argv[0]!r}\n", file=sys.stderr)
    print("\n".join(lines), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read has had enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
