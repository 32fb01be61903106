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
    "device": "NVIDIA Test", "gpus": 1, "versions": {"torch": "9.9"}, "date": "2026-01-02", "commit": "abc", "seconds": 77,
    "planned": ["messages", "cells of x", "timings", "clock"],
    "parts": [
        {"part": "messages", "limit_s": 80, "seconds": 8.04, "ended": "badly", "why": "exit status 1: a | b",
         "tests": {"passed": 3, "failed": ["test_x[2]"], "skipped": 1}},
        {"part": "cells of x", "limit_s": 12, "seconds": 12.3, "ended": "at its limit", "why": "it said nothing"},
        {"part": "timings", "limit_s": 40, "seconds": 9.0, "ended": "well", "found": [
            {"what": "all-reduce by our ring", "n": 1000, "K": 2, "seconds": 0.00123, "where": "measured: a machine"}]},
    ],
}  # fmt: skip


def test_the_committed_page_is_what_the_recorded_files_say():
    assert (ROOT / "book" / "gpu.md").read_text() == gpu_page.current(), "run: python book/tools/gpu_page.py"


def test_without_a_record_the_page_says_that_nothing_was_measured():
    assert "Not measured yet" in gpu_page.page([], {"2_2_barriers": ""})


def test_only_labs_that_put_tensors_on_a_device_are_said_to_use_it():
    text = gpu_page.page([], {
        "2_2_a": "x = torch.ones(3, device=comm.device)", "10_3_b": "model = model.to(comm.device)",
        "10_5_c": "launch(lambda comm: comm.device, 2)", "10_6_d": "all_at_once(taus, machine.device())",
        "10_7_finale": 'Processes(device="cpu")',
    })  # fmt: skip
    said = " ".join(text.split())
    assert "on the GPU in 3 of the 5 labs" in said and "with or without a GPU, stay 2" in said
    on, off = said.split("On the CPU, with or without")
    assert [n in on for n in ("2_2_a>", "10_3_b>", "10_5_c>", "10_6_d>")] == [True, True, False, True]
    assert "10_5_c>" in off and "10_7_finale>" in off


def programs():
    """Every lab's program, as syntax trees of its cells, by its name."""
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        if path.stem in gpu_page.contents.labs(ROOT):
            cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
            yield path.stem, [ast.parse("".join(c["source"])) for c in cells]


def on_its_device(tree):
    """Whether a program gives comm.device to whatever makes or moves a tensor, or asks which device its process has."""
    for node in ast.walk(tree):
        values = node.values if isinstance(node, ast.Dict) else []
        if isinstance(node, ast.Call):
            values = [*node.args, *(k.value for k in node.keywords), node.func]
        if any(v is not None and ast.unparse(v) in ("comm.device", "machine.device") for v in values):
            return True
    return False


def test_the_labs_that_the_page_names_are_those_whose_programs_say_so():
    """By their syntax trees, not by their text."""
    used = {lab for lab, trees in programs() if any(map(on_its_device, trees))}
    on, off = gpu_page.current().split("On the CPU, with or without")
    assert used and all(f"/{name}>" in on and f"/{name}>" not in off for name in used)
    assert on.count("{doc}") == len(used)


def test_every_lab_that_imports_torch_takes_a_device_or_the_page_says_why_not():
    def imports_torch(tree):
        taken = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        return any((name or "").split(".")[0] == "torch" for n in taken
                   for name in ([n.module] if isinstance(n, ast.ImportFrom) else [a.name for a in n.names]))  # fmt: skip

    labs = dict(programs())
    assert set(labs) == set(gpu_page.contents.labs(ROOT))
    on = {lab for lab, trees in labs.items() if any(map(on_its_device, trees))}
    assert len(on) > 10 and set(gpu_page.WHY_NOT) >= set(labs) - on
    assert {lab for lab, trees in labs.items() if any(map(imports_torch, trees))} <= on | set(
        gpu_page.WHY_NOT
    )
    assert all(f"({why})" in gpu_page.current() for why in gpu_page.WHY_NOT.values())


def test_what_failed_what_did_not_finish_and_what_was_not_reached_are_shown():
    text = gpu_page.page([json.loads(json.dumps(RECORD))], {"2_2_barriers": ""})
    assert "Not measured yet" not in text
    for part in [
        "## NVIDIA Test, 2026-01-02", "1 GPU; torch 9.9; commit abc; 77 s in all",
        "| messages | 8.0 | badly; 3 passed, 1 skipped; failed: test_x[2]; `exit status 1: a / b` |",
        "| cells of x | 12.3 | did not finish in its 12 s; `it said nothing` |",
        "The run ended before: clock.", "a machine:", "| all-reduce by our ring | 1,000 | 2 | 1.23 |",
    ]:  # fmt: skip
        assert part in text
