"""A whole question to the planner, and its form as JSON: what ``--from`` reads and what ``--json`` writes.

Every number has its unit in its key. What a file says twice, wrongly or with a key that there is not, is refused.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.cost.link import Link
from labkit.cost.plan.compressed import Compressed
from labkit.cost.plan.goals import Efficient, Goal, Least, goal
from labkit.cost.plan.inputs import Cluster, Examples, Job, Network, Target, TwoLevel
from labkit.cost.plan.method import Method
from labkit.cost.plan.methods import defaults
from labkit.cost.plan.plan import Plan, plan, workers
from labkit.cost.plan.spelling import law, law_text, method

JOB = (
    "parameters",
    "element_bytes",
    "example_s",
    "overhead_s",
    "b_examples",
    "B_examples",
    "backward_share",
    "law",
)
CLUSTER = (
    "alpha_s", "beta_bytes_per_s", "inside_alpha_s", "inside_beta_bytes_per_s", "per_host_workers",
    "price_per_worker_hour", "allreduce",
)  # fmt: skip
TARGET = ("S_min_steps", "B_crit_examples", "total_examples")
METHOD = ("method", "steps_factor", "coding_s")


@dataclass(frozen=True)
class Case:
    """Everything that `plan` asks for."""

    job: Job
    cluster: Cluster
    target: Target
    K: tuple[int, ...]
    methods: tuple[Method, ...]
    goal: Goal

    def plan(self) -> Plan:
        return plan(self.job, self.cluster, self.target, self.K, self.methods, self.goal)


def read(text: str) -> Case:
    """A case from JSON text: a job file, or all that ``--json`` printed. ValueError, in a sentence, for anything wrong."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the job file must be JSON, but {error}") from None
    if isinstance(found, dict) and "inputs" in found:
        found = found["inputs"]
    return from_dict(found)


def from_dict(inputs: Any) -> Case:
    """A case from what `to_dict` makes; what may be left out is left to the defaults of the classes."""
    whole = _keys(inputs, "inputs", ("job", "cluster", "target", "K_workers", "methods", "goal"))
    for name in ("job", "cluster", "target", "K_workers"):
        if name not in whole:
            raise ValueError(f"inputs must have {name}, got {', '.join(whole) or 'nothing'}")
    K = whole["K_workers"]
    methods = whole.get("methods")
    if methods is not None and (not isinstance(methods, list) or not methods):
        raise ValueError(f"methods must be a list of names such as sync or local:8, got {methods!r}")
    return Case(
        _job(_keys(whole["job"], "job", JOB)),
        _cluster(_keys(whole["cluster"], "cluster", CLUSTER)),
        _target(_keys(whole["target"], "target", TARGET)),
        workers(K if isinstance(K, list) else [K]),
        defaults() if methods is None else tuple(_method(each) for each in methods),
        goal(_text(whole.get("goal", "time"), "goal")),
    )


def to_dict(case: Case) -> dict[str, Any]:
    """The case as JSON can hold it; ``from_dict`` of it is the case again. ValueError where a law has no spelling."""
    job, cluster, target, network = case.job, case.cluster, case.target, case.cluster.network
    batch = {"b_examples": job.b} if job.b is not None else {"B_examples": job.B}
    link = network.across if isinstance(network, TwoLevel) else network
    wires: dict[str, Any] = {"alpha_s": link.alpha, "beta_bytes_per_s": _finite(link.beta)}
    if isinstance(network, TwoLevel):
        wires |= {
            "inside_alpha_s": network.inside.alpha,
            "inside_beta_bytes_per_s": _finite(network.inside.beta),
            "per_host_workers": network.per_host,
        }
    if isinstance(target, Examples):
        aim = {"total_examples": target.total}
    elif hasattr(target, "S_min") and hasattr(target, "B_crit"):
        aim = {"S_min_steps": target.S_min, "B_crit_examples": target.B_crit}
    else:
        raise ValueError(f"target must be a Hyperbola or Examples to be written, got {target!r}")
    return {
        "job": {
            "parameters": job.P, "element_bytes": job.itemsize, "example_s": job.example_s, "overhead_s": job.overhead_s,
            **batch, "backward_share": job.backward_share, "law": law_text(job.law),
        },
        "cluster": {**wires, "price_per_worker_hour": cluster.price_per_hour, "allreduce": cluster.allreduce},
        "target": aim,
        "K_workers": list(case.K),
        "methods": [written(each) for each in case.methods],
        "goal": _goal_text(case.goal),
    }  # fmt: skip


def _job(given: Mapping[str, Any]) -> Job:
    names = {
        "parameters": "P", "element_bytes": "itemsize", "b_examples": "b", "B_examples": "B",
        "example_s": "example_s", "overhead_s": "overhead_s", "backward_share": "backward_share",
    }  # fmt: skip
    for needed in ("parameters", "example_s"):
        if needed not in given:
            raise ValueError(f"job must have {needed}, got {', '.join(given) or 'nothing'}")
    fields: dict[str, Any] = {names[key]: value for key, value in given.items() if key in names}
    if "law" in given:
        fields["law"] = law(_text(given["law"], "law"))
    return _renamed(lambda: Job(**fields))


def _cluster(given: Mapping[str, Any]) -> Cluster:
    across = _link(given, "")
    inside = ("inside_alpha_s", "inside_beta_bytes_per_s", "per_host_workers")
    there = [key for key in inside if key in given]
    if there and len(there) < len(inside):
        missing = next(key for key in inside if key not in given)
        raise ValueError(
            f"cluster must have {missing} too where it has {there[0]}: hosts of several workers need all three"
        )
    network: Network = (
        TwoLevel(_link(given, "inside_"), across, given["per_host_workers"]) if there else across
    )
    price = given.get("price_per_worker_hour", 0.0)
    return _renamed(lambda: Cluster(network, price, _text(given.get("allreduce", "best"), "allreduce")))


def _link(given: Mapping[str, Any], which: str) -> Link:
    alpha, beta = f"{which}alpha_s", f"{which}beta_bytes_per_s"
    if beta not in given:
        raise ValueError(f"cluster must have {beta}, got {', '.join(given) or 'nothing'}")
    for name, value in ((alpha, given.get(alpha, 0.0)), (beta, given[beta])):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, got {value!r}")
    try:
        return Link(given.get(alpha, 0.0), given[beta])
    except ValueError as error:
        raise ValueError(str(error).replace("alpha", alpha, 1).replace("beta", beta, 1)) from None


def _target(given: Mapping[str, Any]) -> Target:
    from labkit.learn.critical import Hyperbola

    if set(given) == {"total_examples"}:
        return _renamed(lambda: Examples(given["total_examples"]))
    if set(given) == {"S_min_steps", "B_crit_examples"}:
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name} must be a finite number, got {value!r}")
        return _renamed(lambda: Hyperbola(given["S_min_steps"], given["B_crit_examples"]))
    raise ValueError(
        f"target must have S_min_steps and B_crit_examples, or total_examples alone, got {', '.join(given) or 'nothing'}"
    )


def _method(given: Any) -> Method:
    if isinstance(given, str):
        return method(given)
    each = _keys(given, "a method", METHOD)
    if "method" not in each:
        raise ValueError(f"a method must have its name under method, got {given!r}")
    return method(_text(each["method"], "method"), each.get("steps_factor", 1.0), each.get("coding_s", 0.0))


def written(each: Method) -> dict[str, Any]:
    """One method as a job file holds it."""
    coding = {"coding_s": each.coding_s} if isinstance(each, Compressed) else {}
    return {"method": each.name, "steps_factor": each.steps_factor, **coding}


def _goal_text(of: Goal) -> str:
    match of:
        case Least(what):
            return what
        case Efficient(share):
            return f"efficiency>={share!r}"
    raise ValueError(f"goal must be Least or Efficient to be written, got {of!r}")


def _keys(given: Any, name: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{name} must be an object with {', '.join(known)}, got {given!r}")
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; is {near[0]} meant?" if near else f"; it may have {', '.join(known)}"
            raise ValueError(f"{name} must not have {key!r}{hint}")
    return given


def _renamed(make: Any) -> Any:
    """``make()``, whose complaints name the keys of the file and not the fields of the classes."""
    try:
        return make()
    except ValueError as error:
        text = str(error)
        for field, key in (
            ("P must", "parameters must"), ("itemsize must", "element_bytes must"), ("b must", "b_examples must"),
            ("B must", "B_examples must"), ("total must", "total_examples must"), ("S_min must", "S_min_steps must"),
            ("B_crit must", "B_crit_examples must"), ("price_per_hour must", "price_per_worker_hour must"),
        ):  # fmt: skip
            if text.startswith(field):
                text = key + text[len(field) :]
        raise ValueError(text) from None


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {value!r}")
    return value


def _finite(beta: float) -> float:
    if math.isinf(beta):
        raise ValueError("beta must be finite to be written, got inf")
    return beta
