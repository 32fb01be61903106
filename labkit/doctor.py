"""``python -m labkit doctor``: what this machine can run, what is missing and what that costs, how fast its workers talk.

Every finding asks the part of labkit that would do the work, so that the doctor and the labs cannot disagree. Nothing here
raises: a probe that fails is itself a finding.
"""

import argparse
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from typing import Any

from labkit import machine
from labkit.collectives import measure_link
from labkit.collectives.measure import UP_TO_FLAT

_Found = Iterator[tuple[str, bool | None, str]]


def examine(quick: bool = False, measure: bool = True) -> dict[str, Any]:
    """Look at this machine and clock its workers. Never raises, and ends every process that it started.

    quick: clock fewer messages, and none over 4 MB (about 1 s instead of 5, most of it starting workers).
    measure: False: only look.
    Returns plain data: ``findings``, each with ``what``, ``found``, ``works`` (None: nothing to judge) and ``advice``;
    ``measured``, this machine's own link, or None, and ``unmeasured`` says why; ``plan_command``, to plan with that link.
    """
    findings = [finding for what in _PROBES for finding in _findings(what)]
    report = {
        "findings": findings,
        "measured": None,
        "plan_command": None,
    }
    if not measure:
        return report | {"unmeasured": "you asked for a look only"}
    try:
        return report | _measured(quick)
    except Exception as error:
        return report | {"unmeasured": _said(error)}


def _findings(what: str) -> Iterator[dict[str, Any]]:
    """What one probe says."""
    try:
        for found, works, advice in _PROBES[what]():
            advice = "" if works else advice
            yield {"what": what, "found": found, "works": works, "advice": advice}
    except Exception as error:
        found = f"could not be examined: {_said(error)}"
        yield {"what": what, "found": found, "works": False, "advice": ""}


def _measured(quick: bool) -> dict[str, Any]:
    how = {"rounds": 2, "repeats": 5} if quick else {"rounds": 5, "sizes": UP_TO_FLAT}
    found = measure_link(**how)
    alpha, beta = found.link.alpha, found.link.beta
    points = [(s.K, s.nbytes, s.seconds) for s in found.allreduce.samples]
    allreduce = {"alpha_s": alpha, "beta_bytes_per_s": beta, "points": points}
    rates = f"{beta / 1e9:.4g}GB/s,{1e6 * alpha:.4g}us"
    return {
        "measured": {"K": found.K, "said": str(found), "allreduce": allreduce},
        "plan_command": f"python -m labkit_book.planner --example --network {rates}",
    }


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit status: 0, and 2 for arguments that make no sense."""
    says = "What this machine can run, and its own alpha and beta."
    parser = argparse.ArgumentParser(prog="python -m labkit", description=says)
    parser.add_argument("command", choices=["doctor"])
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON"
    )
    parser.add_argument("--quick", action="store_true", help="clock fewer messages")
    try:
        asked = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    report = examine(asked.quick)
    print(json.dumps(report, indent=2) if asked.json else _words(report))
    return 0


def _words(report: dict[str, Any]) -> str:
    lines = []
    for finding in report["findings"]:
        sign = {True: "✓", False: "✗", None: " "}[finding["works"]]
        lines.append(f"{sign} {finding['what']:<16}  {finding['found']}")
        if finding["advice"]:
            lines.append(f"  {'':<16}  {finding['advice']}")
    measured = report["measured"]
    if measured is None:
        lines += ["", f"alpha and beta were not measured: {report['unmeasured']}"]
    else:
        workers = f"{measured['K']} worker processes of this machine"
        lines += ["", f"Measured between {workers}:", measured["said"]]
        lines += [
            "The all-reduce's link is the one to plan with; put your job's numbers for --example:"
        ]
        lines += [f"  {report['plan_command']}"]
    return "\n".join(lines)


def _said(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _packages() -> _Found:
    versions = {d.name: d.version for d in distributions()}
    own = versions.get("distributed-optimisation-labkit", "from source")
    yield (
        f"labkit {own}, Python {platform.python_version()} on {platform.system()}",
        True,
        "",
    )


def _torch() -> _Found:
    from labkit.comm.errors import LaunchError
    from labkit.comm.processes import Processes

    try:
        torch = Processes.room_for(2)
    except LaunchError as error:
        advice = (
            f"{error}; every simulation, closed form and most exercises run without"
        )
        yield "not usable", False, advice
        return
    cuda = (
        f"built for CUDA {torch.version.cuda}"
        if torch.version.cuda
        else "built without CUDA"
    )
    has_nccl = torch.distributed.is_nccl_available()
    nccl = "" if has_nccl else " and nccl: GPUs would talk through gloo"
    yield f"{torch.__version__}, {cuda}{nccl}", True, ""


def _gpus() -> _Found:
    """Each GPU, its clock and what holds it down."""
    names = machine.gpus()
    if not names:
        yield "none that torch sees", None, "every lab runs on the CPU"
    needs = "its clock cannot be read: that takes its driver, and pip install nvidia-ml-py"
    slow = "behind a barrier every other GPU runs at its pace: cool it, feed it, or take it out"
    for i, name in enumerate(names):
        clock = machine.clock_of(i)()
        if clock is None:
            yield name, None, needs
        else:
            yield f"{name}: {clock}", not clock.fault, slow


def _cores() -> _Found:
    n = machine.cores()
    found = f"{n} usable of {os.cpu_count()} ({machine.cpu_name()})"
    yield found, n >= 2, "workers take turns: times of real runs say little"


def _memory() -> _Found:
    have = machine.memory_bytes()
    if have is not None:
        yield (
            f"{have / 1e9:.1f} GB",
            have >= 3e9,
            "four workers with torch want about 3 GB",
        )
    if os.path.isdir("/dev/shm"):
        free = shutil.disk_usage("/dev/shm").free / 1e6
        wanted = (
            "all-reduce through shared memory wants 256 MB; docker: --shm-size=1g"
        )
        yield f"{free:,.0f} MB of shared memory free", free >= 256, wanted


def _emulated() -> _Found:
    from labkit.comm.emulated import unavailable

    why = unavailable()
    found = (
        "not on this machine"
        if why
        else "network namespaces and traffic control work"
    )
    yield (
        found,
        not why,
        f"{why}. Labs that dial a link's speed go on with the other two worlds",
    )


_PROBES: dict[str, Callable[[], _Found]] = {
    "packages": _packages, "torch": _torch, "GPUs": _gpus, "cores": _cores,
    "memory": _memory, "emulated cluster": _emulated,
}  # fmt: skip
