"""/metrics: the status as Prometheus gauges, read from the status board at each scrape.

Two labels: the job and the node's rank. The job's is called `training_job`, because Prometheus keeps `job` for its own.
A value that is not known yet has no sample, so that no graph shows a made-up zero.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from oarlock_api.contract.status import PodPhase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_api.contract.status import PodStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GAUGES = (
    ("attempt", "Attempt of the job that this pod belongs to", lambda status: status.attempt),
    ("step", "Optimizer steps done, over all attempts", lambda status: status.step),
    ("steps_target", "Optimizer steps that the job is to do", lambda status: status.total_steps),
    ("epoch", "Current epoch", lambda status: status.epoch),
    ("loss", "Loss of the last reported step", lambda status: status.loss),
    ("learning_rate", "Learning rate of the last reported step", lambda status: status.learning_rate),
    ("seconds_per_step", "Wall-clock seconds of one optimizer step", lambda status: status.seconds_per_step),
    ("images_per_second", "Images per second over all GPUs", lambda status: status.images_per_second),
    ("mfu_ratio", "Model FLOPs utilization, 0 to 1", lambda status: status.mfu),
    ("data_wait_ratio", "Share of step time spent waiting for data, 0 to 1", lambda status: status.data_wait_share),
    ("resumed_from_step", "Step of the checkpoint that this attempt started from", lambda s: s.resumed_from_step),
    ("checkpoint_step", "Step of the newest valid checkpoint", lambda s: s.checkpoint and s.checkpoint.step),
    (
        "checkpoint_stall_seconds",
        "Training time that the newest checkpoint cost",
        lambda s: s.checkpoint and s.checkpoint.stall_seconds,
    ),
    ("start_timestamp_seconds", "When the agent started", lambda status: _seconds(status.started_at)),
    ("first_step_timestamp_seconds", "When this attempt's first step ended", lambda s: _seconds(s.first_step_at)),
    ("heartbeat_timestamp_seconds", "When the agent was last seen alive", lambda s: _seconds(s.heartbeat_at)),
)


class _StatusCollector(Collector):
    def __init__(self, job: str, status: PodStatus) -> None:
        self._labels = {"training_job": job, "rank": str(status.rank)}
        self._status = status

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, documentation, read in _GAUGES:
            family = GaugeMetricFamily(f"oarlock_trainer_{name}", documentation, labels=list(self._labels))
            if (value := read(self._status)) is not None:
                family.add_metric(list(self._labels.values()), value)
            yield family
        phase = GaugeMetricFamily(
            "oarlock_trainer_phase", "1 for the phase that the pod is in", labels=[*self._labels, "phase"]
        )
        for name in PodPhase:
            phase.add_metric([*self._labels.values(), name], float(name == self._status.phase))
        yield phase


def exposition(job: str, status: PodStatus) -> bytes:
    """Prometheus' text format of one status."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(job, status))
    return generate_latest(registry)


def _seconds(moment: str) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None
