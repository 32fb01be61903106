"""How a function and its arguments travel to worker processes: by value, but shared memory by handle.

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
from typing import Any

import cloudpickle

from labkit.comm.errors import LaunchError


def pack(f: Any, args: tuple, kwargs: dict, settings: tuple, shared: bool) -> bytes:
    """The bytes of ``(f, args, kwargs, *settings)`` for a worker; settings: law first.

    shared: whether the workers can share this process's memory. Raises TypeError that names what cannot be sent,
    LaunchError that names a tensor in shared memory that cannot be reached from there.
    """
    try:
        return _dumps((f, args, kwargs, *settings), shared)
    except Exception:
        parts = {"f": f, **{f"argument {i}": a for i, a in enumerate(args)}, **kwargs, "law": settings[0]}
        for name, part in parts.items():
            try:
                _dumps(part, shared)
            except LaunchError as error:
                raise LaunchError(f"{name} {error}") from None
            except Exception as error:
                raise TypeError(
                    f"{name} ({type(part).__name__}) cannot be sent to a worker process: {error}; "
                    f"make it inside the function instead"
                ) from None
        raise


def _dumps(value: Any, shared: bool) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, shared).dump(value)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):
    """Pickles by value, except the storage of tensors in shared memory."""

    def __init__(self, buffer: io.BytesIO, shared: bool) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self.shared = shared

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__module__ != "torch.storage":
            return super().reducer_override(obj)
        untyped = getattr(obj, "_untyped_storage", obj)
        if untyped.device.type != "cpu" or not untyped.is_shared() or not untyped.nbytes():
            return super().reducer_override(obj)
        if not self.shared:
            raise LaunchError(
                "lies in shared memory, and hosts of their own share none; pass a copy of it (w.clone())"
            )
        rebuild, *handle = _handle(untyped)
        return _open, (rebuild, getattr(obj, "dtype", None), *handle)


def _handle(storage: Any) -> tuple[Any, ...]:
    """How another process of this machine can open a shared storage: a function and its arguments."""
    from torch.multiprocessing import get_sharing_strategy

    if get_sharing_strategy() == "file_system":
        return _by_name, *storage._share_filename_cpu_()
    fd, size = storage._share_fd_cpu_()
    if fd < 0:
        raise LaunchError("maps a file into memory; open the file inside the function instead")
    if not os.path.exists(f"/proc/{os.getpid()}/fd/{fd}"):
        raise LaunchError(
            "lies in shared memory that other processes cannot open here; before you make it, call "
            "torch.multiprocessing.set_sharing_strategy('file_system')"
        )
    status = os.fstat(fd)
    return _by_descriptor, os.getpid(), fd, size, (status.st_dev, status.st_ino)


# -- in the worker --------------------------------------------------------------------------------------------------------


def _open(rebuild: Any, dtype: Any, *handle: Any) -> Any:
    """The shared storage, typed as it was."""
    import torch

    untyped = rebuild(*handle)
    if dtype is None:
        return untyped
    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


def _by_descriptor(pid: int, fd: int, size: int, file: tuple[int, int]) -> Any:
    import torch

    own = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
    try:
        status = os.fstat(own)
        if (status.st_dev, status.st_ino) != file:
            raise LaunchError("a tensor in shared memory was freed by the launcher before it arrived")
        return torch.UntypedStorage._new_shared_fd_cpu(own, size)
    finally:
        os.close(own)


def _by_name(manager: bytes, name: bytes, size: int) -> Any:
    import torch

    return torch.UntypedStorage._new_shared_filename_cpu(manager, name, size)
