"""Jobs and reports for tests of decisions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from oarlock_api.contract.report import Evidence, Gpu, Report
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.model.observation import Job, Pod

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def spec(**changes: object) -> TrainingJobSpec:
    """A small job that is accepted."""
    raw: dict[str, object] = {
        "nodes": 2,
        "gpusPerNode": 2,
        "output": {"persistentVolumeClaim": {"claimName": "out"}},
        "training": {
            "model": {"family": "Flux1", "path": "/output/models/tiny"},
            "steps": 100,
            "data": {"datasets": [{"name": "photos", "source": {"path": "/output/photos"}}]},
        },
    }
    return TrainingJobSpec.model_validate({**raw, **changes})


def job(**changes: object) -> Job:
    """The job named flux."""
    fields: dict[str, object] = {
        "namespace": "default",
        "name": "flux",
        "uid": "uid-1",
        "generation": 1,
        "spec": spec(),
    }
    return Job(**{**fields, **changes})  # type: ignore[arg-type]


def report(pod: Pod, *, code: int, at: datetime, summary: str = "rank 1 raised ValueError") -> Report:
    """A report as the agent of `pod` would leave it."""
    return Report(
        attempt=pod.attempt,
        rank=pod.rank,
        pod_uid=pod.uid,
        failure_class="",
        code=code,
        detected_at=at.isoformat(),
        summary=summary,
    )


def gpu_report(pod: Pod, *, code: int, at: datetime, xid: int = 79, uuid: str = "GPU-5") -> Report:
    """A report with what the driver said of a GPU."""
    return replace(
        report(pod, code=code, at=at, summary=f"GPU 5 ({uuid}, serial 165) XID {xid}, fallen off the bus"),
        gpu=Gpu(index=5, uuid=uuid, serial="165"),
        xid=xid,
        evidence=(Evidence(probe="xid", value=float(xid), at=at.isoformat()),),
    )
