"""/metrics: the status as Prometheus gauges, read from the status board at each scrape.

Two labels: the job and the node's rank. The job's is called `training_job`, because Prometheus keeps `job` for its own.
A value that is not known yet has no sample, so that no graph shows a made-up zero. The text is written here: a library for
it would have to be carried into every image that brings its own trainer.
"""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.figures import FIGURES
from oarlock_api.contract.health import HealthState
from oarlock_api.contract.status import Degradation, PodPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from oarlock_api.contract.status import PodStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

_GAUGES: tuple[tuple[str, str, Callable[[PodStatus], Any]], ...] = (
    ("attempt", "Attempt of the job that this pod belongs to", lambda status: status.attempt),
    *((row.gauge, row.help, attrgetter(f"figures.{name}")) for name, row in FIGURES.items()),
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


def exposition(job: str, status: PodStatus, *, reports: Mapping[str, int] | None = None) -> bytes:
    """Prometheus' text format (version 0.0.4) of one status, and of what became of a trainer's own webhooks."""
    labels = {"training_job": job, "rank": str(status.rank)}
    lines: list[str] = []
    for name, documentation, read in _GAUGES:
        value = read(status)
        lines += _family(name, documentation, [] if value is None else [(labels, value)])
    parts = [({**labels, "part": part}, seconds) for part, seconds in status.step_seconds.items()]
    lines += _family("step_part_seconds", "Seconds of the last step by what they were spent on", parts)
    phases = [({**labels, "phase": name}, name == status.phase) for name in PodPhase]
    lines += _family("phase", "1 for the phase that the pod is in", phases)
    degraded = [({**labels, "reason": kind}, kind in status.degraded) for kind in Degradation]
    lines += _family("degraded", "1 for what is not as it should be while training goes on", degraded)
    states = [({**labels, "state": state}, state == status.health.state) for state in HealthState]
    lines += _family("gpu_health", "1 for what is known of the pod's GPUs", states)
    probes = [({**labels, "probe": name}, known) for name, known in sorted(status.health.probes.items())]
    lines += _family("gpu_probe_supported", "1 where the driver and the container let us use a probe", probes)
    if reports:
        received = [({**labels, "reception": kind}, count) for kind, count in reports.items()]
        lines += _family(
            "reports_total", "Webhooks of the job's own trainer, by what became of them", received, "counter"
        )
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def _family(
    name: str, documentation: str, samples: Iterable[tuple[Mapping[str, str], float]], kind: str = "gauge"
) -> list[str]:
    full = f"oarlock_trainer_{name}"
    return [
        f"# HELP {full} {documentation}",
        f"# TYPE {full} {kind}",
        *(f"{full}{{{_labels(labels)}}} {float(value)!r}" for labels, value in samples),
    ]


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))


def _seconds(moment: str) -> float | None:
    # Python 3.10, which the bundle may run on, does not know the Z.
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp() if moment else None  # noqa: FURB162
