"""A node's GPUs as one process sees them, without any: which of them it has a context on, and what was asked in which order.

As CUDA has it, each thread begins on GPU 0, choosing a GPU makes a context there, and so does taking up a stream, also the
one that a thread had before (torch.cuda.StreamContext).
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


class Code:
    """A member of an enumeration of pybind11: true whatever it is, and a number only where one asks."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __int__(self) -> int:
        return self._number


@dataclass(frozen=True)
class Event:
    device: int


@dataclass(frozen=True)
class Stream:
    gpus: Gpus
    device: int

    def record_event(self) -> Event:
        return Event(self.device)

    def wait_event(self, event: Event) -> None:
        self.gpus.asked.append(("wait", event.device))

    def synchronize(self) -> None:
        self.gpus.asked.append(("synchronize", self.device))


class Gpus:
    """Takes the place of torch.cuda for who uses these calls alone; `pinning` is what pinning memory ends with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, pinning: int = 0) -> None:
        self.contexts: set[int] = set()
        self.asked: list[tuple[str, int]] = []
        self._pinning = pinning
        self._thread = threading.local()
        for name in ("set_device", "current_stream", "stream"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(self, device.index))
        monkeypatch.setattr(torch.cuda, "cudart", lambda: self)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
        monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", self.contexts.__contains__)

    def set_device(self, device: torch.device) -> None:
        self._take(device.index)

    def current_stream(self, device: torch.device) -> Stream:
        return Stream(self, device.index)

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before = getattr(self._thread, "device", 0)
        self._take(stream.device)
        yield
        self._take(before)

    def cudaHostRegister(self, _address: int, _size: int, _flags: int) -> Any:  # noqa: N802 - CUDA's own name
        return Code(self._pinning)

    def _take(self, device: int) -> None:
        self._thread.device = device
        self.contexts.add(device)
