"""The table that the benchmarks print."""

from __future__ import annotations

from collections.abc import Iterable


def show(rows: Iterable[tuple[str, float, float, float | None]]) -> None:
    """Print a line for each (figure, our seconds, the peer's seconds beside it, the ratio aimed at or None)."""
    print(f"{'figure':64} {'ours, ms':>10} {'beside, ms':>12} {'ratio':>9} {'target':>9}  met")
    for name, ours, peer, target in rows:
        met = "" if target is None else "yes" if ours <= target * peer else "NO"
        print(
            f"{name:64} {ours * 1e3:10.3f} {peer * 1e3:12.3f} {_ratio(ours / peer):>9} "
            f"{'' if target is None else _ratio(target):>9}  {met}"
        )


def _ratio(x: float) -> str:
    """A ratio, or where it is small its inverse, as in 1/1500."""
    return f"{x:.2f}" if x > 0.05 else f"1/{1 / x:.0f}"
