"""A step's figures: one table for what rank 0 reports, /status, /metrics, the trackers, status.progress and the docs.

A new figure is a field of `Figures` here, and its value in the trainer's loop/step_report.py. status.progress of the job
takes over those that it has a field for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.wire import finite, integer, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A row of the table."""

    wire: str
    """Its name in /status."""
    line: str
    """Its name in a step's line: metrics.jsonl, trackers, the event for the agent."""
    gauge: str
    """Its name in /metrics, behind `oarlock_trainer_`."""
    unit: str
    help: str
    """For Prometheus."""
    meaning: str
    """How it is measured, in Markdown: for docs/numbers.md."""
    read: Callable[[object], Any]
    """From JSON; None where it is strange."""


def _figure(
    wire: str,
    read: Callable[[object], Any],
    *,
    gauge: str,
    unit: str,
    help: str,  # noqa: A002 - Prometheus' word
    meaning: str,
    line: str = "",
) -> Any:
    row = Figure(wire=wire, line=line or wire, gauge=gauge, unit=unit, help=help, meaning=meaning, read=read)
    return field(default=None, metadata={_ROW: row})


_ROW = "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one step. What is not known is None, never a made-up zero."""

    step: int | None = _figure(
        "step",
        integer,
        gauge="step",
        unit="steps",
        help="Optimizer steps done, over all attempts",
        meaning="optimizer steps done, over all attempts. Trackers draw the others over it",
    )
    total_steps: int | None = _figure(
        "totalSteps",
        integer,
        line="total",
        gauge="steps_target",
        unit="steps",
        help="Optimizer steps that the job is to do",
        meaning="optimizer steps that the job is to do. Not in trackers",
    )
    epoch: int | None = _figure(
        "epoch",
        integer,
        gauge="epoch",
        unit="epochs",
        help="Current epoch",
        meaning="passes over the data that were done before this step's samples",
    )
    loss: float | None = _figure(
        "loss",
        number,
        gauge="loss",
        unit="",
        help="Loss of the last reported step",
        meaning="mean over all ranks and micro-batches of the step. null where it is not finite: then the job is "
        "`Degraded` (`NonFiniteLoss`)",
    )
    learning_rate: float | None = _figure(
        "learningRate",
        number,
        gauge="learning_rate",
        unit="",
        help="Learning rate of the last reported step",
        meaning="of this update",
    )
    seconds_per_step: float | None = _figure(
        "secondsPerStep",
        number,
        gauge="seconds_per_step",
        unit="s",
        help="Wall-clock seconds of one optimizer step",
        meaning="from the end of one step's report to the next one's, checkpoints within; evaluation and pictures count "
        "in none",
    )
    images_per_second: float | None = _figure(
        "imagesPerSecond",
        number,
        gauge="images_per_second",
        unit="1/s",
        help="Images per second over all GPUs",
        meaning="samples of the step (batch x ranks x accumulation) / `secondsPerStep`",
    )
    mfu: float | None = _figure(
        "mfu",
        number,
        gauge="mfu_ratio",
        unit="0 to 1",
        help="Model FLOPs utilization, 0 to 1",
        meaning="FLOPs of the model alone (nothing counted twice for recomputing) / (`secondsPerStep` x GPUs x their peak "
        "in dense bf16). null on CPUs and unknown GPUs",
    )
    data_wait_share: float | None = _figure(
        "dataWaitShare",
        number,
        gauge="data_wait_ratio",
        unit="0 to 1",
        help="Share of step time spent waiting for data, 0 to 1",
        meaning="`seconds.data` / `secondsPerStep`",
    )
    gradient_norm: float | None = _figure(
        "gradientNorm",
        number,
        gauge="gradient_norm",
        unit="",
        help="Global norm of the last update's gradients before clipping",
        meaning="global norm of the averaged gradients before clipping",
    )
    skipped_updates: int | None = _figure(
        "skippedUpdates",
        integer,
        gauge="skipped_updates",
        unit="updates",
        help="Updates of this attempt that were left out: gradients not finite",
        meaning="updates of this attempt that were left out, because a gradient was not finite on some rank",
    )
    memory_peak_bytes: int | None = _figure(
        "memoryPeakBytes",
        integer,
        gauge="memory_peak_bytes",
        unit="bytes",
        help="Most memory that the first rank's tensors took at once",
        meaning="most that tensors took on the GPU at once since the process began; on the CPU its resident memory",
    )
    slowest_rank_lag: float | None = _figure(
        "slowestRankLag",
        number,
        gauge="slowest_rank_lag_ratio",
        unit="0.1 = 10 %",
        help="How much longer the slowest rank's forward passes take than the others' median, 0.1 for 10 %",
        meaning="how much longer the slowest rank's forward passes take than the median of the others', over the last fifty "
        "steps, judged every ten. null for a rank alone, and until thirty steps are known. From 0.1 on, where most of these "
        "steps are slow, the job is `Degraded` (`SlowRank`)",
    )

    def to_fields(self) -> dict[str, float | None]:
        """As /status has them. Figures that version 1 began with are null where they are unknown, later ones absent."""
        told = {row.wire: finite(getattr(self, name)) for name, row in FIGURES.items()}
        return {name: value for name, value in told.items() if value is not None or name not in _LATER}

    def to_line(self) -> dict[str, float | None]:
        """As a step's line has them."""
        return {row.line: finite(getattr(self, name)) for name, row in FIGURES.items()}


_LATER = {"slowestRankLag"}
"""By their names in /status: writers of version 1 write to the byte what they wrote."""
FIGURES: dict[str, Figure] = {one.name: one.metadata[_ROW] for one in fields(Figures)}
"""The table, by the attributes of `Figures`."""


def parse_figures(raw: Mapping[str, Any]) -> Figures:
    """Read the figures of /status; None for what is absent or strange."""
    return Figures(**{name: row.read(raw.get(row.wire)) for name, row in FIGURES.items()})


def parse_line(raw: Mapping[str, Any]) -> Figures:
    """Read the figures of a step's line, in the same way."""
    return Figures(**{name: row.read(raw.get(row.line)) for name, row in FIGURES.items()})
