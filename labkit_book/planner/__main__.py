"""The planner's command: ``python -m labkit_book.planner``. Options for a first question, a job file for all of a `Case`."""

from __future__ import annotations

import argparse
import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit.checks import number
from labkit_book.planner.case import Case, job_file
from labkit_book.planner.method import METHODS
from labkit_book.planner.plan import plan
from labkit_book.planner.report import as_text
from labkit_book.planner.sweep import read_sweep
from labkit_book.planner.units import read, workers

#: The job that ``--example`` plans: a ResNet-50; its target is an assumption.
EXAMPLE = {
    "parameters": "25.6M", "b": "32", "example-ms": "4", "network": "25Gbit/s", "K": "1-256", "examples": "28.7M",
    "critical-batch": "4096", "price": "2.5",
}  # fmt: skip
_ABOUT = """
Start with the first six. All else stands in a job file: a JSON object whose keys are the fields of
labkit_book.planner.Case, in SI units: {"per_host_workers": 4, "inside_beta_bytes_per_s": 1e10, ...}.

A data sheet's rate counts as over RDMA (job file: "transport": "tcp"); sums get the share of it,
and steps scatter, as in published jobs (lab 10.10). The time that is said is then the middle of a
range that holds nine of ten of those. From rate and latency, as measured, nothing is taken off,
nor from a FILE, what nccl-tests or labkit doctor --json printed.

methods; of those without a known number of steps the answer says what it takes it to be:
"""


def _network(text: str) -> dict[str, Any]:
    if Path(text).is_file():
        return {"sweep": read_sweep(Path(text).read_text()), "transport": "measured"}
    rate, _, latency = text.partition(",")
    link = {"beta_bytes_per_s": read(rate, "B/s")}
    return link | {"alpha_s": read(latency, "s"), "transport": "measured"} if latency else link


#: option -> the field of the case, what reads its text, an example, help.
_OPTIONS: dict[str, tuple[str, Callable[[str], Any], str, str]] = {
    "parameters": ("parameters", read, "25.6M", "of the model; gradients have 4 bytes each, or element_bytes"),
    "b": ("b_examples", read, "32", "examples per worker and step"),
    "example-ms": ("example_s", lambda text: read(text) / 1e3, "4", "computation of one example on one worker"),
    "network": ("beta_bytes_per_s", _network, "25Gbit/s", "of a data sheet; or 1GB/s,20us, as measured; or a FILE, below"),
    "K": ("K_workers", workers, "1-64", "workers: 8, or 1,2,4, or 1-64 (powers of two and both ends)"),
    "examples": ("total_examples", read, "28.7M", "to compute until the accuracy is reached, in small batches"),
    "critical-batch": ("B_crit_examples", read, "4096", "the batch that needs twice as many"),
    "methods": ("methods", lambda text: text.split(","), "LIST", "of those below; default: sync in all its ways"),
    "price": ("price_per_worker_hour", read, "2.5", "of one worker and hour"),
    "memory": ("memory_bytes", lambda text: read(text, "B"), "80GB", "of one worker; what does not fit is refused"),
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run the planner with these arguments; the exit status: 2 for bad input, with one sentence on stderr."""
    argv = sys.argv[1:] if argv is None else argv
    given = vars(_parser().parse_args(argv or ["--help"]))
    example, file = given.pop("example"), given.pop("from")
    typed = {name: text for name, text in given.items() if text is not None}
    try:
        if example and file:
            raise ValueError("--example and --from are two jobs: give one of them")
        typed = EXAMPLE | typed if example else typed
        text = as_text(plan(_case(typed, job_file(Path(file).read_text()) if file else {})))
        if example:
            words = [word for name, value in typed.items() for word in (f"--{name}", value)]
            text = f"python -m labkit_book.planner {shlex.join(words)}\n\n{text}"
        print(text)
    except (ValueError, TypeError, OverflowError, ImportError, OSError) as error:
        sentence = str(error)
        for name, (field, *_) in _OPTIONS.items():  # what people typed, in place of what it is called inside
            sentence = re.sub(rf"(?<![\w-]){field}\b", f"--{name}", sentence)
        print(f"labkit_book.planner: {sentence}", file=sys.stderr)
        return 2
    return 0


def _case(typed: dict[str, str], file: dict[str, Any]) -> Case:
    """The case of a job file's fields and, in their place, of what was typed."""
    fields: dict[str, Any] = {}
    for name, text in typed.items():
        field, reader = _OPTIONS[name][:2]
        try:
            fields |= reader(text) if name == "network" else {field: reader(text)}
        except ValueError as error:
            raise ValueError(f"--{name} {error}") from None
    # another way of saying what was typed goes
    gone = {"sweep", "beta_bytes_per_s"} if "network" in typed else set()
    gone |= {"S_min_steps", "B_crit_examples"} if "examples" in typed else set()
    both = {"transport": "rdma"} | {name: value for name, value in file.items() if name not in gone} | fields
    if {"examples", "critical-batch"} <= typed.keys():
        # in batches far below the critical one S_min B_crit examples do
        twice = number("--critical-batch", both["B_crit_examples"], above=0)
        both["S_min_steps"] = both.pop("total_examples") / twice
    for name in ("parameters", "b", "example-ms", "K"):
        if _OPTIONS[name][0] not in both:
            raise ValueError(f"--{name} must be given: {_OPTIONS[name][3]}")
    return Case(**both)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m labkit_book.planner",
        description="Which way to train, on how many workers, and why: time to accuracy = steps(B) x seconds per step.",
        epilog=_ABOUT + "\n".join(f"  {name:<14}{what}" for name, what in METHODS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name, (_, _, example, said) in _OPTIONS.items():
        parser.add_argument(f"--{name}", dest=name, metavar=example, help=said)
    parser.add_argument("--from", metavar="FILE", help="a job file, below; options take precedence")
    parser.add_argument("--example", action="store_true", help="an example job; options take precedence")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever read has had enough, as head has
    sys.exit(main())
