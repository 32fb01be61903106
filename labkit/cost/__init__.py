"""What communication costs: links and closed forms."""

from labkit.cost.link import Link

__all__ = ["Link"]
