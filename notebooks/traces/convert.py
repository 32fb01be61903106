"""Real clusters' traces, made small: from a clone of the repository that published one to a CSV file beside this script.

    python notebooks/traces/convert.py CLONE     the clone (bare ones will do) says by its files which trace it holds

Each file begins with comments: licence, source, commit, what was dropped, and the command that makes it. Labs read the
files; nothing is fetched when they run. The licences' texts stand in LICENSES.txt.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent


class Clone:
    """Files of a repository's newest commit."""

    def __init__(self, path: str) -> None:
        self.path = path

    def git(self, *args: str) -> str:
        return subprocess.run(
            ["git", "-C", self.path, *args], check=True, capture_output=True, text=True
        ).stdout

    def files(self) -> list[str]:
        return self.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()

    def read(self, name: str) -> str:
        return self.git("show", f"HEAD:{name}")


def faults(clone: Clone) -> None:
    """A row a fault: the server, when it went down and came back (days), what it was put down to."""
    number: dict[str, int] = {}
    begun: dict[tuple[str, ...], list[float]] = defaultdict(list)
    rows = []
    for event in json.loads(clone.read("fault_trace.json")):
        kind, server = event["fault_type"], number.setdefault(event["node_id"], len(number))
        key = event["node_id"], *kind.values()
        if event["event_type"] == "fault_start":
            begun[key].append(event["event_time"])
        else:
            rows.append((begun[key].pop(0), event["event_time"], server, kind["Level"], kind["Class"]))
    assert not any(begun.values()), "a fault has no end"
    write(
        "faults.csv",
        clone,
        "https://github.com/stepfun-ai/InfiniteHBD-Trace",
        "Apache-2.0",
        "fault_trace.json: 584 faults of 400 GPU servers (231 of them had any) in 348 days from 30 March 2024",
        "names of servers (numbered by their first fault) and the finest description of a fault; two events made one row",
        "server,down_days,up_days,level,class",
        (f"{n},{a:.4f},{b:.4f},{level},{kind}" for a, b, n, level, kind in sorted(rows)),
    )


def allreduce(clone: Clone) -> None:
    """A row a measured all-reduce: GPU, K, bytes, seconds out of place and in place."""
    rows = []
    for name in sorted(clone.files()):
        if not name.startswith("trace/"):
            continue
        _, gpu, file = name.split("/")
        K = int(file.split("_")[1].removeprefix("GPU"))
        for line in clone.read(name).splitlines()[1:]:
            nbytes, _, _, out_ns, _, in_ns, _ = line.split(",")
            megabytes = int(nbytes) >> 20
            if megabytes <= 32 or megabytes % 32 == 0:
                rows.append(f"{gpu},{K},{nbytes},{float(out_ns) / 1e3:g},{float(in_ns) / 1e3:g}")
    write(
        "allreduce.csv",
        clone,
        "https://github.com/VIA-Research/vTrain",
        "MIT, (c) 2024 VIA Research Group at KAIST",
        "trace/*/AR_GPU*: all-reduces by NCCL among 2 to 8 GPUs of one host, A100 and V100, 1 MiB to 1 GiB",
        "sizes above 32 MiB that are no multiple of 32 MiB; bus bandwidths (they follow from the times); elements",
        "gpu,K,bytes,out_of_place_us,in_place_us",
        rows,
    )


def write(
    name: str,
    clone: Clone,
    source: str,
    licence: str,
    what: str,
    dropped: str,
    head: str,
    rows: Iterable[str],
) -> None:
    """The file, with its origin at its head."""
    said = {
        "what": what,
        "source": source,
        "commit": clone.git("rev-parse", "HEAD").strip(),
        "licence": licence,
        "dropped": dropped,
        "made by": f"python notebooks/traces/convert.py CLONE, a clone of {source}",
    }
    lines = [*(f"# {key}: {value}" for key, value in said.items()), head, *rows]
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv: list[str]) -> int:
    clone = Clone(argv[0])
    files = clone.files()
    known = {"fault_trace.json": faults, "trace/a100/AR_GPU2_1M_1024M_LUT": allreduce}
    for file, convert in known.items():
        if file in files:
            convert(clone)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
