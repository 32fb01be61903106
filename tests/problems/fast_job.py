"""The project's reference cure: what to change in slow_job.py, cause by cause, and the job that comes of it.

python tests/problems/fast_job.py > /tmp/fast.py && python /tmp/fast.py
"""

from types import ModuleType

from labkit_book.labs import data_file

SLOW = data_file("slow_job.py")

# cause: (what stands in the slow job, what stands in its place), each found exactly once
CURES: dict[str, list[tuple[str, str]]] = {
    "rank 0 reads and checks the whole file at every step": [
        ("if comm.rank == 0:  # one", "if t == 0 and comm.rank == 0:  # one"),
    ],
    "every micro-batch is synchronised": [
        ("import tempfile", "import contextlib\nimport tempfile"),
        (
            "for x, labels in zip(X.chunk(MICRO), y.chunk(MICRO), strict=True):\n",
            "for i, (x, labels) in enumerate(zip(X.chunk(MICRO), y.chunk(MICRO), strict=True)):\n",
        ),
        (
            "            loss = nn.functional.cross_entropy(net(x), labels) / MICRO\n            loss.backward()\n",
            "            with net.no_sync() if i + 1 < MICRO else contextlib.nullcontext():\n"
            "                loss = nn.functional.cross_entropy(net(x), labels) / MICRO\n"
            "                loss.backward()\n",
        ),
    ],
    "buckets so small that latency rules": [(", bucket_bytes=1024)  # small messages are quick", ")")],
    "float64 where float32 does": [("DTYPE = torch.float64  # as numpy has it", "DTYPE = torch.float32")],
}


def cured(*causes: str) -> str:
    """The source of the slow job without these causes; each passage must be found once."""
    source = SLOW.read_text(encoding="utf-8")
    for cause in causes:
        for old, new in CURES[cause]:
            assert source.count(old) == 1, (cause, old)
            source = source.replace(old, new)
    return source


def job(*causes: str) -> ModuleType:
    """The slow job without these causes, as a module that no worker can import, so that it travels by value."""
    module = ModuleType("cured_job")
    exec(compile(cured(*causes), "cured_job.py", "exec"), vars(module))
    return module


if __name__ == "__main__":
    print(cured(*CURES), end="")
