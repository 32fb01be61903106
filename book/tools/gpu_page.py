"""The page about GPUs, book/gpu.md, from what `make gpu` has recorded in book/results/*.json and from the labs' cells."""

import json
import re
from pathlib import Path
from typing import Any

import contents

#: How a worker of a lab puts a tensor or a model on its own device, and how a lab's own process does.
ON_DEVICE = re.compile(r"device\W{1,3}comm\.device|\.to\(comm\.device|machine\.device\(\)")

#: Labs that stay on the CPU, or some of whose cells do, and why.
WHY_NOT = {
    "10_2_minibatch_sgd": "its problem has three parameters, and nothing in it is torch's",
    "10_5_network": "its cables join emulated hosts, which are the CPU's; its GPUs' times are others' measurements",
    "10_6_stale_gradients": "its bowl has one parameter, and nothing in it is torch's",
    "10_6_race": "its problem has ten parameters, and nothing in it is torch's",
    "10_7_finale": "its race stays on the CPU wherever hosts can be emulated, because emulated hosts compute there",
    "10_7_together": "its steps are timed between emulated hosts, which are the CPU's; what it trains, it simulates",
    "10_4_without_a_lock": "it is about memory that worker processes share, and that is the host's",
    "a_sharded_training": "with fewer than three GPUs, the workers that are compared with FSDP stay on the CPU, "
    "because gloo has no all-gather and no reduce-scatter for tensors on a GPU",
    "2_2_why": "its layers sleep for as long as their computing is meant to take, so that a cause has a known size",
    **dict.fromkeys(("10_8_large_batches", "10_8_layer_by_layer"), "its networks are small and numpy's"),
    "b_failures": "its job learns from 64 pixels; what counts is that it is killed, and ends with the same bits",
    "b_stragglers": "its workers sleep, so that who is slow, and in which phase, is known",
    "10_9_lower_bounds": "it counts rounds, bytes and bits, in numpy; nothing in it is torch's",
    "10_10_choosing": "torch only carries a numpy vector there, between emulated hosts, which are the CPU's",
}

_NONE = "Nothing has run on a GPU yet: nothing in this book is a GPU's number.\n"


def page(records: list[dict[str, Any]], labs: dict[str, str]) -> dict[str, str]:
    """What book/gpu.md shows, by its places. records: as `make gpu` wrote them; labs: the text of every lab, by its name."""
    on = [name for name, text in labs.items() if ON_DEVICE.search(text)]
    off = [name for name in labs if name not in on]
    counts = {"{{ n }}": len(labs), "{{ n_on }}": len(on), "{{ n_off }}": len(off) or "none"}
    said = {place: str(number) for place, number in counts.items()}
    said |= {"{{ on }}": _links(on, labs), "{{ off }}": _links(off, labs)}
    return said | {"% what was recorded\n": "".join(map(_section, records)) or _NONE}


def _links(names: list[str], labs: dict[str, str]) -> str:
    links = []
    for name in names:
        why = f" ({WHY_NOT[name]})" if name in WHY_NOT else ""
        links.append(f"{{doc}}`{contents.label(name, list(labs))} <../notebooks/{name}>`{why}")
    return ", ".join(links) or "none"


def _section(r: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {v}" for name, v in r["versions"].items())
    gpus = f"{r['gpus']} GPU{'s' * (r['gpus'] != 1)}"
    lines = [
        f"\n## {r['device']}, {r['date']}\n",
        f"{gpus}; {versions}; commit {r['commit']}; {r['seconds']} s in all. Every part ran in a process of its own.\n",
        "| part | seconds | how it ended |\n|---|---:|---|",
        *(f"| {part['part']} | {part['seconds']:.1f} | {_ended(part)} |" for part in r["parts"]),
    ]
    done = {part["part"] for part in r["parts"]}
    if never := [name for name in r["planned"] if name not in done]:
        lines.append(f"\nThe run ended before: {', '.join(never)}.")
    found = [each for part in r["parts"] for each in part.get("found", []) if "what" in each]
    if found:
        lines += [
            f"\nThe slowest worker's median, {found[0]['where'].removeprefix('measured: ')}:\n",
            "| what | n | workers | ms |\n|---|---:|---:|---:|",
            *(f"| {f['what']} | {f['n']:,} | {f['K']} | {1e3 * f['seconds']:.3g} |" for f in found),
            "\nn is the number of float32 that are summed, or of a worker's examples.",
        ]
    return "\n".join(lines) + "\n"


def _ended(part: dict[str, Any]) -> str:
    tests, words = part.get("tests", {}), [part["ended"]]
    if part["ended"] == "at its limit":
        words = [f"did not finish in its {part['limit_s']} s"]
    if tests:
        words.append(f"{tests['passed']} passed, {tests['skipped']} skipped")
        words += [f"failed: {', '.join(tests['failed'])}"] if tests["failed"] else []
    if "why" in part:
        words.append("`" + part["why"].replace("`", "'").replace("|", "/") + "`")
    return "; ".join(words)


def current(root: Path = contents.ROOT) -> dict[str, str]:
    """The page as the recorded files and the labs there are say it should be."""
    paths = sorted((root / "book" / "results").glob("*.json"))
    records = [json.loads(path.read_text()) for path in paths if not path.name.startswith("bench-")]
    return page(records, contents.texts(root))
