"""What a build shows of itself: which part of how many, for how long, and about how long all that is left takes.

The CPU time of the compilers says how much is done, and their CPU time in the last minute how fast it goes. So what is
left is told by this build's own pace, whatever else the machine does; where that takes most of the cores, the line says so.
"""

import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from oarlock_local.binaries import Part

CPU_SECONDS: Mapping[str, float] = {
    "kubernetes": 540,
    "containerd": 96,
    "coredns": 20,
    "helm": 200,
    "helm3": 105,
    "kwok": 100,
    "promtool": 95,
    "versitygw": 100,
}
"""About what compiling and linking takes, for what is left; the parts that are done tell how much more or less it is here."""
_SMALL = 10.0
_TICKS = 60
"""Over how many seconds the pace is taken: linking, which uses one core, must not look like a busy machine."""


class Progress:
    """One line on a terminal, drawn over; elsewhere a line for each part, and a sign of life twice a minute."""

    def __init__(
        self, parts: Sequence[Part], out: TextIO, *, cores: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._parts, self._out, self._cores, self._clock = parts, out, cores, clock
        self._began = self._part_began = self._told = clock()
        self._number = self._signs = 0
        self._done = self._running = 0.0
        # A build keeps about two cores busy. Until it has run for a minute, the minute before counts as a quiet one.
        self._quiet = float(min(cores, 2))
        self._pace = deque([(1.0, self._quiet)] * _TICKS, maxlen=_TICKS)

    def begin(self) -> None:
        """The next part is being built."""
        self._number += 1
        self._signs = 0
        self._part_began = self._told = self._clock()
        self._done, self._running = self._done + self._running, 0.0

    def tell(self, running: float) -> None:
        """To be called every second with the CPU seconds that the compilers of this part have had so far."""
        now = self._clock()
        # While sources are fetched nothing is compiled, and that is no sign of a busy machine.
        if running:
            self._pace.append((now - self._told, running - self._running))
        self._told, self._running = now, running
        seconds = now - self._part_began
        signs = int(seconds) // 30
        end = "\n" if signs > self._signs and not self._out.isatty() else ""
        self._signs = signs
        _show(f"{self._title()}  {_clock(seconds)}, {self._left()}", self._out, end=end)

    def done(self) -> None:
        """The part is there."""
        _show(f"{self._title()}  done, {_clock(self._clock() - self._began)} in all", self._out, end="\n")

    def _title(self) -> str:
        return f" tools      {self._number}/{len(self._parts)} {self._parts[self._number - 1].binary}"

    def _left(self) -> str:
        pace = sum(cpu for _, cpu in self._pace) / sum(wall for wall, _ in self._pace)
        names = [part.binary for part in self._parts]
        about = _about(seconds_left(names, self._number - 1, done=self._done, running=self._running, pace=pace))
        if not self._running:
            return f"getting its sources, then {about}"
        if pace < self._quiet / 2:
            return f"busy: {about} left at {pace:.1f} of {self._cores} cores"
        return f"{about} left"


def seconds_left(names: Sequence[str], finished: int, *, done: float, running: float, pace: float) -> float:
    """How long the rest takes at `pace`, in CPU seconds a second.

    `finished` of the programs took `done` CPU seconds, the next one has had `running`.
    """
    usual = [CPU_SECONDS.get(name, _SMALL) for name in names]
    before, here = sum(usual[:finished]), usual[finished]
    expected = here * (done / before if before else 1.0)
    # What takes longer than expected is told to take half of the excess more: that grows until it is there.
    left = expected - running if running < expected else (running - expected) / 2
    rest = sum(usual[finished + 1 :]) * (done + running + left) / (before + here)
    # A build that stands still for a minute has no pace, and no end either.
    return (left + rest) / max(pace, 0.05)


def _about(seconds: float) -> str:
    return (
        f"about {seconds / 60:.0f} min"
        if seconds >= 90
        else "about a minute"
        if seconds >= 30
        else "less than a minute"
    )


def _show(line: str, out: TextIO, end: str) -> None:
    """Rewrites the line on a terminal; elsewhere prints finished lines only."""
    if out.isatty():
        # What is wrapped could not be drawn over.
        print(f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}", end=end, file=out, flush=True)
    elif end:
        print(line, end=end, file=out, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
