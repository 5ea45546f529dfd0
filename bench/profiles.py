"""Profiles of the operator, one per scenario: the profiler's own file, and its hottest functions as text."""

from __future__ import annotations

import io
import os
import pstats
import signal
from dataclasses import dataclass
from pathlib import Path

from connection import until

TOP = 25


@dataclass(frozen=True, slots=True)
class Profiles:
    """Talks to profiled.py. `file` is where that writes; profiles are kept beside it, the newest of each scenario."""

    file: Path

    def begin(self, pid: int) -> None:
        """Begin a profile."""
        self.file.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR1)

    async def end(self, pid: int, scenario: str) -> None:
        """End it, and keep it under the scenario's name."""
        os.kill(pid, signal.SIGUSR2)

        async def is_written() -> bool:
            return self.file.exists()

        await until(is_written)
        kept = self.file.with_name(f"profile-{scenario}.prof")
        self.file.rename(kept)
        text = io.StringIO()
        stats = pstats.Stats(str(kept), stream=text)
        for order in ("tottime", "cumtime"):
            stats.sort_stats(order).print_stats(TOP)
        kept.with_suffix(".txt").write_text(text.getvalue())
        print(f"          profile: {kept} and .txt", flush=True)
