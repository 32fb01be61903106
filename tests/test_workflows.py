"""What the workflows call exists, is pinned, and may do no more than it needs."""

import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import bounds
import psutil
import pytest
import stages
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
FLOWS = {p.stem: yaml.safe_load(p.read_bytes()) for p in (ROOT / ".github" / "workflows").glob("*.yml")}
JOBS = [(f"{flow}.{name}", job) for flow, spec in FLOWS.items() for name, job in spec["jobs"].items()]
each_job = pytest.mark.parametrize("job", [job for _, job in JOBS], ids=[name for name, _ in JOBS])
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    """Every command line of every job, matrix values put in."""
    found = []
    for _, job in JOBS:
        rows = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
        for step in job["steps"]:
            for row in rows:
                line = re.sub(
                    r"\$\{\{ matrix\.(\w+) \}\}", lambda m, row=row: str(row[m[1]]), step.get("run", "")
                )
                found += [shlex.split(part, comments=True) for part in line.splitlines() if part.strip()]
    return found


@each_job
def test_a_job_calls_pinned_actions_and_may_do_no_more_than_it_needs(job: dict[str, Any]) -> None:
    publishes = any("deploy-pages" in step.get("uses", "") for step in job["steps"])
    assert job.get("permissions", {}) == ({"pages": "write", "id-token": "write"} if publishes else {})
    assert all(spec["permissions"] == {"contents": "read"} for spec in FLOWS.values())
    assert job["timeout-minutes"] <= 60 and re.fullmatch(r"ubuntu-\d\d\.\d\d", job["runs-on"])
    for step in job["steps"]:
        assert "uses" not in step or re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", step["uses"])
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


def test_only_main_is_published_and_what_is_published_is_the_built_book() -> None:
    jobs = FLOWS["book"]["jobs"]
    upload = next(step for step in jobs["test"]["steps"] if "upload-pages-artifact" in step.get("uses", ""))
    assert upload["with"]["path"] == "_build/html"
    assert jobs["publish"]["needs"] == "test"
    for condition in (upload["if"], jobs["publish"]["if"]):
        assert "github.ref == 'refs/heads/main'" in condition and "!= 'pull_request'" in condition


def test_every_command_of_a_workflow_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.M))
    known = {name for name, _ in stages.STAGES + stages.ONLY_WHEN_NAMED}
    assert commands()
    for words in commands():
        if words[0] == "make":
            assert words[1] in targets, words
            for name, value in (w.split("=") for w in words[2:]):
                assert f"$({name})" in MAKEFILE or f"$(if $({name})," in MAKEFILE, words
                assert name != "STAGES" or set(value.split()) <= known, words
        else:
            assert words[0] in ("bash", "python"), words
            files = [w for w in words if re.fullmatch(r"(tests|book|\.ci)(/[\w.]+)+", w)]
            assert all((ROOT / f).exists() for f in files), words
            assert files or "pip" in words


def test_the_suite_is_what_a_push_is_checked_by() -> None:
    assert ["bash", ".ci/run"] in commands()
    assert re.search(r"^exec make test\b", (ROOT / ".ci" / "run").read_text(), re.M)


def test_the_lowest_bounds_are_those_of_all_that_labs_need() -> None:
    lowest = {r.name: r for r in map(Requirement, bounds.constraints("lowest"))}
    assert {"numpy", "scipy", "torch", "matplotlib", "cloudpickle", "scikit-learn"} <= set(lowest)
    for line in [*bounds.requirements(), *bounds.requirements("labs")]:
        wanted = Requirement(line)
        assert wanted.specifier.contains(str(lowest[wanted.name].specifier).removeprefix("==")), line
    assert bounds.constraints("newest") == []
    with pytest.raises(ValueError, match=r"versions must be lowest, newest or colab, got 'oldest'"):
        bounds.constraints("oldest")


def test_colab_has_versions_that_pyproject_allows() -> None:
    there = dict(line.split("==") for line in bounds.constraints("colab"))
    wanted = [Requirement(r) for r in [*bounds.requirements(), *bounds.requirements("labs")]]
    shared = [r for r in wanted if r.name in there]
    assert len(shared) == len(there) - 1  # without the kernel, which is Colab's own
    assert all(r.specifier.contains(there[r.name]) for r in shared)


def test_a_stage_that_does_not_exist_is_refused_before_anything_runs(ran: Any) -> None:
    done = ran([sys.executable, "tests/stages.py", "lint", "nonsense"], timeout=60, cwd=ROOT)
    assert done.returncode == 2 and "got nonsense" in done.stdout and "---" not in done.stdout


def test_stages_that_are_ended_end_what_they_run(started: Any) -> None:
    code = "import stages; stages.STAGES = [('lint', ['sleep', '60'])]; stages.main([])"
    with started([sys.executable, "-c", code], cwd=ROOT / "tests") as running:
        while not (begun := psutil.Process(running.pid).children()):
            time.sleep(0.02)
        running.terminate()
        assert running.wait(timeout=30) == 1 and not psutil.wait_procs(begun, timeout=5)[1]


def test_an_error_in_an_output_is_found_though_its_cell_ran_on() -> None:
    def cell(tags: list[str], **output: Any) -> dict[str, Any]:
        return {"metadata": {"tags": tags}, "outputs": [output]}

    unshown = {"output_type": "error", "ename": "AttributeError", "evalue": "no such thing"}
    printed = {"output_type": "stream", "text": "Traceback (most recent call last):\n  ...\nTypeError: so\n"}
    cells = [cell([], output_type="stream", text="fine"), cell([], **unshown), cell([], **printed)]
    wanted = cell(["raises-exception"], **unshown)
    found = bounds.errors([*cells, wanted])
    assert found == ["code cell 2: AttributeError: no such thing", "code cell 3 prints: TypeError: so"]
