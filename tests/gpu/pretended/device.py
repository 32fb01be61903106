"""Devices that are not the CPU, for want of a GPU: ``torch.ones(3, device="pretend:1")`` once ``use`` has been called.

Their kernels are the CPU's, on tensors that torch keeps apart from the CPU's and from another device's: who mixes them, asks
such a tensor for its numpy array, or draws its numbers with the CPU's generator, is refused, as with a GPU. They have no
streams, no time and no rounding of their own. For a process of its own, since torch keeps them for good.

Source: torch.utils.backend_registration, which lets a backend be written in Python where ``AVAILABLE``.
"""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

from pretended import DEVICES

AVAILABLE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")

_library: Any = None


class Event:
    """A moment on a device's queue, which is the host's: nothing is ever under way."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.queue, self.at = -1, 0.0

    def record(self, stream: int | None = None) -> None:
        self.queue, self.at = DEVICE_MODULE.current if stream is None else stream, time.perf_counter()

    def synchronize(self) -> None:
        """It has come."""

    def elapsed_time(self, later: "Event") -> float:
        if self.queue != later.queue:
            raise RuntimeError(f"events of two devices, pretend:{self.queue} and pretend:{later.queue}")
        return 1e3 * (later.at - self.at)


class Stream(int):
    """A device's only queue, by the device's number: what waits for another stream is done already."""

    def __new__(cls, device: Any = None, **settings: Any) -> "Stream":
        return super().__new__(cls, DEVICE_MODULE.current if device is None else device)

    def wait_stream(self, other: "Stream") -> None: ...

    def wait_event(self, event: Event) -> None: ...

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event


class Devices:
    """What torch calls a device module, ``torch.pretend``: how many there are, and which is the current one."""

    current = 0
    Event, Stream = Event, Stream

    def device_count(self) -> int:
        return int(os.environ.get(DEVICES, "1"))

    def is_available(self) -> bool:
        return self.device_count() > 0

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return self.current

    def set_device(self, device: Any) -> None:
        self.current = _index(torch.device(device) if isinstance(device, str) else device)

    def current_stream(self, device: Any = None) -> Stream:
        return Stream(self.current if device is None else _index(torch.device(device)))

    def stream(self, stream: Stream | None) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        before = self.current
        self.set_device(device)
        try:
            yield
        finally:
            self.current = before

    def synchronize(self, device: Any = None) -> None:
        """Nothing is ever under way."""

    def get_device_name(self, device: Any = None) -> str:
        return "a pretended device"

    def manual_seed_all(self, seed: int) -> None:
        """They draw with the CPU's generator."""

    def _is_in_bad_fork(self) -> bool:
        return False


DEVICE_MODULE = Devices()


def _index(device: Any) -> int:
    """The number of a device, the current one's where it is left out."""
    index = device if isinstance(device, int) else device.index
    index = DEVICE_MODULE.current if index is None else index
    if index >= DEVICE_MODULE.device_count():
        raise RuntimeError(f"there is no device pretend:{index}: there are {DEVICE_MODULE.device_count()}")
    return index


class There(torch.Tensor):
    """A tensor on a device; ``here`` is what is in it, on the CPU."""

    __module__ = "torch.pretend"  # labkit knows torch's tensors by that
    here: torch.Tensor

    @staticmethod
    def __new__(cls, here: torch.Tensor, index: int) -> "There":
        settings = {
            "dtype": here.dtype,
            "device": f"pretend:{index}",
            "storage_offset": here.storage_offset(),
        }
        made = torch.Tensor._make_wrapper_subclass(cls, here.shape, strides=here.stride(), **settings)
        made.here = here
        return made

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its history; who assigns another gives it that one's content."""
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, other: "There") -> None:
        torch.Tensor.data.__set__(self, other)
        self.here = other.here

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        if id(self) not in memo:
            copied = self.detach().clone().requires_grad_(self.requires_grad)
            memo[id(self)] = (
                torch.nn.Parameter(copied, self.requires_grad)
                if isinstance(self, torch.nn.Parameter)
                else copied
            )
        return memo[id(self)]

    def data_ptr(self) -> int:
        return self.here.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.here.untyped_storage()

    def tolist(self) -> Any:
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _kernel(op, *args, **(kwargs or {}))


def _kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operation with a tensor or a result on a device."""
    if op.namespace == "_c10d_functional":
        return _functional(op, *args)
    copies, indexes = (word in op._schema.name for word in ("copy", "index"))
    there = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, There)]
    if not copies and len(found := {x.device for x in there if x.dim()}) > 1:
        raise RuntimeError(f"{op}: tensors on {' and '.join(sorted(map(str, found)))}")

    def down(x: Any) -> Any:
        if isinstance(x, There):
            return x.here
        if isinstance(x, torch.Tensor) and x.dim() and not copies and not indexes:
            raise RuntimeError(f"{op}: a tensor on the CPU among those on the device")
        return torch.device("cpu") if isinstance(x, torch.device) and x.type == "pretend" else x

    if kwargs.get("generator") is not None:
        raise RuntimeError(f"{op}: a generator on the CPU for numbers on the device")
    given = {id(x.here): x for x in there}
    a, k = pytree.tree_map(down, (args, kwargs))
    out = op(*a, **k)
    into = args[0] if op._schema.name == "aten::copy_" else kwargs.get("device")
    if there and (into == torch.device("cpu") or getattr(into, "is_cpu", False)):
        return out
    asked = into.device if isinstance(into, torch.Tensor) else into
    index = _index(asked) if asked is not None else there[0].device.index if there else DEVICE_MODULE.current

    def up(x: Any) -> Any:
        return given[id(x)] if id(x) in given else There(x, index) if isinstance(x, torch.Tensor) else x

    return pytree.tree_map(up, out)


def _functional(op: Any, x: torch.Tensor, *args: Any) -> torch.Tensor:
    """What a DTensor asks of its group: whatever it is, the tensors stay where they are."""
    if op._opname in ("wait_tensor", "_wrap_tensor_autograd"):
        return x
    if op._opname != "all_gather_into_tensor":
        raise NotImplementedError(f"{op} on a pretended device")
    size, name = args
    together = x.new_empty(size * x.shape[0], *x.shape[1:])
    torch.distributed.distributed_c10d._resolve_process_group(name)._allgather_base(together, x).wait()
    return together


def use() -> None:
    """From here on this process has the devices, nccl's rules among them, and a labkit that computes on them."""
    global _library
    setup = backend_registration._setup_privateuseone_for_python_backend
    setup("pretend", backend_module=DEVICE_MODULE)
    _library = torch.library.Library("_", "IMPL")
    _library.fallback(_kernel, "PrivateUse1")
    _mend()
    stay_in_this_thread()

    from labkit import machine

    machine.ACCELERATOR = "pretend"

    from pretended import nccl

    nccl.register()


def _mend() -> None:
    """What torch does in C++, where no device in Python can follow."""
    import torch.distributed.optim  # torch compiles it, and with it what stands for torch.tensor then

    make, move = torch.tensor, torch.Tensor.to

    def tensor(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        return make(*args, **kwargs) if device is None else make(*args, **kwargs).to(device)

    def numbered(x: Any) -> Any:
        named = x == "pretend" or (isinstance(x, torch.device) and x.type == "pretend" and x.index is None)
        return torch.device("pretend", DEVICE_MODULE.current) if named else x

    def to(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return move(x, *map(numbered, args), **{k: numbered(v) for k, v in kwargs.items()})

    torch.tensor, torch.Tensor.to = tensor, to


def stay_in_this_thread() -> None:
    """From here on this thread's backward passes run in it, as the CPU's do, and not in one that torch has for the device.

    There, kernels in Python, and with them the collection of whatever garbage a simulated world left, once ended a run of
    the labs with a segmentation fault, where some thirty went well.
    """
    torch.autograd.set_multithreading_enabled(False)
