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
from typing import TYPE_CHECKING, Any

from labkit import machine

if TYPE_CHECKING:
    from labkit.cost.measure import Measured

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")
_SIGNS = {True: "✓", False: "✗", None: " "}


@dataclass(frozen=True)
class Finding:
    """One thing looked at. works: True or False, None where there is nothing to judge; advice: what its lack costs."""

    what: str
    found: str
    works: bool | None = None
    advice: str = ""


@dataclass(frozen=True)
class Report:
    """What the doctor found. measured: this machine's own link; None, and ``unmeasured`` says why, where there is none."""

    findings: tuple[Finding, ...]
    measured: Measured | None
    unmeasured: str = ""

    @property
    def plan_command(self) -> str | None:
        """The planner's command line with the measured link in it; None where nothing was measured."""
        if self.measured is None:
            return None
        link = self.measured.link
        return f"python -m labkit plan --latency {1e6 * link.alpha:.3g}us --network {link.beta / 1e6:.3g}MB/s"

    def data(self) -> dict[str, Any]:
        """All of it as plain data, every number with its unit in the key, for JSON."""
        return {
            "findings": [asdict(f) for f in self.findings],
            "measured": _link_data(self.measured),
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
        if self.measured is None:
            return "\n".join([*lines, "", f"alpha and beta were not measured: {self.unmeasured}"])
        return "\n".join(
            [
                *lines,
                "",
                f"Measured between {self.measured.K} worker processes of this machine:",
                str(self.measured),
                "The all-reduce's link is the one to plan with; your job's own numbers go behind it:",
                f"  {self.plan_command}",
            ]
        )

    __repr__ = __str__


def examine(quick: bool = False, measure: bool = True) -> Report:
    """Look at this machine and clock its workers.

    quick: clock fewer messages (about 1 s instead of 3, most of it starting workers). measure: False: only look.
    Never raises, and ends every process that it started.
    """
    findings: list[Finding] = []
    for what, probe in _PROBES.items():
        try:
            findings.extend(Finding(what, *found) for found in probe())
        except Exception as error:
            findings.append(Finding(what, f"could not be examined: {_said(error)}", False))
    if not measure:
        return Report(tuple(findings), None, "you asked for a look only")
    try:
        return Report(tuple(findings), _measure(quick))
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


# -- what is looked at: each probe yields (found, works, advice) ----------------------------------------------

_Found = Iterator[tuple[str, bool | None, str]]


def _python() -> _Found:
    enough = sys.version_info >= (3, 11)
    yield (
        f"{platform.python_version()} on {platform.system()}",
        enough,
        "" if enough else "labkit needs Python 3.11",
    )


def _packages() -> _Found:
    import labkit

    versions = [f"labkit {labkit.__version__}"]
    found = [name for name in ("numpy", "scipy") if importlib.util.find_spec(name)]
    versions += [f"{name} {importlib.metadata.version(name)}" for name in found]
    yield ", ".join(versions), True, ""


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
    nccl = dist.is_nccl_available()
    found = "gloo, nccl" if nccl else "gloo"
    yield found, True, "" if nccl else "no nccl in this build of torch: GPUs would talk through gloo"


def _gpus() -> _Found:
    names = machine.gpus()
    if not names:
        yield "none that torch sees", None, "every lab runs on the CPU"
        return
    kinds = ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names))
    yield (
        kinds,
        True,
        "" if len(names) > 1 else "workers share it, and talk through gloo: nccl wants one each",
    )


def _cores() -> _Found:
    n, granted = machine.cores(), machine.quota()
    limit = f", its control group grants {granted:g}" if granted is not None else ""
    usable = n if granted is None else min(n, granted)
    advice = "workers take turns: times of real runs say little" if usable < 2 else ""
    yield f"{n} usable of {os.cpu_count()} ({machine.cpu_name()}){limit}", usable >= 2, advice


def _memory() -> _Found:
    have = machine.memory_bytes()
    if have is None:
        yield "this system does not tell", None, ""
        return
    yield (
        f"{have / 1e9:.1f} GB",
        have >= 3e9,
        "" if have >= 3e9 else "four workers with torch want about 3 GB",
    )


def _shared_memory() -> _Found:
    if not os.path.isdir("/dev/shm"):
        yield "no /dev/shm", None, "the system's own limits hold"
        return
    usage = shutil.disk_usage("/dev/shm")
    enough = usage.free >= 256e6
    advice = "" if enough else "all-reduce through shared memory wants 256 MB; docker: --shm-size=1g"
    yield f"{usage.free / 1e6:,.0f} MB free of {usage.total / 1e6:,.0f} MB", enough, advice


def _emulated() -> _Found:
    from labkit.comm.emulated import unavailable

    why = unavailable()
    if why is None:
        yield "network namespaces and traffic control work", True, ""
    else:
        yield (
            "not on this machine",
            False,
            f"{why}. Labs that dial a link's speed go on with the other two worlds",
        )


def _extras() -> _Found:
    for names, extra, without in (
        (("scipy",), "scipy", "fewer laws and closed forms"),
        (("matplotlib",), "plots", "no figures"),
        (("ipykernel", "ipywidgets", "sklearn"), "notebooks", "notebooks without sliders or digits"),
        (("jupyter_book",), "book", "`make book` installs what it needs in its own environment"),
    ):
        missing = [n for n in names if importlib.util.find_spec(n) is None]
        advice = f"without {', '.join(missing)}: {without}; pip install 'labkit[{extra}]'" if missing else ""
        yield f"for {extra}: {', '.join(n for n in names if n not in missing) or 'none'}", not missing, advice


def _browser() -> _Found:
    found = os.environ.get("LABKIT_CHROMIUM") or next((b for b in BROWSERS if shutil.which(b)), None)
    yield found or "none on the path", None, "" if found else "only the tests of the built book want one"


_PROBES: dict[str, Callable[[], _Found]] = {
    "Python": _python,
    "packages": _packages,
    "torch": _torch,
    "backends": _backends,
    "GPUs": _gpus,
    "cores": _cores,
    "memory": _memory,
    "shared memory": _shared_memory,
    "emulated cluster": _emulated,
    "extras": _extras,
    "browser": _browser,
}


# -- the stopwatch --------------------------------------------------------------------------------------------


def _measure(quick: bool) -> Measured:
    from labkit.cost.measure import measure_link

    return measure_link(rounds=2, repeats=5, timeout_s=30) if quick else measure_link(rounds=5)


def _link_data(measured: Measured | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    links = {
        name: {
            "alpha_s": fit.link.alpha,
            "alpha_interval_s": list(fit.alpha_interval),
            "beta_bytes_per_s": fit.link.beta,
            "beta_interval_bytes_per_s": list(fit.beta_interval),
            "scatter": fit.scatter,
            "samples": len(fit.samples),
        }
        for name, fit in (("message", measured.message), ("allreduce", measured.allreduce))
    }
    return {"K": measured.K, "where": measured.where, **links}


def _said(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
