"""What labkit can do without, in a sentence for who lacks it. It and its simulated world need numpy and greenlet alone."""

from __future__ import annotations

import importlib
from typing import Any


def need(module: str, extra: str) -> Any:
    """``module``, loaded when first used; ImportError with the remedy, labkit's ``extra``, where its package is missing."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (package, module):
            raise
        raise ImportError(
            f"this needs {package}, which is not installed: pip install 'labkit[{extra}]', or just {package}",
            name=package,
        ) from None


def scipy(part: str) -> Any:
    """The module ``scipy.<part>``, as `need` has it."""
    return need(f"scipy.{part}", "scipy")
