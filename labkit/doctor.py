"""``python -m labkit doctor``: what this machine can run, what is missing and what that costs, how fast its workers talk.

Every finding asks the part of labkit that would do the work (``comm``'s own refusals, in their words), so that the doctor
and the labs cannot disagree. Nothing here raises: a probe that fails is itself a finding.

Symbols: ``alpha`` s per message, ``beta`` bytes per second; K workers.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from labkit import machine
from labkit.collectives import Measured, measure_link
from labkit.collectives.measure import UP_TO_FLAT
from labkit.network import Fit

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")
_SIGNS = {True: "✓", False: "✗", None: " "}


@dataclass(frozen=True)
class _Finding:
    """One thing looked at. works: True or False, None where there is nothing to judge; advice: what its lack costs."""

    what: str
    found: str
    works: bool | None = None
    advice: str = ""


@dataclass(frozen=True)
class Report:
    """What the doctor found. measured: this machine's own link; None, and ``unmeasured`` says why, where there is none."""

    findings: tuple[_Finding, ...]
    measured: Measured | None
    unmeasured: str = ""

    @property
    def plan_command(self) -> str | None:
        """The planner's example job on the measured link, as a command line; None where nothing was measured."""
        if self.measured is None:
            return None
        link = self.measured.link
        rates = f"--latency {1e6 * link.alpha:.4g}us --network {link.beta / 1e9:.4g}GB/s"
        return f"python -m labkit_book.planner --example --transport measured {rates}"

    def data(self) -> dict[str, Any]:
        """All of it as plain data, every number with its unit in the key, for JSON."""
        measured = self.measured and {
            "K": self.measured.K,
            "where": self.measured.where,
            "message": _link_data(self.measured.message),
            "allreduce": _link_data(self.measured.allreduce),
        }
        return {
            "findings": [asdict(f) for f in self.findings],
            "measured": measured,
            "unmeasured": self.unmeasured,
            "plan_command": self.plan_command,
        }

    def __str__(self) -> str:
        wide = max(len(f.what) for f in self.findings)
        lines = []
        for f in self.findings:
            lines.append(f"{_SIGNS[f.works]} {f.what:<{wide}}  {f.found}")
            if f.advice:
                lines.append(f"  {'':<{wide}}  {f.advice}")
        lines.append("")
        if self.measured is None:
            lines.append(f"alpha and beta were not measured: {self.unmeasured}")
        else:
            lines.append(f"Measured between {self.measured.K} worker processes of this machine:")
            lines.append(str(self.measured))
            lines.append(
                "The all-reduce's link is the one to plan with; put your job's numbers for --example:"
            )
            lines.append(f"  {self.plan_command}")
        return "\n".join(lines)

    __repr__ = __str__


def examine(quick: bool = False, measure: bool = True) -> Report:
    """Look at this machine and clock its workers.

    quick: clock fewer messages, and none over 4 MB (about 1 s instead of 5, most of it starting workers).
    measure: False: only look.
    Never raises, and ends every process that it started.
    """
    findings: list[_Finding] = []
    for what, probe in _PROBES.items():
        try:
            for found, works, advice in probe():
                findings.append(_Finding(what, found, works, "" if works else advice))
        except Exception as error:
            findings.append(_Finding(what, f"could not be examined: {_said(error)}", False))
    if not measure:
        return Report(tuple(findings), None, "you asked for a look only")
    try:
        asked: dict[str, Any] = {"rounds": 2, "repeats": 5, "timeout_s": 30}
        if not quick:
            asked = {"rounds": 5, "sizes": UP_TO_FLAT}
        return Report(tuple(findings), measure_link(**asked))
    except Exception as error:
        return Report(tuple(findings), None, _said(error))


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit status: 0, and 2 for arguments that make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m labkit doctor", description="What this machine can run, and its own alpha and beta."
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--quick", action="store_true", help="clock fewer messages: sooner done, wider intervals"
    )
    parser.add_argument("--no-measure", action="store_true", help="only look; start no worker")
    try:
        asked = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has said why
        return int(stop.code or 0)
    report = examine(asked.quick, not asked.no_measure)
    print(json.dumps(report.data(), indent=2) if asked.json else report)
    return 0


# -- what is looked at: each probe yields (found, works, advice where it does not) ------------------------------

_Found = Iterator[tuple[str, bool | None, str]]


def _python() -> _Found:
    found = f"{platform.python_version()} on {platform.system()}"
    yield found, sys.version_info >= (3, 11), "labkit needs Python 3.11"


def _packages() -> _Found:
    packages = {"labkit": "distributed-optimisation-labkit", "numpy": "numpy", "scipy": "scipy"}
    found = [name for name in packages if importlib.util.find_spec(name)]
    versions = {n: d.version for n in found for d in importlib.metadata.distributions(name=packages[n])}
    yield ", ".join(f"{name} {versions.get(name, 'from source')}" for name in found), True, ""


def _torch() -> _Found:
    from labkit.comm.errors import LaunchError
    from labkit.comm.processes import room_for

    try:
        torch = room_for(2)
    except LaunchError as error:
        yield "not usable", False, f"{error}; every simulation, closed form and most exercises run without"
        return
    cuda = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    yield f"{torch.__version__}, {cuda}", True, ""


def _backends() -> _Found:
    try:
        import torch.distributed as dist
    except ImportError:
        yield "none: they come with torch", False, ""
        return
    without = "gloo; no nccl in this build of torch, so GPUs would talk through gloo"
    yield "gloo, nccl" if dist.is_nccl_available() else without, True, ""


def _gpus() -> _Found:
    names = machine.gpus()
    if not names:
        yield "none that torch sees", None, "every lab runs on the CPU"
        return
    kinds = ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names))
    shared = "" if len(names) > 1 else "; workers share it, and talk through gloo: nccl wants one each"
    yield kinds + shared, True, ""


def _clocks() -> _Found:
    """The clock of each GPU and what holds it down."""
    try:
        found = machine.clocks()
    except (ImportError, RuntimeError) as error:
        yield f"no GPU's clock can be read here: {error}", None, ""
        return
    if not found:
        yield "the driver knows of no GPU", None, ""
    slow = "behind a barrier every other GPU runs at this one's pace: cool it, feed it, or take it out"
    for gpu, clock in enumerate(found):
        yield f"GPU {gpu}: {clock}", not clock.fault, slow


def _cores() -> _Found:
    n, granted = machine.cores(), machine.quota()
    limit = f", its control group grants {granted:g}" if granted is not None else ""
    usable = n if granted is None else min(n, granted)
    found = f"{n} usable of {os.cpu_count()} ({machine.cpu_name()}){limit}"
    yield found, usable >= 2, "workers take turns: times of real runs say little"


def _memory() -> _Found:
    have = machine.memory_bytes()
    if have is None:
        yield "this system does not tell", None, ""
    else:
        yield f"{have / 1e9:.1f} GB", have >= 3e9, "four workers with torch want about 3 GB"


def _shared_memory() -> _Found:
    if not os.path.isdir("/dev/shm"):
        yield "no /dev/shm", None, "the system's own limits hold"
        return
    usage = shutil.disk_usage("/dev/shm")
    found = f"{usage.free / 1e6:,.0f} MB free of {usage.total / 1e6:,.0f} MB"
    yield found, usage.free >= 256e6, "all-reduce through shared memory wants 256 MB; docker: --shm-size=1g"


def _emulated() -> _Found:
    from labkit.comm.emulated import unavailable

    why = unavailable()
    found = "not on this machine" if why else "network namespaces and traffic control work"
    yield found, not why, f"{why}. Labs that dial a link's speed go on with the other two worlds"


def _extras() -> _Found:
    for names, purpose, without in (
        (("scipy",), "scipy", "fewer laws and closed forms"),
        (("matplotlib",), "plots", "no figures"),
        (("ipykernel", "ipywidgets", "sklearn"), "notebooks", "notebooks without sliders or digits"),
        (("jupyter_book",), "book", "the book cannot be built here"),
    ):
        missing = [n for n in names if importlib.util.find_spec(n) is None]
        install = " ".join(missing).replace("sklearn", "scikit-learn")
        advice = f"without {', '.join(missing)}: {without}; pip install {install}"
        yield (
            f"for {purpose}: {', '.join(n for n in names if n not in missing) or 'none'}",
            not missing,
            advice,
        )


def _browser() -> _Found:
    found = os.environ.get("LABKIT_CHROMIUM") or next((b for b in BROWSERS if shutil.which(b)), None)
    yield found or "none on the path", bool(found) or None, "only the tests of the built book want one"


_PROBES: dict[str, Callable[[], _Found]] = {
    "Python": _python,
    "packages": _packages,
    "torch": _torch,
    "backends": _backends,
    "GPUs": _gpus,
    "clocks": _clocks,
    "cores": _cores,
    "memory": _memory,
    "shared memory": _shared_memory,
    "emulated cluster": _emulated,
    "extras": _extras,
    "browser": _browser,
}


def _link_data(fit: Fit) -> dict[str, Any]:
    return {
        "alpha_s": fit.link.alpha,
        "alpha_interval_s": list(fit.alpha_interval),
        "beta_bytes_per_s": fit.link.beta,
        "beta_interval_bytes_per_s": list(fit.beta_interval),
        "scatter": fit.scatter,
        "samples": len(fit.samples),
        "points": [[s.K, s.nbytes, s.seconds] for s in fit.samples],
    }


def _said(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
