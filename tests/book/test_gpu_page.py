"""The page about GPUs says what was recorded, and that nothing was where nothing was."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("gpu_page", ROOT / "book" / "tools" / "gpu_page.py")
gpu_page = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_page)

RECORD = {
    "device": "NVIDIA Test", "gpus": 1, "date": "2026-01-02", "versions": {"torch": "9.9"},
    "tests": {"passed": 3, "failed": 1, "skipped": 0},
    "measured": {
        "K": 2, "backend": "gloo", "where": "a machine",
        "allreduce": [{"n": 1000, "algorithm": "our ring", "seconds": 0.00123}],
        "step": {"widths": [10, 20], "b": 64, "seconds": 0.05},
    },
    "labs": {"2_2_barriers": {"seconds": 12.34}, "10_3_synchronous_sgd": {"seconds": 3.0, "error": "OSError: x"}},
}  # fmt: skip


def test_the_committed_page_is_what_the_recorded_files_say():
    assert (ROOT / "book" / "gpu.md").read_text() == gpu_page.current(), "run: python book/tools/gpu_page.py"


def test_without_a_record_the_page_says_that_nothing_was_measured():
    assert "Not measured yet" in gpu_page.page([], {"2_2_barriers": ""})


def test_only_labs_whose_workers_put_tensors_on_their_device_are_said_to_use_it():
    text = gpu_page.page([], {
        "2_2_a": "x = torch.ones(3, device=comm.device)", "10_3_b": "model = model.to(comm.device)",
        "10_5_c": "launch(lambda comm: comm.device, 2)", "10_7_finale": 'Processes(device="cpu")',
    })  # fmt: skip
    said = " ".join(text.split())
    assert "compute 2 of the 4 labs" in said and "In the other 2 the workers" in said
    places = [said.index(f"<../notebooks/{name}>") for name in ("2_2_a", "10_3_b", "10_5_c", "10_7_finale")]
    assert places == sorted(places) and places[1] < said.index("In the other") < places[2]


def test_the_labs_that_the_page_names_are_those_whose_programs_say_so():
    """By their syntax trees, not by their text: who passes comm.device to something that makes or moves a tensor."""
    used = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
        for tree in (ast.parse("".join(c["source"])) for c in cells):
            for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
                moved = call.args if getattr(call.func, "attr", "") == "to" else []
                given = [k.value for k in call.keywords if k.arg == "device"]
                if any(ast.unparse(value) == "comm.device" for value in (*moved, *given)):
                    used.add(path.stem)
    on, off = gpu_page.current().split("In the other")
    assert used and all(f"/{name}>" in on and f"/{name}>" not in off for name in used)
    assert on.count("{doc}") == len(used)


def test_a_record_s_failures_and_gaps_are_shown():
    text = gpu_page.page(
        [json.loads(json.dumps(RECORD))],
        dict.fromkeys(("2_2_barriers", "10_3_synchronous_sgd", "10_9_bounds"), ""),
    )
    assert "Not measured yet" not in text
    for part in [
        "## NVIDIA Test, 2026-01-02", "3 passed, 1 failed", "sharing 1 GPU, backend gloo", "| 1,000 | our ring | 1.23 |",
        "| 2_2_barriers | 12.3 |", "| 10_3_synchronous_sgd | 3.0, failed: `OSError: x` |",
        "| 10_9_bounds | not run on this machine |",
    ]:  # fmt: skip
        assert part in text
