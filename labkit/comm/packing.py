"""How a function and its arguments travel to worker processes, and a result back: by value, but shared memory by handle.

Functions go by value too (cloudpickle), so that one defined in a notebook cell can run there. A torch tensor that lies in
shared memory (``share_memory_()``) arrives as the same memory, as users of torch.multiprocessing expect: the worker opens
its file descriptor, which has no name in the file system, through ``/proc/<launcher>/fd``. The launcher holds that for as
long as it holds the tensor, and the kernel frees it with the last process that does, however they end. Under torch's
``file_system`` sharing strategy (the only one on macOS) the file's name travels, and torch's own manager cleans up.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle

from labkit.comm.errors import LaunchError, text_of


def pack(f: Any, args: tuple, kwargs: dict, settings: tuple, shared: bool) -> bytes:
    """The bytes of ``(f, args, kwargs, *settings)`` for a worker; settings: law first.

    shared: whether the workers can share this process's memory. Raises TypeError that names what cannot be sent,
    LaunchError that names a tensor in shared memory that cannot be reached from there.
    """
    try:
        return _dumps((f, args, kwargs, *settings), _reachable if shared else _unreachable)
    except Exception:
        parts = {"f": f, **{f"argument {i}": a for i, a in enumerate(args)}, **kwargs, "law": settings[0]}
        for name, part in parts.items():
            try:
                _dumps(part, _reachable if shared else _unreachable)
            except LaunchError as error:
                raise LaunchError(f"{name} {error}") from None
            except Exception as error:
                why = text_of(error) or type(error).__name__
                raise TypeError(
                    f"{name} ({type(part).__name__}) cannot be sent to a worker process: {why}; "
                    f"make it inside the function instead"
                ) from None
        raise


def pack_result(value: Any) -> bytes:
    """The bytes of what a worker returns. A GPU's tensors come back as the CPU's: the launcher need not touch the GPU."""
    return _dumps(value, _on_the_cpu)


def _dumps(value: Any, reduce: Callable[[Any], Any]) -> bytes:
    """Pickle by value, except what ``reduce`` has its own way for."""
    buffer = io.BytesIO()
    _Pickler(buffer, reduce).dump(value)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):
    def __init__(self, buffer: io.BytesIO, reduce: Callable[[Any], Any]) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self.reduce = reduce

    def reducer_override(self, obj: Any) -> Any:
        own = self.reduce(obj)
        return super().reducer_override(obj) if own is NotImplemented else own


def _on_the_cpu(obj: Any) -> Any:
    import torch

    if not isinstance(obj, torch.Tensor) or obj.is_cpu:
        return NotImplemented
    return obj.detach().cpu().__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _reachable(obj: Any) -> Any:
    if (untyped := _shared_storage(obj)) is None:
        return NotImplemented
    if untyped is obj:
        return _handle(untyped)
    from torch.multiprocessing.reductions import reduce_typed_storage

    return reduce_typed_storage(obj)  # its untyped storage, which comes here next, and the dtype


def _unreachable(obj: Any) -> Any:
    if _shared_storage(obj) is None:
        return NotImplemented
    raise LaunchError(
        "lies in shared memory, and hosts of their own share none; pass a copy of it (w.clone())"
    )


def _shared_storage(obj: Any) -> Any:
    """The storage, if ``obj`` is one of a tensor in shared memory."""
    if type(obj).__module__ != "torch.storage":
        return None
    untyped = getattr(obj, "_untyped_storage", obj)
    return untyped if untyped.device.type == "cpu" and untyped.is_shared() and untyped.nbytes() else None


def _handle(storage: Any) -> tuple[Any, tuple]:
    """How another process of this machine can open a shared storage: a function and its arguments."""
    from torch.multiprocessing import get_sharing_strategy, reductions

    if get_sharing_strategy() == "file_system":
        return _by_name, storage._share_filename_cpu_()
    fd, size = storage._share_fd_cpu_()
    if fd < 0:
        raise LaunchError("maps a file into memory; open the file inside the function instead")
    if not os.path.exists(f"/proc/{os.getpid()}/fd/{fd}"):
        raise LaunchError(
            "lies in shared memory that other processes cannot open here; before you make it, call "
            "torch.multiprocessing.set_sharing_strategy('file_system')"
        )
    descriptor = _Descriptor(os.getpid(), fd, os.fstat(fd).st_ino)
    return reductions.rebuild_storage_fd, (type(storage), descriptor, size)


# -- in the worker --------------------------------------------------------------------------------------------------------


class _Descriptor(NamedTuple):
    """A file that another process holds open; torch asks for it by ``detach``, as of multiprocessing's ``DupFd``.

    That one hands a descriptor out once, through a thread of the launcher; this one to as many workers as there are.
    """

    pid: int
    fd: int
    inode: int

    def detach(self) -> int:
        own = os.open(f"/proc/{self.pid}/fd/{self.fd}", os.O_RDWR)
        if os.fstat(own).st_ino == self.inode:
            return own
        os.close(own)
        raise LaunchError("a tensor in shared memory was freed by the launcher before it arrived")


def _by_name(manager: bytes, name: bytes, size: int) -> Any:
    import torch

    return torch.UntypedStorage._new_shared_filename_cpu(manager, name, size)
