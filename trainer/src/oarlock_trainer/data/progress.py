"""How far encoding has come, for people: how much, how fast, how long still, and which stage decides about the speed.

Rank 0 speaks for all: units are dealt out evenly, so the whole is taken to be as far as its share. The agent is told
every two seconds; a terminal has a bar, a log a line every half minute.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TextIO

from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from oarlock_trainer.runtime.stages import PipelineStage

_NOTE_SECONDS, _LINE_SECONDS = 2.0, 30.0
_BAR = 24


class Progress:
    """The progress of one kind of embeddings on one rank: `own` of `total` records are its share."""

    def __init__(
        self,
        what: str,
        *,
        own: int,
        total: int,
        speaks: bool,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`speaks`: this rank tells for all. `stream` is standard error unless given."""
        self._what = what
        self._own, self._total = own, total
        self._speaks = speaks
        self._stream = stream or sys.stderr
        self._clock = clock
        self._beat = Heartbeat(clock)
        self._began = self._noted = self._lined = clock()
        self._done = 0

    @contextmanager
    def over(self, stages: Sequence[PipelineStage]) -> Iterator[None]:
        """The time within is that of the work; at its end, if it comes, it is told how busy the stages were."""
        self._began = self._noted = self._lined = self._clock()
        yield
        self._say(self.summary(stages), last=True)

    def advance(self, records: int) -> None:
        """So many more are encoded."""
        self._done += records
        self._beat()
        now = self._clock()
        if now - self._noted >= _NOTE_SECONDS:
            self._noted = now
            self._say(self.line(), last=False)

    def line(self) -> str:
        """One line: what, how much of how much, records per second and the time that is left."""
        seconds = self._clock() - self._began
        share = self._done / self._own if self._own else 1.0
        rate = share * self._total / seconds if seconds > 0 else 0.0
        left = timedelta(seconds=round((1.0 - share) * self._total / rate)) if rate > 0 else "?"
        done = round(share * self._total)
        return f"{self._what}: {done:,} of {self._total:,} ({share:.0%}), {rate:,.1f}/s, {left} left"

    def summary(self, stages: Sequence[PipelineStage]) -> str:
        """What was done, and the share of the time that each stage was at work."""
        seconds = max(self._clock() - self._began, 1e-9)
        busy = {stage.name: stage.busy / (stage.threads * seconds) for stage in stages}
        each = ", ".join(f"{stage.name} {busy[stage.name]:.0%} of {_threads(stage.threads)}" for stage in stages)
        slowest = max(busy, key=lambda name: busy[name])
        return (
            f"{self._what}: rank 0 encoded {self._done:,} of {self._total:,} in {timedelta(seconds=round(seconds))} "
            f"({self._done / seconds:,.1f}/s); busy: {each}; {slowest} decides about the speed"
        )

    def _say(self, sentence: str, *, last: bool) -> None:
        if not self._speaks:
            return
        channel.send(channel.Event.NOTE, message=sentence)
        if self._stream.isatty():
            self._stream.write(f"\r{'' if last else self._bar()}{sentence}\x1b[K{chr(10) if last else ''}")
        elif last or self._noted - self._lined >= _LINE_SECONDS:
            self._lined = self._noted
            self._stream.write(f"{sentence}\n")
        self._stream.flush()

    def _bar(self) -> str:
        filled = round(_BAR * self._done / self._own) if self._own else _BAR
        return f"[{'#' * filled}{'.' * (_BAR - filled)}] "


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
