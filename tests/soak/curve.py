"""What a job's metrics.jsonl tells of its rounds, and what must never stand in it. Pure: lines go in, words come out.

Must not be: a step whose loss is another than the undisturbed run's; a step out of turn within an attempt, as of a round that
still runs beside the next one; a step of an older attempt after a newer one has begun, unless that one had pods on a node
that was out of reach (they train on, and their checkpoints are refused).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A step, or a start of all ranks (`loss` None; `step` steps are done already). `at`: seconds since the epoch."""

    at: float
    attempt: int
    step: int
    loss: float | None


def parse(text: bytes) -> Line | None:
    """A line of the file; None for what tells neither of a step nor of a start, and for one that a crash cut off."""
    try:
        raw: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    if "loss" not in raw and "startSeconds" not in raw:
        return None
    at = datetime.fromisoformat(raw["time"]).timestamp()
    return Line(at=at, attempt=raw["attempt"], step=raw["step"], loss=raw.get("loss"))


@dataclass(slots=True)
class Curve:
    """Follows a file. `expected`: step -> loss of the undisturbed run; empty while that one itself is followed.

    `tolerance`: the share by which a loss may differ from it, where another number of ranks adds in another order.
    """

    path: Path
    expected: Mapping[int, float] = field(default_factory=dict)
    tolerance: float = 0.0
    unheard: int = 0
    """The newest attempt that had pods on a node that was out of reach: it, and those before it, may train on."""
    lines: list[Line] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    _next: dict[int, int] = field(default_factory=dict)
    _offset: int = 0

    def look(self) -> None:
        """Take in what was written since."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            whole, end, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(end)
        for text in whole.split(b"\n"):
            if line := parse(text):
                self.take(line)

    def take(self, line: Line) -> None:
        """Take in one line, and judge it."""
        newest = self.attempt
        self.lines.append(line)
        if line.loss is None:
            self._next[line.attempt] = line.step + 1
            return
        if self.unheard < line.attempt < newest:
            self._violated(line, f"attempt {newest} had begun")
        due = self._next.get(line.attempt)
        if line.step != due:
            self._violated(line, f"it was the turn of step {due}")
        self._next[line.attempt] = line.step + 1
        expected = self.expected.get(line.step, math.nan)
        if self.expected and not math.isclose(line.loss, expected, rel_tol=self.tolerance, abs_tol=0.0):
            self._violated(line, f"the undisturbed run has the loss {expected}")

    @property
    def losses(self) -> dict[int, float]:
        """Step -> loss, as told last."""
        return {line.step: line.loss for line in self.lines if line.loss is not None}

    @property
    def attempt(self) -> int:
        """The newest that has begun."""
        return max(self._next, default=0)

    @property
    def step(self) -> int:
        """The newest step that was ever reached."""
        return max((line.step for line in self.lines), default=0)

    @property
    def again(self) -> int:
        """Steps that were done more than once, each further time counted."""
        return sum(line.loss is not None for line in self.lines) - len(self.losses)

    def start_after(self, at: float) -> Line | None:
        """The first start of ranks after a moment that was followed by a step of the same attempt."""
        for index, line in enumerate(self.lines):
            if line.loss is None and line.at > at:
                following = [one for one in self.lines[index + 1 :] if one.attempt == line.attempt]
                if following and following[0].loss is not None:
                    return line
        return None

    def step_after(self, at: float, *, attempt: int = 0) -> Line | None:
        """The first step after a moment, of this attempt or a later one."""
        return next(
            (one for one in self.lines if one.loss is not None and one.at > at and one.attempt >= attempt), None
        )

    def steps_since(self, at: float) -> int:
        """How many steps were told after a moment."""
        return sum(line.loss is not None and line.at > at for line in self.lines)

    def longest_pause(self, since: float) -> float:
        """The longest time without a step that ended after a moment, in seconds; 0 where no step came."""
        times = [line.at for line in self.lines if line.loss is not None]
        pairs = pairwise(times)
        return max((after - max(before, since) for before, after in pairs if after > since), default=0.0)

    def _violated(self, line: Line, why: str) -> None:
        self.violations.append(f"attempt {line.attempt} told of step {line.step} with the loss {line.loss}; {why}")
