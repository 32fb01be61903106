"""``python -m labkit plan``: the planner on the command line."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from labkit.cost.plan import units
from labkit.cost.plan.arguments import EXAMPLE, parser

#: The arguments that give the keys of a job.
TYPED = {
    "parameters": "--parameters", "element_bytes": "--precision", "example_s": "--example-ms", "overhead_s": "--overhead-ms",
    "b_examples": "--b", "B_examples": "--B", "backward_share": "--backward-share", "beta_bytes_per_s": "--network",
    "alpha_s": "--latency", "inside_beta_bytes_per_s": "--inside", "inside_alpha_s": "--inside-latency",
    "per_host": "--per-host", "price_per_worker_hour": "--price", "S_min_steps": "--steps-min",
    "B_crit_examples": "--critical-batch", "total_examples": "--examples", "coding_s": "--coding-ms", "at_least": "--goal",
    "goal": "--goal", "allreduce": "--allreduce",
}  # fmt: skip


def main(argv: list[str]) -> int:
    """Run ``labkit plan`` with these arguments; the exit status: 2 for bad input, with one sentence on stderr."""
    parse = parser().parse_args
    argv = _joined(argv)
    try:
        given = parse(argv)
        if given.published:
            if set(argv) - {"--published", "--json"}:
                raise ValueError(
                    "--published takes its inputs from the papers: give nothing beside it but --json"
                )
            return _published(given.json)
        if given.example:
            print("python -m labkit plan " + " ".join(EXAMPLE) + "\n", file=sys.stderr)
            given = parse([*EXAMPLE, *argv])
        elif not argv:
            parser().print_usage()
            print("try --example, or --help")
            return 2
        return _plan(given)
    except (ValueError, TypeError) as error:
        print(f"labkit plan: {error}", file=sys.stderr)
        return 2


def _joined(argv: list[str]) -> list[str]:
    """``--latency -1us`` as ``--latency=-1us``: else a negative value with a unit looks like another option."""
    out: list[str] = []
    for each in argv:
        if re.match(r"-\.?\d", each) and out and out[-1].startswith("--") and "=" not in out[-1]:
            out[-1] += f"={each}"
        else:
            out.append(each)
    return out


def _plan(given: argparse.Namespace) -> int:
    from labkit.cost.plan.case import from_dict
    from labkit.cost.plan.report import as_dict, as_text
    from labkit.cost.plan.suspect import suspicions

    try:
        inputs = _inputs(given)
        case = from_dict(inputs)
    except ValueError as error:
        raise ValueError(_as_typed(str(error), given)) from None
    warnings = suspicions(case, sure=given.network is None or units.in_bits(given.network))
    if "alpha_s" not in inputs["cluster"]:
        warnings.append(
            "latency: none was given, so a message costs nothing but its bytes; say --latency 20us"
        )
    made = case.plan()
    if given.json:
        print(
            json.dumps(
                as_dict(case, made, warnings, with_flips=not given.no_flips), indent=2, allow_nan=False
            )
        )
    else:
        print(as_text(made, with_flips=not given.no_flips))
    for warning in warnings:
        print(f"labkit plan: warning: {warning}", file=sys.stderr)
    return 0


def _as_typed(complaint: str, given: argparse.Namespace) -> str:
    """A complaint about a key of the job as one about the argument that gave it, with the value as it was typed."""
    found = re.fullmatch(r"(\w+)( must .*), got .*", complaint)
    option = TYPED.get(found[1]) if found else None
    typed = option and getattr(given, option[2:].replace("-", "_"))
    if not found or typed is None:
        return complaint
    return f"{option}{found[2]}, got {typed}"


def _published(as_json: bool) -> int:
    from labkit.cost.plan.published import as_rows, table

    print(json.dumps(as_rows(), indent=2, allow_nan=False) if as_json else table())
    return 0


def _inputs(given: argparse.Namespace) -> dict[str, Any]:
    """The form of ``case.from_dict``: the file's, if there is one, with what the arguments say in its place."""
    from labkit.cost.plan.case import read, to_dict

    if given.file is not None:
        try:
            inputs = to_dict(read(Path(given.file).read_text()))
        except OSError as error:
            raise ValueError(
                f"--from must name a file that can be read, got {given.file!r}: {error.strerror}"
            ) from None
    else:
        inputs = {"job": {}, "cluster": {}, "target": {}}
        _needed(given)
    _workers_and_batch(given, inputs)
    _compute(given, inputs["job"])
    job, cluster = inputs["job"], inputs["cluster"]
    _put(job, "parameters", given.parameters, lambda text: units.count(text, "--parameters"))
    _put(job, "element_bytes", given.precision, lambda text: units.precision(text, "--precision"))
    _put(job, "law", given.stragglers, str)
    _put(job, "backward_share", given.backward_share, float)
    _put(cluster, "beta_bytes_per_s", given.network, lambda text: units.rate(text, "--network"))
    _put(cluster, "alpha_s", given.latency, lambda text: units.seconds(text, "--latency"))
    _put(cluster, "inside_beta_bytes_per_s", given.inside, lambda text: units.rate(text, "--inside"))
    _put(
        cluster, "inside_alpha_s", given.inside_latency, lambda text: units.seconds(text, "--inside-latency")
    )
    _put(cluster, "per_host_workers", given.per_host, int)
    _put(cluster, "price_per_worker_hour", given.price, lambda text: units.price(text, "--price"))
    _put(cluster, "allreduce", given.allreduce, str)
    _hosts(cluster)
    _target(given, inputs)
    _methods(given, inputs)
    if given.goal is not None:
        inputs["goal"] = given.goal
    return inputs


def _needed(given: argparse.Namespace) -> None:
    for name, value in (("--parameters", given.parameters), ("--network", given.network)):
        if value is None:
            raise ValueError(f"{name} must be given, or a whole job with --from FILE")


def _put(into: dict[str, Any], key: str, value: str | None, read: Any) -> None:
    if value is not None:
        into[key] = read(value)


def _workers_and_batch(given: argparse.Namespace, inputs: dict[str, Any]) -> None:
    """K, b, B and hosts, which must not contradict each other."""
    job = inputs["job"]
    Ks = units.numbers_of_workers(given.K, "--K") if given.K is not None else None
    if given.hosts is not None:
        if given.per_host is None:
            raise ValueError(
                f"--hosts must come with --per-host, the workers of each, got {given.hosts} hosts alone"
            )
        if Ks is not None and given.hosts * given.per_host != max(Ks):
            raise ValueError(
                f"--K must be --hosts x --per-host = {given.hosts} x {given.per_host} = {given.hosts * given.per_host} "
                f"at most and at last, got {max(Ks)}"
            )
        Ks = Ks or [given.hosts * given.per_host]
    if Ks is not None:
        inputs["K_workers"] = Ks
    elif "K_workers" not in inputs:
        raise ValueError("--K must be given: numbers of workers such as 8, 1,2,4 or 1-64")
    if given.b is not None and given.B is not None:
        Ks = inputs["K_workers"]
        if len(Ks) > 1 or Ks[0] * given.b != given.B:
            raise ValueError(
                f"--b and --B must agree, B = K b, for the one K that there is, got b = {given.b}, B = {given.B}, "
                f"K = {', '.join(map(str, Ks))}: give one of them"
            )
    if given.b is not None:
        job.pop("B_examples", None)
        job["b_examples"] = given.b
    elif given.B is not None:
        job.pop("b_examples", None)
        job["B_examples"] = given.B
    elif not {"b_examples", "B_examples"} & set(job):
        raise ValueError(
            "--b must be given, the examples of each worker (weak scaling), or --B, those of all (strong)"
        )


def _hosts(cluster: dict[str, Any]) -> None:
    """What describes hosts of several workers comes together."""
    arguments = {
        "per_host_workers": "--per-host", "inside_beta_bytes_per_s": "--inside", "inside_alpha_s": "--inside-latency",
    }  # fmt: skip
    missing = [name for key, name in arguments.items() if key not in cluster]
    if 0 < len(missing) < len(arguments):
        raise ValueError(
            f"{', '.join(arguments.values())} must be given together, got no {' and no '.join(missing)}"
        )


def _compute(given: argparse.Namespace, job: dict[str, Any]) -> None:
    _put(job, "overhead_s", given.overhead_ms, lambda text: units.seconds(text, "--overhead-ms", "ms"))
    if given.example_ms is not None and given.batch_ms is not None:
        raise ValueError(
            f"--example-ms and --batch-ms say the same thing: give one of them, got {given.example_ms} and {given.batch_ms}"
        )
    _put(job, "example_s", given.example_ms, lambda text: units.seconds(text, "--example-ms", "ms"))
    if given.batch_ms is not None:
        if "b_examples" not in job:
            raise ValueError(
                "--batch-ms must come with --b, the examples in that batch; give --example-ms with --B"
            )
        whole, overhead = units.seconds(given.batch_ms, "--batch-ms", "ms"), job.get("overhead_s", 0.0)
        if whole <= overhead:
            raise ValueError(
                f"--batch-ms must be more than the overhead in it, {1e3 * overhead:g} ms, got {given.batch_ms}"
            )
        job["example_s"] = (whole - overhead) / max(1, job["b_examples"])
    if "example_s" not in job:
        raise ValueError(
            "--example-ms must be given, the milliseconds of one example, or --batch-ms of a batch of --b"
        )


def _target(given: argparse.Namespace, inputs: dict[str, Any]) -> None:
    steps = [name for name in ("steps_min", "critical_batch") if getattr(given, name) is not None]
    if steps and given.examples is not None:
        raise ValueError("--examples and --steps-min with --critical-batch are two targets: give one of them")
    if given.examples is not None:
        inputs["target"] = {"total_examples": units.count(given.examples, "--examples")}
    elif len(steps) == 1 and not inputs["target"].get("S_min_steps"):
        raise ValueError("--steps-min and --critical-batch must be given together")
    elif steps:
        inputs["target"].pop("total_examples", None)
        _put(inputs["target"], "S_min_steps", given.steps_min, lambda text: units.count(text, "--steps-min"))
        _put(
            inputs["target"], "B_crit_examples", given.critical_batch,
            lambda text: units.count(text, "--critical-batch"),
        )  # fmt: skip
    elif not inputs["target"]:
        raise ValueError(
            "--steps-min and --critical-batch must be given, or --examples, all that are to be computed"
        )


def _methods(given: argparse.Namespace, inputs: dict[str, Any]) -> None:
    from labkit.cost.plan.case import written
    from labkit.cost.plan.compressed import Compressed
    from labkit.cost.plan.methods import defaults
    from labkit.cost.plan.spelling import method

    if given.methods is not None:
        inputs["methods"] = [written(method(text)) for text in given.methods.split(",")]
    elif "methods" not in inputs:
        inputs["methods"] = [written(each) for each in defaults()]
    by_name = {each["method"]: each for each in inputs["methods"]}
    for text in given.steps_factor or ():
        name, _, factor = text.partition("=")
        if name not in by_name:
            raise ValueError(
                f"--steps-factor must name one of {', '.join(by_name)}, as in local:8=1.2, got {text!r}"
            )
        try:
            by_name[name]["steps_factor"] = float(factor)
        except ValueError:
            raise ValueError(
                f"--steps-factor must be a method and a number, as in local:8=1.2, got {text!r}"
            ) from None
    if given.coding_ms is not None:
        coding = units.seconds(given.coding_ms, "--coding-ms", "ms")
        for name, each in by_name.items():
            if isinstance(method(name), Compressed):
                each["coding_s"] = coding
