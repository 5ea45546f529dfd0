"""What every step reports: one JSON line to stdout and to `<output>/metrics.jsonl`, the event for the agent, the trackers.

Lines carry the attempt: after a fault the steps since the last checkpoint stand there twice, and the later attempt
counts. A line that a crash cut off is ended, so that the next one can be read. docs/numbers.md says what each figure is.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from oarlock_api.contract.status import StepPart
from oarlock_api.contract.wire import finite
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.errors import FULL, StorageError, storage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from oarlock_trainer.loop.step_clock import Split
    from oarlock_trainer.runtime.start_clock import StartClock
    from oarlock_trainer.validation.validation import ValidationOutcome

FILE = "metrics.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One optimizer step. `loss` is the mean over all ranks and micro-batches; times and memory (bytes) are rank 0's.

    `by_noise`: mean loss, without weights, of the samples within each bin of noise levels.
    """

    step: int
    total: int
    epoch: int
    loss: float
    by_noise: Mapping[str, float]
    learning_rate: float
    gradient_norm: float | None
    skipped: int
    split: Split
    images: int
    mfu: float | None
    memory: int


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

    def started(self, step: int, clock: StartClock) -> None:
        """Report what the time before the first step went to; `step` steps are done already."""
        sys.stderr.write(f"{clock.words()}\n")
        seconds = {str(part): _rounded(value) for part, value in clock.seconds.items()}
        self._write({"attempt": self._attempt, "step": step, "startSeconds": seconds})

    def step(self, facts: StepFacts) -> None:
        """Report one step."""
        seconds, parts = facts.split.seconds, facts.split.parts
        figures = {
            "loss": _rounded(facts.loss),
            "learningRate": facts.learning_rate,
            "gradientNorm": _rounded(facts.gradient_norm),
            "skippedUpdates": facts.skipped,
            "secondsPerStep": _rounded(seconds),
            "imagesPerSecond": _rounded(facts.images / seconds if seconds > 0 else None),
            "mfu": _rounded(facts.mfu),
            "dataWaitShare": _rounded(parts[StepPart.DATA] / seconds if seconds > 0 else None),
            "memoryPeakBytes": facts.memory,
        }
        spent = {str(part): _rounded(value) for part, value in parts.items()}
        place = {"step": facts.step, "total": facts.total, "epoch": facts.epoch}
        channel.send(channel.Event.STEP, **place, **figures, **{f"{part}Seconds": spent[part] for part in spent})
        by_noise = {name: _rounded(loss) for name, loss in facts.by_noise.items()}
        self._write({"attempt": self._attempt, **place, **figures, "lossByNoise": by_noise, "seconds": spent})
        named = {"epoch": facts.epoch, **figures} | {f"seconds/{part}": value for part, value in spent.items()}
        named |= {f"lossByNoise/{name}": loss for name, loss in by_noise.items()}
        self._track(facts.step, named)

    def evaluation(self, step: int, losses: Mapping[str, float]) -> None:
        """Report the losses on datasets that are not trained on, by their names."""
        rounded = {name: _rounded(loss) for name, loss in losses.items()}
        words = ", ".join(f"{name} {loss}" for name, loss in rounded.items())
        channel.send(channel.Event.NOTE, message=f"loss on unseen data after step {step}: {words}")
        self._write({"attempt": self._attempt, "step": step, "evaluationLoss": rounded})
        self._track(step, {f"evaluationLoss/{name}": loss for name, loss in rounded.items()})

    def validation(self, step: int, outcome: ValidationOutcome) -> None:
        """Report what the pictures of a step cost."""
        seconds = _rounded(outcome.seconds)
        counts = {"pictures": len(outcome.made), "failed": len(outcome.failed), "leftOut": outcome.left_out}
        self._write({"attempt": self._attempt, "step": step, "validation": {**counts, "seconds": seconds}})
        self._track(step, {"validationSeconds": seconds})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _track(self, step: int, figures: Mapping[str, float | None]) -> None:
        if self.trackers:
            self.trackers.report(step, {name: value for name, value in figures.items() if value is not None})

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")) + "\n"
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


def _rounded(value: float | None) -> float | None:
    known = finite(value)
    return None if known is None else float(f"{known:.7g}")
