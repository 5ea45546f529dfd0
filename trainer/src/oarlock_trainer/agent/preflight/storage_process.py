"""The storage check as a child process with a bound in time, so that a dead mount can't hang the agent.

Only the main thread may use it (see children.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.agent import children

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Needed:
    """Room that the output must have: `min_free` bytes, else what `keep` checkpoints of `model` are estimated to take."""

    min_free: int | None = None
    model: Path | None = None
    keep: int = 0


class StorageProcess:
    """One running check. `passed` and `message` say how it ended; `passed` is None while it runs."""

    def __init__(self, directory: Path, *, needed: Needed, seconds: float, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._output, child_output = os.pipe()
        os.set_blocking(self._output, False)
        command = [sys.executable, "-m", "oarlock_trainer", "check-storage", str(directory)]
        if needed.min_free is not None:
            command += ["--min-free", str(needed.min_free)]
        elif needed.model is not None:
            command += ["--model", str(needed.model), "--keep", str(needed.keep)]
        try:
            self.pid = children.spawn(command, environment=environment, stdout=child_output)
        finally:
            os.close(child_output)
        self.passed: bool | None = None
        self.message = ""

    @property
    def seconds_left(self) -> float:
        """Time until the check counts as failed."""
        return max(self._deadline - time.monotonic(), 0.0)

    def ended(self, code: int) -> None:
        """Take in that the process ended with this code (or was killed by minus this signal)."""
        if self.passed is None:
            said = b""
            with contextlib.suppress(BlockingIOError):
                said = os.read(self._output, 16384)
            self.message = said.decode(errors="replace").strip() or f"the storage check ended with code {code}"
            self.passed = code == 0

    def give_up_when_due(self) -> None:
        """Fail a check that is over time. The process may be beyond the reach of any signal: it is left behind."""
        if self.passed is None and not self.seconds_left:
            children.kill(self.pid)
            self.message = (
                f"output: {self._directory} did not answer within {self._seconds:g} s: its server or the network to it "
                "is down or very slow. spec.preflight.timeoutSeconds is the bound."
            )
            self.passed = False
