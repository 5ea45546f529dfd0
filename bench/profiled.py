"""The operator under cProfile, switched on and off from outside, so that a profile holds one scenario and no more.

    python bench/profiled.py FILE OPERATOR-ARGUMENTS...

SIGUSR1 begins a profile, SIGUSR2 ends it and writes FILE. SIGTERM and SIGINT end the operator as ever; a profile that
was begun is written then, too.
"""

from __future__ import annotations

import cProfile
import os
import signal
import sys
from pathlib import Path

from oarlock_operator.__main__ import main


class Profiler:
    """One profile at a time, of the main thread, in which the operator's loop runs."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._profile: cProfile.Profile | None = None

    def begin(self, *_: object) -> None:
        """Begin anew."""
        self._profile = cProfile.Profile()
        self._profile.enable()

    def end(self, *_: object) -> None:
        """Write the file, complete at once: who waits for it reads it as soon as it is there."""
        if self._profile is None:
            return
        self._profile.disable()
        unfinished = self.file.with_suffix(f".{os.getpid()}")
        self._profile.dump_stats(unfinished)
        unfinished.rename(self.file)
        self._profile = None


if __name__ == "__main__":
    profiler = Profiler(Path(sys.argv[1]))
    signal.signal(signal.SIGUSR1, profiler.begin)
    signal.signal(signal.SIGUSR2, profiler.end)
    sys.argv = ["oarlock-operator", *sys.argv[2:]]
    try:
        code = main()
    finally:
        profiler.end()
    sys.exit(code)
