"""What every step reports: one JSON line to stdout and to `<output>/metrics.jsonl`, the event for the agent, the trackers.

Lines carry the time and the attempt: after a fault the steps since the last checkpoint stand there twice, and the later
attempt counts. A line that a crash cut off is ended, so that the next one can be read. Figures are those of contract.figures.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

from oarlock_api.contract.history import METRICS
from oarlock_api.contract.wire import finite
from oarlock_trainer.runtime import channel, clock
from oarlock_trainer.runtime.errors import FULL, StorageError, storage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from oarlock_api.contract.figures import Figures
    from oarlock_api.contract.status import StepPart
    from oarlock_trainer.runtime.start_clock import StartClock
    from oarlock_trainer.validation.validation import ValidationOutcome

FILE = METRICS
_AXIS = ("step", "total")
"""What trackers do not draw: the others are drawn over it."""


class FigureSink(Protocol):
    """Where figures go beside the file."""

    def report(self, step: int, figures: Mapping[str, float]) -> None:
        """Take the figures of a step, by their names. Never raises and never waits."""


class Metrics:
    """Rank 0's reports."""

    def __init__(self, output: Path, attempt: int, trackers: FigureSink | None = None) -> None:
        """Opens the file for appending."""
        self._attempt = attempt
        self.trackers = trackers
        self._full = False
        path = output / FILE
        with storage(f"opening {path}"):
            self._file = path.open("ab+", buffering=0)
            if self._file.seek(0, os.SEEK_END):
                self._file.seek(-1, os.SEEK_END)
                if self._file.read(1) != b"\n":
                    self._file.write(b"\n")

    def started(self, step: int, spent: StartClock) -> None:
        """Report what the time before the first step went to; `step` steps are done already."""
        sys.stderr.write(f"{spent.words()}\n")
        seconds = {str(part): rounded(value) for part, value in spent.seconds.items()}
        self._write({"step": step, "startSeconds": seconds})

    def step(self, figures: Figures, *, parts: Mapping[StepPart, float], by_noise: Mapping[str, float]) -> None:
        """Report one step.

        `parts`: its seconds by what they were spent on. `by_noise`: mean loss, without weights, of the samples within each
        bin of noise levels.
        """
        line = figures.to_line()
        spent = {str(part): rounded(seconds) for part, seconds in parts.items()}
        channel.send(channel.Event.STEP, **line, **{f"{part}Seconds": seconds for part, seconds in spent.items()})
        losses = {name: rounded(loss) for name, loss in by_noise.items()}
        self._write({**line, "lossByNoise": losses, "seconds": spent})
        named = {name: value for name, value in line.items() if name not in _AXIS}
        named |= {f"seconds/{part}": seconds for part, seconds in spent.items()}
        named |= {f"lossByNoise/{name}": loss for name, loss in losses.items()}
        self._track(figures.step or 0, named)

    def evaluation(self, step: int, losses: Mapping[str, float]) -> None:
        """Report the losses on datasets that are not trained on, by their names."""
        known = {name: rounded(loss) for name, loss in losses.items()}
        words = ", ".join(f"{name} {loss}" for name, loss in known.items())
        channel.send(channel.Event.NOTE, message=f"loss on unseen data after step {step}: {words}")
        self._write({"step": step, "evaluationLoss": known})
        self._track(step, {f"evaluationLoss/{name}": loss for name, loss in known.items()})

    def validation(self, step: int, outcome: ValidationOutcome) -> None:
        """Report what the pictures of a step cost."""
        seconds = rounded(outcome.seconds)
        counts = {"pictures": len(outcome.made), "failed": len(outcome.failed), "leftOut": outcome.left_out}
        self._write({"step": step, "validation": {**counts, "seconds": seconds}})
        self._track(step, {"validationSeconds": seconds})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _track(self, step: int, figures: Mapping[str, float | None]) -> None:
        if self.trackers:
            self.trackers.report(step, {name: value for name, value in figures.items() if value is not None})

    def _write(self, line: dict[str, Any]) -> None:
        about = {"time": clock.timestamp(), "attempt": self._attempt}
        text = json.dumps({**about, **line}, separators=(",", ":")) + "\n"
        sys.stdout.write(text)
        sys.stdout.flush()
        full = False
        try:
            with storage("writing metrics.jsonl"):
                os.write(self._file.fileno(), text.encode())
        except StorageError as error:
            full = isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL
            if not full:
                raise
        if full and not self._full:  # once, or no other note would be seen any more
            channel.send(channel.Event.NOTE, message="the output is full: metrics.jsonl lacks steps, training goes on")
        self._full = full


def rounded(value: float | None) -> float | None:
    """Seven significant digits; None for what is not finite."""
    known = finite(value)
    return None if known is None else float(f"{known:.7g}")
