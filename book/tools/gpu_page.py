"""The page about GPUs, book/gpu.md, from what `make gpu` has recorded in book/results/*.json and from the labs' cells.

python book/tools/gpu_page.py      write the page
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import contents

ROOT = Path(__file__).resolve().parents[2]

#: How a worker of a lab puts a tensor or a model on its own device, and how a lab's own process does.
ON_DEVICE = re.compile(r"device\W{1,3}comm\.device|\.to\(comm\.device|machine\.device\(\)")

#: Labs that stay on the CPU, or some of whose cells do, and why.
WHY_NOT = {
    "10_7_finale": "its race stays on the CPU wherever hosts can be emulated, because emulated hosts compute there",
    "a_sharded_training": "with fewer than two GPUs, what is compared with torch's FSDP stays on the CPU, "
    "because gloo has no all-gather and no reduce-scatter for tensors on a GPU",
    "2_2_why": "its layers sleep for as long as their computing is meant to take, so that a cause has a known size",
    "10_9_lower_bounds": "it counts rounds, bytes and bits, in numpy; nothing in it is torch's",
    "10_10_choosing": "torch only carries a numpy vector there, between emulated hosts, which are the CPU's",
}

_OPENING = """\
# On a GPU

The labs run without a GPU, and most pages of this book were made on a machine that has none; every measured number says
where it comes from. Where torch sees a GPU, `launch(..., world="processes")` gives each worker a GPU of its own and the nccl
backend, or, where there are fewer GPUs than workers, lets them share through gloo (nccl refuses two ranks on one GPU, and
Colab has one). A worker's tensors are then on `comm.device`, those of a lab's own process on `machine.device()`. Both are
the CPU where there is no GPU, so the same cells run on either.

What torch computes, in some of its cells at least, is on the GPU in {n_on} of the {n} labs:
{on}.

On the CPU, with or without a GPU, stay {n_off}:
{off}.

Messages between workers (`send`, `recv`, `recv_any`, and so labkit's own all-reduces) always travel through gloo: what lies
on a GPU is copied to host memory, sent, and copied back. nccl would run the messages of a pair of workers in the order in
which each of the two issued them, so two workers that both receive first would wait for ever, and it has no `recv_any`.
torch's own collectives (in its DDP, ZeRO and FSDP) use nccl where each worker has a GPU, and copy nothing to the host. What
the copies cost has not been measured on this book's own machines: `make gpu` times torch's all-reduce beside our ring.

Simulated and emulated clusters run on the CPU in every lab, and so does what numpy computes. Where a lab holds torch against
numpy "to rounding", that leaves room for a GPU, which may add many terms in another order.

`python -m labkit doctor` reads each GPU's clock and what holds it down (`pip install nvidia-ml-py` first), and the
straggler recorder says it of a rank that it names.

This page is made by `make gpu` from recorded runs, and the two lists from the labs' own cells.
"""
_NONE = """
```{admonition} Not measured yet
:class: note
Nothing has run on a GPU yet: none of the tests marked `gpu`, and no lab with its tensors on a GPU. Nothing in this book is a
GPU's number. What has been tried: the same tests, and every lab's cells that start processes, on devices that only pretend
to be GPUs, with a backend that has nccl's rules (`tests/gpu/pretended/`). They refuse what a GPU and nccl refuse: to mix the
tensors of two devices, to read one as a numpy array, to send one from the CPU, to put two workers on one device; and two
workers that both receive first wait there as they would with nccl. But they have no streams, and they round as the CPU
does. On a machine with a GPU, `make gpu` takes ten minutes, writes `book/results/<device>.json`, and this page with it.
```

"""


def page(records: list[dict[str, Any]], labs: dict[str, str]) -> str:
    """The Markdown. records: as `make gpu` wrote them; labs: the text of every lab there is, by its name."""
    on = [name for name, text in labs.items() if ON_DEVICE.search(text)]
    off = [name for name in labs if name not in on]
    opening = _OPENING.format(
        n=len(labs), n_on=len(on), n_off=len(off) or "none", on=_links(on, labs), off=_links(off, labs)
    )
    body = "".join(_section(r) for r in records) if records else _NONE
    return opening + body.rstrip("\n") + "\n"


def _links(names: list[str], labs: dict[str, str]) -> str:
    said = (
        f"{{doc}}`{contents.label(name, list(labs))} <../notebooks/{name}>`"
        + (f" ({WHY_NOT[name]})" if name in WHY_NOT else "")
        for name in names
    )
    return ", ".join(said) or "none"


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


def current(root: Path = ROOT) -> str:
    """The page as the recorded files and the labs there are say it should be."""
    paths = sorted((root / "book" / "results").glob("*.json"))
    records = [json.loads(path.read_text()) for path in paths if not path.name.startswith("bench-")]
    return page(
        records,
        {
            name: (root / "notebooks" / f"{name}.md").read_text(encoding="utf-8")
            for name in contents.labs(root)
        },
    )


def write(root: Path = ROOT) -> None:
    """Write book/gpu.md."""
    (root / "book" / "gpu.md").write_text(current(root))


if __name__ == "__main__":
    write()
