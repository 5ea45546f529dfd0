"""What every step reports: one JSON line to stdout and to `<output>/metrics.jsonl`, and the event for the agent.

Lines carry the attempt: after a fault the steps since the last checkpoint stand there twice, and the later attempt
counts. A line that a crash cut off is ended, so that the next one can be read.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.wire import finite
from oarlock_trainer import channel
from oarlock_trainer.errors import storage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One optimizer step. `loss` is the mean over all ranks and micro-batches, times are seconds of rank 0."""

    step: int
    total: int
    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float | None
    seconds: float
    data_seconds: float
    images: int
    mfu: float | None


class Metrics:
    """Rank 0's reports."""

    def __init__(self, output: Path, attempt: int) -> None:
        """Opens the file for appending."""
        self._attempt = attempt
        path = output / "metrics.jsonl"
        with storage(f"opening {path}"):
            self._file = path.open("ab+")
            if self._file.seek(0, os.SEEK_END):
                self._file.seek(-1, os.SEEK_END)
                if self._file.read(1) != b"\n":
                    self._file.write(b"\n")

    def step(self, facts: StepFacts) -> None:
        """Report one step."""
        fields = {
            "step": facts.step,
            "total": facts.total,
            "epoch": facts.epoch,
            "loss": _rounded(facts.loss),
            "learningRate": facts.learning_rate,
            "secondsPerStep": _rounded(facts.seconds),
            "imagesPerSecond": _rounded(facts.images / facts.seconds if facts.seconds > 0 else None),
            "dataWaitShare": _rounded(facts.data_seconds / facts.seconds if facts.seconds > 0 else None),
            "mfu": _rounded(facts.mfu),
        }
        channel.send(channel.Event.STEP, **fields)
        self._write({"attempt": self._attempt, **fields, "gradientNorm": _rounded(facts.gradient_norm)})

    def evaluation(self, step: int, losses: Mapping[str, float]) -> None:
        """Report the losses on datasets that are not trained on, by their names."""
        rounded = {name: _rounded(loss) for name, loss in losses.items()}
        words = ", ".join(f"{name} {loss}" for name, loss in rounded.items())
        channel.send(channel.Event.NOTE, message=f"loss on unseen data after step {step}: {words}")
        self._write({"attempt": self._attempt, "step": step, "evaluationLoss": rounded})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")) + "\n"
        sys.stdout.write(text)
        sys.stdout.flush()
        with storage("writing metrics.jsonl"):
            self._file.write(text.encode())
            self._file.flush()


def _rounded(value: float | None) -> float | None:
    known = finite(value)
    return None if known is None else float(f"{known:.7g}")
