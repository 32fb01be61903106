"""What labkit can do without, in a sentence for who lacks it. It and its simulated world need numpy and greenlet alone."""

from __future__ import annotations

import importlib
from typing import Any


def scipy(part: str) -> Any:
    """The module ``scipy.<part>``, loaded when it is first used; ImportError with the remedy where scipy is missing."""
    try:
        return importlib.import_module(f"scipy.{part}")
    except ModuleNotFoundError as error:
        if error.name not in ("scipy", f"scipy.{part}"):
            raise
        raise ImportError(
            "this needs scipy, which is not installed: pip install 'labkit[scipy]', or just scipy"
        ) from None
