"""The page about GPUs says what was recorded, and that nothing was where nothing was."""

import re

import contents
import gpu_page
import myst

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


def test_every_lab_that_imports_torch_takes_a_device_or_the_page_says_why_not():
    for lab, text in contents.texts().items():
        if re.search(r"^(?:import|from) torch\b", "\n".join(myst.codes(text)), re.M):
            assert gpu_page.ON_DEVICE.search(text) or lab in gpu_page.WHY_NOT, lab


def test_what_failed_what_did_not_finish_and_what_was_not_reached_are_shown():
    text = gpu_page.page([RECORD], {"2_2_barriers": ""})["% what was recorded\n"]
    assert "Not measured yet" not in text
    for part in [
        "## NVIDIA Test, 2026-01-02", "1 GPU; torch 9.9; commit abc; 77 s in all",
        "| messages | 8.0 | badly; 3 passed, 1 skipped; failed: test_x[2]; `exit status 1: a / b` |",
        "| cells of x | 12.3 | did not finish in its 12 s; `it said nothing` |",
        "The run ended before: clock.", "a machine:", "| all-reduce by our ring | 1,000 | 2 | 1.23 |",
    ]:  # fmt: skip
        assert part in text
