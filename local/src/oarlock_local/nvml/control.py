"""The file that drives the pretended NVML, beside the library. For one writer at a time, and any number of readers.

It is replaced as a whole: whoever asks the library meanwhile is told by the words before, or by those after.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from oarlock_local.errors import LocalError
from oarlock_local.nvml.fault import GpuFault, to_words
from oarlock_local.nvml.words import with_words, without

_LONGEST = (1 << 16) - 1
"""Bytes that the library reads."""


@dataclass(frozen=True, slots=True)
class Control:
    """The words of one folder of pretended GPUs."""

    folder: Path

    @property
    def words(self) -> list[str]:
        """All words of this moment."""
        try:
            return self._file.read_text().split()
        except FileNotFoundError:
            return []

    def set(self, *words: str) -> None:
        """Say words, as `gpus=8`, `1:action=4` or `1:xid=79`; all from the same moment on."""
        self._write(with_words(self.words, words))

    def clear(self, *names: str) -> None:
        """Take words back by name, as `1:action`; `1:` are all of GPU 1, and no name at all is every fault."""
        self._write(without(self.words, names))

    def inject(self, **fault: Unpack[GpuFault]) -> None:
        """Do a fault to a GPU, as `inject(gpu=1, xid=79)`; see GpuFault."""
        before = self.words
        self._write(with_words(before, to_words(fault, before)))

    @property
    def _file(self) -> Path:
        return self.folder / "control"

    def _write(self, words: Sequence[str]) -> None:
        text = "".join(f"{word}\n" for word in words)
        if len(text) > _LONGEST:
            raise LocalError(f"{self._file} would have more than {_LONGEST} bytes: clear what is over.")
        unfinished = self._file.with_name(f".control.{os.getpid()}")
        unfinished.write_text(text)
        unfinished.rename(self._file)
