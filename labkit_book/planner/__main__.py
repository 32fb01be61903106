"""The planner's command: ``python -m labkit_book.planner``. Every field of a `Case` is an argument, by its ``option``."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, NoReturn

from labkit.checks import number
from labkit_book.planner import gpus, plots
from labkit_book.planner.case import EITHER, FIXED_SHARE, QUANTITIES, Case, checked, read
from labkit_book.planner.laws import LAWS
from labkit_book.planner.lint import lint
from labkit_book.planner.method import DEFAULTS, METHODS, Method, parse_methods
from labkit_book.planner.plan import plan
from labkit_book.planner.report import as_csv, as_dict, as_text
from labkit_book.planner.units import COUNT, MILLISECONDS, SHARE, naming, written

#: The job that ``--example`` plans: a ResNet-50 on hosts of 4 with 25 Gbit/s between them; its target is an assumption.
EXAMPLE = [
    "--parameters", "25.6M", "--precision", "fp32", "--example-ms", "4", "--b", "32", "--network", "25Gbit/s",
    "--latency", "20us", "--inside", "10GB/s", "--inside-latency", "5us", "--per-host", "4", "--price", "2.5/h",
    "--stragglers", "lognormal:0.05", "--steps-min", "7000", "--critical-batch", "4096", "--K", "1-256",
]  # fmt: skip
#: What is no field of a case: option -> an example, help; and what is on or off.
_MORE = {
    "batch-ms": ("128", "instead of --example-ms: computation of a whole batch of --b examples"),
    "hosts": ("8", "hosts; K is hosts x per-host"),
    "coding-ms": ("3", "to encode and decode a gradient, for the methods that compress"),
    "gpu": ("A100-80", "memory, peak and inside link by data sheet: " + ", ".join(gpus.GPUS)),
    "mfu": ("0.4", "with --gpu and --tokens, instead of --example-ms: the share of the peak assumed"),
    "plot": ("FILE", "also draw efficiency by K, and time against price (PNG, SVG)"),
    "csv": ("FILE", "also write the rows, units in the columns' names; - prints nothing else"),
}
_SWITCHES = {
    "json": "print JSON, as described below",
    "no-flips": "don't look for where the ranking flips, which takes most of the time",
    "example": "plan an example job and show its arguments",
}


def main(argv: list[str] | None = None) -> int:
    """Run the planner with these arguments; the exit status: 2 for bad input, with one sentence on stderr."""
    parser = _parser()
    argv = _joined(sys.argv[1:] if argv is None else argv)
    try:
        given = parser.parse_args(argv)
        if given.example:
            print("python -m labkit_book.planner " + " ".join(EXAMPLE) + "\n", file=sys.stderr)
            given = parser.parse_args([*EXAMPLE, *argv])
        elif not argv:
            parser.print_usage()
            print("try --example, or --help")
            return 2
        return _plan(given)
    except (ValueError, TypeError, OverflowError, ImportError) as error:
        print(f"labkit_book.planner: {error}", file=sys.stderr)
        return 2


def _plan(given: argparse.Namespace) -> int:
    values, case, carried = _case(given)
    warnings = lint(case, given.beta_bytes_per_s)
    if "alpha_s" not in values and case.transport == "measured":
        warnings.append("latency: none was given, so a message costs only its bytes; say --latency 20us")
    made = plan(case)
    flips = not given.no_flips
    if given.plot is not None:
        plots.save(made, given.plot)
    if given.csv not in (None, "-"):
        with naming("--csv must name a file that can be written", given.csv):
            Path(given.csv).write_text(as_csv(made))
    if given.json or given.csv == "-":
        whole = as_dict(made, warnings, flips) if given.json else None
        print(json.dumps(whole, indent=2, allow_nan=False) + "\n" if whole else as_csv(made), end="")
        for warning in warnings:
            print(f"labkit_book.planner: warning: {warning}", file=sys.stderr)
    else:
        print(as_text(made, flips, warnings, carried))
    return 0


def _case(given: argparse.Namespace) -> tuple[dict[str, Any], Case, list[str]]:
    """The fields that were given, in the file or, in their place, as arguments; the case that they make; what it assumes."""
    typed = {
        name: quantity.read(text, quantity.option)
        for name, quantity in QUANTITIES.items()
        if (text := getattr(given, name)) is not None
    }
    values: dict[str, Any] = {}
    if given.file is not None:
        with naming("--from must name a file that can be read", given.file):
            values = read(Path(given.file).read_text())
    # an argument puts the file's other way of saying the same aside
    turns = [turn for ways in EITHER for turn in permutations(ways)]
    aside = {name for mine, its in turns if typed.keys() & set(mine) for name in its}
    values = {name: value for name, value in values.items() if name not in aside} | typed
    if given.file is None and values.get("sweep") is None:
        values.setdefault("transport", "rdma")  # what people type is a data sheet's
    _hosts(given, values)
    _batch_ms(given, values)
    carried = _gpu(given, values)
    if values.get("transport", "measured") != "measured":
        carried.append(f"links that give what a data sheet's do over {values['transport']}")
    values["methods"] = _methods(given, values)
    of_file = values.keys() - typed.keys()
    case = Case(**checked(values, lambda name: name if name in of_file else QUANTITIES[name].option))
    return values, case, carried


def _hosts(given: argparse.Namespace, values: dict[str, Any]) -> None:
    """``--hosts``: K is hosts x per-host."""
    if given.hosts is None:
        return
    hosts, each = COUNT.read(given.hosts, "--hosts"), values.get("per_host_workers")
    if each is None:
        raise ValueError(f"--hosts must come with --per-host, the workers of each, got {hosts} hosts alone")
    K = hosts * each
    if given.K_workers is None:
        values["K_workers"] = [K]
    elif (most := max(values["K_workers"])) != K:
        raise ValueError(f"--K must end at --hosts x --per-host = {hosts} x {each} = {K}, got {most}")


def _batch_ms(given: argparse.Namespace, values: dict[str, Any]) -> None:
    """``--batch-ms``: the time of a whole batch is shared among its examples."""
    if given.batch_ms is None:
        return
    if given.example_s is not None:
        raise ValueError("--example-ms and --batch-ms say the same thing: give one of them, got both")
    if values.get("b_examples") is None:
        raise ValueError("--batch-ms must come with --b, the examples in it; give --example-ms with --B")
    whole = MILLISECONDS.read(given.batch_ms, "--batch-ms")
    if values.get("transport", "measured") != "measured":
        values.setdefault("overhead_s", FIXED_SHARE * whole)
    overhead = values.get("overhead_s", 0.0)
    if whole <= overhead:
        raise ValueError(
            f"--batch-ms must exceed the overhead in it, {1e3 * overhead:g} ms, got {given.batch_ms}"
        )
    values["example_s"] = (whole - overhead) / max(1, values["b_examples"])


def _gpu(given: argparse.Namespace, values: dict[str, Any]) -> list[str]:
    """``--gpu`` and ``--mfu``: memory, the link inside a host, an example's time, where not given; what that assumes."""
    if given.gpu is None:
        if given.mfu is not None:
            raise ValueError(f"--mfu must come with --gpu, of whose peak it is a share, got {given.mfu}")
        return []
    name, measured = gpus.gpu(given.gpu, "--gpu"), values.get("example_s") is not None
    values.setdefault("memory_bytes", gpus.GPUS[name]["memory_bytes"])
    if values.get("inside_alpha_s") is not None:
        values.setdefault("inside_beta_bytes_per_s", gpus.GPUS[name]["link_bytes_per_s"] / 2)
    if (given.mfu is None) != measured:
        raise ValueError(
            f"--gpu must come with --example-ms, measured, or with --mfu, the share of its peak that you assume (large "
            f"transformers report 0.3 to 0.5), and only one of the two, got {'both' if measured else 'neither'}"
        )
    if given.mfu is None:
        return []
    P, tokens = values.get("parameters"), values.get("tokens")
    if P is None or tokens is None:
        raise ValueError("--mfu must come with --parameters and --tokens, those of an example")
    mfu, kind = (
        number("--mfu", SHARE.read(given.mfu, "--mfu"), above=0, most=1),
        given.element_bytes or "fp32",
    )
    peaks = gpus.GPUS[name]["peak"]
    if (short := kind.lower().replace("bfloat", "bf").replace("float", "fp")) not in peaks:
        raise ValueError(
            f"--precision must be one in the catalogue for {name}, {', '.join(peaks)}, got {kind!r}"
        )
    values["example_s"] = seconds = 6 * P * tokens / (mfu * peaks[short])
    return [f"{written(seconds, 's', ' ')} an example ({100 * mfu:.3g} % of {name}'s peak in {kind})"]


def _methods(given: argparse.Namespace, values: dict[str, Any]) -> tuple[Method, ...]:
    """The methods, with the factors of ``--steps-factor`` and the time of ``--coding-ms`` for those that compress."""
    found = {method.name: method for method in parse_methods(values.get("methods", DEFAULTS))}
    for text in given.steps_factor or ():
        name, _, factor = text.partition("=")
        if name not in found:
            raise ValueError(f"--steps-factor must name one of {', '.join(found)}, got {text!r}")
        try:
            found[name] = replace(found[name], steps_factor=float(factor))
        except ValueError:
            raise ValueError(
                f"--steps-factor must be a method and a number, as local:8=1.2, got {text!r}"
            ) from None
    if given.coding_ms is not None:
        coding = MILLISECONDS.read(given.coding_ms, "--coding-ms")
        found |= {
            name: replace(each, coding_s=coding) for name, each in found.items() if each.how is not None
        }
    return tuple(found.values())


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in a sentence, as a ValueError, and nothing else."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    listed = ["\n  ".join(f"{name:<18}{what}" for name, what in each.items()) for each in (METHODS, LAWS)]
    about = Path(__file__).with_name("help.txt").read_text("utf-8")
    parser = _Parser(
        prog="python -m labkit_book.planner",
        description="Which way to train, on how many workers, and why: time to accuracy = steps(B) x seconds per step.",
        epilog=about.format(methods=listed[0], laws=listed[1]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name, quantity in QUANTITIES.items():
        parser.add_argument(quantity.option, dest=name, metavar=quantity.example, help=quantity.help)
    for name, (metavar, help) in _MORE.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=help)
    add = parser.add_argument
    add(
        "--steps-factor",
        action="append",
        metavar="M=F",
        help="method M needs F times the steps, as local:8=1.2",
    )
    add("--from", dest="file", metavar="FILE", help="a job file in JSON; other arguments take precedence")
    for name, help in _SWITCHES.items():
        add(f"--{name}", action="store_true", help=help)
    return parser


def _joined(argv: list[str]) -> list[str]:
    """``--latency -1us`` as ``--latency=-1us``: else a negative value with a unit looks like another option."""
    out: list[str] = []
    for each in argv:
        if re.match(r"-\.?\d", each) and out and out[-1].startswith("--") and "=" not in out[-1]:
            out[-1] += f"={each}"
        else:
            out.append(each)
    return out


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read has had enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
