"""Real clusters' traces, made small: from a clone of the repository that published one to a file in labkit_book/labs/traces.

    python notebooks/traces/convert.py CLONE     the clone (bare ones will do) says by its files which trace it holds

Each file says of itself what it is, source, commit, licence, what was dropped, and the command that makes it: a CSV file in
comments at its head, an .npz file under the key ``about``. Labs read the files; nothing is fetched when they run. The texts
of the licences stand in LICENSES.txt there. (Jobs are read with pandas and pyarrow, which labkit does not need.)
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

TRACES = Path(__file__).resolve().parents[2] / "labkit_book" / "labs" / "traces"


class Clone:
    """Files of a repository's newest commit."""

    def __init__(self, path: str) -> None:
        self.path = path

    def git(self, *args: str) -> bytes:
        return subprocess.run(["git", "-C", self.path, *args], check=True, capture_output=True).stdout

    def files(self) -> list[str]:
        return self.git("ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()

    def bytes(self, name: str) -> bytes:
        return self.git("show", f"HEAD:{name}")

    def read(self, name: str) -> str:
        return self.bytes(name).decode()

    def said(self, what: str, source: str, licence: str, dropped: str) -> dict[str, str]:
        """What a file says of itself."""
        return {
            "what": what,
            "source": source,
            "commit": self.git("rev-parse", "HEAD").decode().strip(),
            "licence": licence,
            "dropped": dropped,
            "made by": f"python notebooks/traces/convert.py CLONE, a clone of {source}",
        }


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


#: What the jobs' authors call an operation, and what the lab does. What is not listed is dropped.
OPERATIONS = {
    "params-all-gather": "gather",
    "forward-compute": "forward",
    "forward-recv": "forward receive",
    "backward-compute": "backward",
    "backward-recv": "backward receive",
    "layernorm-grads-all-reduce": "norms",
    "embedding-grads-all-reduce": "embedding",
    "grads-reduce-scatter": "scatter",
    "optimizer-clip-main-grad": "clip",
    "optimizer": "optimizer",
}
JOBS = {"a": "AR", "b": "SE", "c": "ST"}


def jobs(clone: Clone) -> None:
    """Of each job the seconds of every operation, those of communication from when the last of its group has come."""
    import pandas as pd

    out: dict[str, np.ndarray] = {}
    published = {}
    for job, name in JOBS.items():
        table = pd.read_parquet(io.BytesIO(clone.bytes(f"data/trace-{name}.parquet")))
        table["end"] = table.start_ts.astype(float) + table.duration.astype(float)
        steps = sorted(table.step.unique())
        stages, shape = int(table.stage.max()) + 1, (int(table.dp_rank.max()) + 1, len(steps))
        table["t"] = table.step.map({step: t for t, step in enumerate(steps)})
        spans = {}
        for key, rows in table.groupby(["optype", "seq_id", "stage"], observed=True):
            start, end = np.full((2, *shape), np.nan)
            start[rows.dp_rank, rows.t], end[rows.dp_rank, rows.t] = rows.start_ts, rows.end
            assert np.isfinite(end).all(), f"{key} is not there in every step"
            spans[key] = start, end
        assert not any((end - start).any() for (what, *_), (start, end) in spans.items() if what == "gc")
        seconds = {}
        for (what, i, stage), (start, end) in spans.items():
            begun = start
            if what.endswith("recv"):  # together with the neighbour's send
                other = stage + (1 if what.startswith("backward") else -1)
                begun = np.maximum(start, spans[what.replace("recv", "send"), i, other][0])
            elif what in (
                "embedding-grads-all-reduce",
                "optimizer-clip-main-grad",
            ):  # together with other stages
                begun = np.maximum.reduce(
                    [spans[what, i, s][0] for s in range(stages) if (what, i, s) in spans]
                )
            if what in ("params-all-gather", "grads-reduce-scatter", "optimizer-clip-main-grad"):
                begun = np.broadcast_to(begun.max(axis=0), shape)  # and with all that have the same stage
            took = end - begun
            seconds[what, i, stage] = np.where(
                took <= -0.01, 0.0, took
            )  # their rule for clocks that disagree
        order = sorted((key for key in seconds if key[0] in OPERATIONS), key=lambda key: spans[key][0][0, 0])
        out[f"{job}_ops"] = np.array([f"{OPERATIONS[what]}|{i}|{stage}" for what, i, stage in order])
        out[f"{job}_us"] = np.array([np.round(1e6 * seconds[key]) for key in order]).astype(np.int32)
        came = [1e6 * spans["grads-reduce-scatter", 0, s][0] for s in range(stages)]
        out[f"{job}_came_us"] = np.round(came).astype(np.int32)
        result = json.loads(clone.read(f"data/result-{name}.json"))
        out[f"{job}_took_s"] = np.array([result["step_t_base"][str(step)] for step in steps])
        parts = {part: result[f"blocking_decompose_by_{part}"] for part in ("optype", "stage", "dp_rank")}
        published[job] = {"slowdown": result["blocking_slowdown"], **parts}
    about = clone.said(
        "three traces of training jobs: microseconds by (operation, data-parallel rank, step), when each came to the "
        "last sum, and the slowdowns that the authors found; job a is their AR, b SE, c ST",
        "https://github.com/ByteDance-Seed/StragglerAnalysis",
        "Apache-2.0, (c) 2025 Bytedance Ltd. and/or its affiliates",
        "starts and ends of operations, but for the last sum's; sends (a receive has their time); gc (0 s everywhere); "
        "numbers of steps and of model chunks",
    )
    texts = {"about": np.array(json.dumps(about)), "published": np.array(json.dumps(published))}
    np.savez_compressed(TRACES / "jobs.npz", **texts, **out)


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
    """A CSV file, with its origin at its head."""
    said = clone.said(what, source, licence, dropped)
    lines = [*(f"# {key}: {value}" for key, value in said.items()), head, *rows]
    (TRACES / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv: list[str]) -> int:
    clone = Clone(argv[0])
    files = clone.files()
    known = {
        "fault_trace.json": faults,
        "trace/a100/AR_GPU2_1M_1024M_LUT": allreduce,
        "data/trace-AR.parquet": jobs,
    }
    for file, convert in known.items():
        if file in files:
            convert(clone)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
