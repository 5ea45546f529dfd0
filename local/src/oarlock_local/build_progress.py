"""What a build shows of itself: which part of how many, for how long, and about how long all that is left takes."""

import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from oarlock_local.binaries import Part

SECONDS: Mapping[str, float] = {
    "kubernetes": 270,
    "containerd": 48,
    "coredns": 10,
    "helm": 83,
    "helm3": 80,
    "kwok": 51,
    "promtool": 60,
    "versitygw": 40,
}
"""What a build takes on two quiet cores, for what is left; how fast the machine is, the parts that are done tell."""
_SMALL = 5.0


class Progress:
    """One line on a terminal, drawn over; elsewhere a line for each part, and a sign of life twice a minute."""

    def __init__(self, parts: Sequence[Part], out: TextIO) -> None:
        self._parts, self._out = parts, out
        self._began = self._part_began = time.monotonic()
        self._number = 0

    def begin(self) -> None:
        """The next part is being built."""
        self._number += 1
        self._part_began = time.monotonic()

    def tell(self) -> None:
        """To be called every second."""
        seconds = time.monotonic() - self._part_began
        end = "\n" if int(seconds) % 30 == 0 and not self._out.isatty() else ""
        done = self._part_began - self._began
        left = seconds_left([part.binary for part in self._parts], self._number - 1, done=done, running=seconds)
        _show(f"{self._title()}  {_clock(seconds)}, {_about(left)} left", self._out, end=end)

    def done(self) -> None:
        """The part is there."""
        _show(f"{self._title()}  done, {_clock(time.monotonic() - self._began)} in all", self._out, end="\n")

    def _title(self) -> str:
        return f" tools      {self._number}/{len(self._parts)} {self._parts[self._number - 1].binary}"


def seconds_left(names: Sequence[str], finished: int, *, done: float, running: float) -> float:
    """How long the rest takes: `finished` of the programs took `done` seconds, the next one runs for `running`."""
    usual = [SECONDS.get(name, _SMALL) for name in names]
    before = sum(usual[:finished])
    slowness = done / before if before else 1.0
    return max(usual[finished] * slowness - running, 0) + sum(usual[finished + 1 :]) * slowness


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
        print(f"\r\033[K{line}", end=end, file=out, flush=True)
    elif end:
        print(line, end=end, file=out, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
