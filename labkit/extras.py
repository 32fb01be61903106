"""What labkit can do without, in a sentence for who lacks it. It and its simulated world need numpy alone."""

import importlib
from typing import Any


def need(module: str, install: str = "") -> Any:
    """``module``, loaded when first used; ImportError where it is missing. install: what pip calls it, if not as Python."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (package, module):
            raise
        says = f"this needs {package}, which is not installed: pip install {install or package}"
        raise ImportError(says, name=package) from None


def scipy(part: str) -> Any:
    """The module ``scipy.<part>``, as `need` has it."""
    return need(f"scipy.{part}")
