"""What data sheets say of a GPU, from ``gpus.toml``, and the time of an example that follows from an assumed share of it.

Training a transformer takes 6 operations a parameter and token, 2 forward and 4 backward (Kaplan et al. 2020, *Scaling laws for
neural language models*, section 2.1). The share of the peak that this is, model FLOPs utilization (MFU; Chowdhery et al. 2022,
*PaLM*, section 4.1), has to be measured or assumed. Operations that recomputation adds don't count.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

from labkit.checks import number


def _rows() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8"))


def names() -> list[str]:
    """All that the catalogue has."""
    return list(_rows())


def gpu(name: str, option: str = "gpu") -> dict[str, Any]:
    """A row of the catalogue: peak (precision -> operations a second), memory_bytes, memory_bytes_per_s, link_bytes_per_s
    (both directions together), source. ValueError, about ``option``, with the nearest name for one that is not there."""
    rows = _rows()
    known = {each.lower(): each for each in rows}
    if name.lower() not in known:
        near = [each for each in known if each.startswith(name.lower())]
        near = near or difflib.get_close_matches(name.lower(), known, 1)
        hint = f"; is {known[near[0]]} meant?" if near else ""
        raise ValueError(f"{option} must be one of {', '.join(rows)}, got {name!r}{hint}")
    return {"name": known[name.lower()], **rows[known[name.lower()]]}


def peak(row: dict[str, Any], precision: str) -> float:
    """Operations a second of a row of the catalogue in ``precision`` ("bf16", ...). ValueError where it has none."""
    short = precision.lower().replace("bfloat", "bf").replace("float", "fp")
    if short not in row["peak"]:
        raise ValueError(
            f"--precision must be one that the catalogue has for {row['name']}, {', '.join(row['peak'])}, got {precision!r}"
        )
    return float(row["peak"][short])


def example_s(parameters: int, tokens: int, mfu: float, peak: float) -> float:
    """Seconds of an example of ``tokens`` tokens, forward and backward: 6 P tokens / (mfu peak). ValueError for no share.

    >>> round(example_s(70_000_000_000, 4096, 0.4, 312e12), 2)
    13.78
    """
    return 6 * parameters * tokens / (number("mfu", mfu, above=0, most=1) * peak)
