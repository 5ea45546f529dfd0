"""A copy of a rank's state in memory that another process can read, taken while the forward and backward pass go on.

Only the next update has to wait for it. The memory is made once and used for every copy; that of checkpoints is no file in
/dev/shm, so that the size of that does not matter, but it counts in the pod's memory like one.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.checkpoint.layout import ELEMENT
from oarlock_trainer.engine import own_gpu
from oarlock_trainer.runtime.background import Background

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_trainer.engine.engine import TensorSlice

_POPULATE_WRITE = 23
"""MADV_POPULATE_WRITE of madvise(2), since Linux 5.14: make the pages now instead of during the first copy."""


class Snapshot:
    """Room for `size` bytes, at `descriptor`."""

    def __init__(self, size: int, device: torch.device, descriptor: int | None = None) -> None:
        """`device`: where the state is copied from. Its pages are made, and pinned for a GPU, in the background.

        `descriptor`: of a file that has the room, at least a page; by default memory is made that goes with its last process.
        """
        self.size = size
        if descriptor is None:
            descriptor = os.memfd_create("checkpoint")
            os.ftruncate(descriptor, max(size, mmap.PAGESIZE))
        self.descriptor = descriptor
        self._map = mmap.mmap(self.descriptor, 0)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        self._device = device
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._pinned = False
        self._work = Background(self._prepare)

    @property
    def content(self) -> memoryview:
        """The bytes of the copy, once it is done."""
        return memoryview(self._map)[: self.size]

    def begin(self, parts: Sequence[TensorSlice]) -> None:
        """Copy the parts one after another. They must not change before `wait` has returned."""
        self.wait()
        updated = torch.cuda.current_stream(self._device).record_event() if self._stream else None
        self._work = Background(lambda: self._copy(parts, updated))

    def wait(self) -> None:
        """Until the copy is done. Raises what it failed with."""
        self._work.wait(None)
        self._work.result()

    def close(self) -> None:
        """Give the memory back, once nothing is copied any more: unpinned, and mapped and held open by nobody here."""
        self._work.wait(None)
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._bytes.data_ptr())  # type: ignore[no-untyped-call]
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._map.close()
        os.close(self.descriptor)

    def _copy(self, parts: Sequence[TensorSlice], updated: Any) -> None:
        if self._stream is None:
            self._copy_all(parts)
            return
        own_gpu.choose(self._device)
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(updated)
            self._copy_all(parts)
        self._stream.synchronize()

    def _copy_all(self, parts: Sequence[TensorSlice]) -> None:
        start = 0
        for part in parts:
            end = start + part.values.numel() * ELEMENT
            self._bytes[start:end].view(torch.float32).copy_(part.values, non_blocking=True)
            start = end

    def _prepare(self) -> None:
        # Older kernels, and memory that is short, show in the first copy instead.
        address = self._bytes.data_ptr()
        ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(len(self._map)), _POPULATE_WRITE)
        if self._stream is not None:
            own_gpu.choose(self._device)
            cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            # int: what it returns is an enumeration, of which every member is true, success among them.
            code = int(cudart.cudaHostRegister(address, len(self._map), 0))
            self._pinned = code == 0
            if code:
                sys.stderr.write(
                    f"the memory of checkpoints could not be pinned (CUDA error {code}): copies into it are slower\n"
                )
