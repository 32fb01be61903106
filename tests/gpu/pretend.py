"""A device that is not the CPU, for want of a GPU: ``use()``, and then ``torch.ones(3, device="pretend")``.

Its kernels are the CPU's, on tensors that torch keeps apart from the CPU's: who mixes the two, asks such a tensor for its
numpy array, or draws its numbers with the CPU's generator, is refused, as with a GPU. It has no streams, no time and no
rounding of its own, and is no ``cuda``: what asks for that by name takes the CPU's way. For a process of its own, since
torch keeps it for good.

Source: torch.utils.backend_registration, which lets a backend be written in Python where ``AVAILABLE``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

AVAILABLE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")

_library: Any = None


class There(torch.Tensor):
    """A tensor on the device; ``here`` is what is in it, on the CPU."""

    __module__ = "torch.pretend"  # labkit knows torch's tensors by that
    here: torch.Tensor

    @staticmethod
    def __new__(cls, here: torch.Tensor) -> There:
        settings = {"dtype": here.dtype, "device": "pretend:0", "storage_offset": here.storage_offset()}
        made = torch.Tensor._make_wrapper_subclass(cls, here.shape, strides=here.stride(), **settings)
        made.here = here
        return made

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its history; who assigns another gives it that one's content."""
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, other: There) -> None:
        torch.Tensor.data.__set__(self, other)
        self.here = other.here

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _kernel(op, *args, **(kwargs or {}))


def _kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operation with a tensor or a result there."""
    copies, indexes = (word in op._schema.name for word in ("copy", "index"))

    def down(x: Any) -> Any:
        if isinstance(x, There):
            return x.here
        if isinstance(x, torch.Tensor) and x.dim() and not copies and not indexes:
            raise RuntimeError(f"{op}: a tensor on the CPU among those on the device")
        return torch.device("cpu") if isinstance(x, torch.device) and x.type == "pretend" else x

    if kwargs.get("generator") is not None:
        raise RuntimeError(f"{op}: a generator on the CPU for numbers on the device")
    given = {id(x.here): x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, There)}
    a, k = pytree.tree_map(down, (args, kwargs))
    out = op(*a, **k)
    into = args[0] if op._schema.name == "aten::copy_" else kwargs.get("device")
    if given and (into == torch.device("cpu") or getattr(into, "is_cpu", False)):
        return out

    def up(x: Any) -> Any:
        return given[id(x)] if id(x) in given else There(x) if isinstance(x, torch.Tensor) else x

    return pytree.tree_map(up, out)


def use() -> None:
    """From here on this process has the device."""
    global _library
    backend_registration._setup_privateuseone_for_python_backend("pretend")
    _library = torch.library.Library("_", "IMPL")
    _library.fallback(_kernel, "PrivateUse1")
    make = torch.tensor

    def tensor(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        """torch's own goes by a way that no device in Python has."""
        return make(*args, **kwargs) if device is None else make(*args, **kwargs).to(device)

    torch.tensor = tensor


def stay_in_this_thread() -> None:
    """From here on this thread's backward passes run in it, as the CPU's do, and not in one that torch has for the device.

    There, kernels in Python, and with them the collection of whatever garbage a simulated world left, once ended a run of
    the labs with a segmentation fault, where some thirty went well.
    """
    torch.autograd.set_multithreading_enabled(False)
