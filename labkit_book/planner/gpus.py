"""What data sheets say of a GPU, from ``gpus.toml``, from which an assumed share makes the time of an example.

Training a transformer takes 6 operations a parameter and token, 2 forward and 4 backward (Kaplan et al. 2020, *Scaling laws
for neural language models*, section 2.1). The share of the peak that these make, model FLOPs utilization (MFU; Chowdhery et
al. 2022, *PaLM*, section 4.1), is measured or assumed. Operations that recomputation adds don't count.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

#: name -> peak (precision -> operations a second), memory_bytes, memory_bytes_per_s, link_bytes_per_s (of both directions
#: together), source.
GPUS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("gpus.toml").read_text("utf-8"))


def gpu(name: str, option: str = "gpu") -> str:
    """The name in ``GPUS``, whatever letters are large. ValueError, about ``option``, with the nearest for another."""
    known = {each.lower(): each for each in GPUS}
    if name.lower() in known:
        return known[name.lower()]
    near = [each for each in known if each.startswith(name.lower())]
    near = near or difflib.get_close_matches(name.lower(), known, 1)
    hint = f"; is {known[near[0]]} meant?" if near else ""
    raise ValueError(f"{option} must be one of {', '.join(GPUS)}, got {name!r}{hint}")
