"""What each model of a measured all-reduce misses by on sizes and K it was not shown: ``python tests/network/held_out.py``.

The sweeps (``sweeps.toml``: published times of all-reduces, numbers with their source) are split by publisher, the first word
of a source's key: publishers in order of the SHA-256 of that word go in turn to ``development``, which models and thresholds
were made on, and ``test``, which was looked at once, when they were done. The rule is older than the models.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

HALVES = ("development", "test")


def sources(half: str) -> list[dict[str, Any]]:
    """The sources of one half, each with ``sweeps``: name, K, hosts, points [[bytes, seconds]]."""
    every = tomllib.loads(Path(__file__).with_name("sweeps.toml").read_text())["sources"]
    words = {each["source"].split("-")[0] for each in every}
    order = sorted(words, key=lambda word: hashlib.sha256(word.encode()).hexdigest())
    mine = order[HALVES.index(half) :: 2]
    return [each for each in every if each["source"].split("-")[0] in mine]
