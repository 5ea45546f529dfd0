"""Golden files of every released contract version: what a writer writes, and what every later reader must still read.

A golden file never changes after its release: a change of the wire format is a new version with files of its own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.health import CircuitState, Health, HealthState
from oarlock_api.contract.job_file import JOB_FILE_VERSION, JobFile, parse_job_file
from oarlock_api.contract.layout import Owner, parse_owner
from oarlock_api.contract.report import REPORT_VERSION, Evidence, Gpu, Report, parse_report
from oarlock_api.contract.sections import Custom, Ports, Preflight, Recovery, SecretKeyRef, Webhook
from oarlock_api.contract.status import (
    STATUS_VERSION,
    CheckpointStatus,
    CheckResult,
    Degradation,
    PlanStatus,
    PodPhase,
    PodStatus,
    PreflightCheck,
    parse_status,
)
from oarlock_api.contract.webhooks import WebhookLevel, WebhookType

GOLDEN = Path(__file__).parents[1] / "golden"
JOB_UID = "0b6f9a52-6c6c-4ad8-9a3c-0f6e4b7a1c11"
POD_UID = "9d1c7a04-52a7-4b0e-8f5d-3f2f7f0a9e22"

# Every field is set, so that none can be lost unseen.
REPORT = Report(
    attempt=3,
    rank=1,
    pod_uid=POD_UID,
    failure_class="GPU",
    code=80,
    detected_at="2026-01-01T12:00:00.250+00:00",
    summary="XID 79 on GPU 5: the GPU has fallen off the bus: größter Fehler",
    step=1200,
    checkpoint_step=1000,
    gpu=Gpu(index=5, uuid="GPU-11111111-2222", serial="1650123", pci_bus_id="00000000:C1:00.0", name="NVIDIA H100"),
    xid=79,
    evidence=(
        Evidence(probe="xid", value=79.0, at="2026-01-01T12:00:00.200+00:00"),
        Evidence(probe="recoveryAction", value="reset", at="2026-01-01T12:00:00.240+00:00"),
    ),
    first_error_rank=5,
)
STATUS = PodStatus(
    job_uid=JOB_UID,
    pod_uid=POD_UID,
    attempt=3,
    rank=0,
    phase=PodPhase.TRAINING,
    heartbeat_at="2026-01-01T12:00:10+00:00",
    started_at="2026-01-01T11:00:00+00:00",
    first_step_at="2026-01-01T11:00:08+00:00",
    resumed_from_step=1000,
    figures=Figures(
        step=1200,
        total_steps=10000,
        epoch=2,
        loss=0.4375,
        learning_rate=1e-05,
        seconds_per_step=1.5,
        images_per_second=21.25,
        mfu=0.38,
        data_wait_share=0.01,
        gradient_norm=0.25,
        skipped_updates=1,
        memory_peak_bytes=68719476736,
    ),
    step_seconds={"data": 0.015, "forward": 0.375, "backward": 0.75, "optimizer": 0.125},
    plan=PlanStatus(effective_batch=32, zero_stage=1, memory_bytes=68719476736),
    checkpoint=CheckpointStatus(
        step=1000,
        path="/output/flux/checkpoints/step-1000-a3",
        saved_at="2026-01-01T11:50:00+00:00",
        stall_seconds=0.75,
    ),
    degraded={Degradation.CHECKPOINT_STORAGE_FULL: "no room for the checkpoint of step 1200"},
    model_path="/output/flux/model",
    message="validation has begun",
    hang_after_seconds=60.0,
    preflight=(
        PreflightCheck("storage", CheckResult.PASSED, 12, "/output/flux (nfs4 10.0.0.100:/exports) is writable"),
        PreflightCheck("collective", CheckResult.RUNNING),
    ),
    health=Health(
        state=HealthState.FAULTY,
        gpus=(Gpu(index=5, uuid="GPU-11111111-2222", serial="1650123", pci_bus_id="00000000:C1:00.0", name="H100"),),
        probes={"xid": True, "sram": False},
        circuit=CircuitState.OPEN,
        reason="GPU 5 (GPU-11111111-2222) has fallen off the bus (XID 79)",
        gpu=Gpu(index=5, uuid="GPU-11111111-2222"),
        since="2026-01-01T12:00:00.200+00:00",
    ),
)
JOB = JobFile(
    job="flux",
    namespace="research",
    job_uid=JOB_UID,
    attempt=3,
    nodes=4,
    gpus_per_node=8,
    output_directory="/output/flux",
    training={"model": {"family": "Flux1", "path": "/output/models/flux"}, "steps": 10000, "seed": 42},
    min_free_bytes=214748364800,
    previous_owner_is_gone=True,
    ports=Ports(status=19400, link=19401),
    preflight=Preflight(storage=False, min_bus_bandwidth=40, timeout_seconds=120),
    recovery=Recovery(hang_seconds=90),
    webhooks=(
        Webhook(
            name="orchestrator",
            url="https://orchestrator.example.com/faults",
            auth_secret_ref=SecretKeyRef(name="hooks", key="token"),
            signature_secret_ref=SecretKeyRef(name="hooks", key="signing-key"),
            events=("gpu.fault", "training.status"),
            min_level=WebhookLevel.WARNING,
        ),
        Webhook(
            name="chat",
            type=WebhookType.DISCORD,
            url_secret_ref=SecretKeyRef(name="chat", key="url"),
            message_prefix="[größer]",
        ),
    ),
)
CUSTOM_JOB = replace(
    JOB,
    training={},
    custom=Custom(
        command=("accelerate", "launch", "--config_file", "/run/oarlock/accelerate.yaml", "train.py"),
        args=("--prompt", "größer"),
        working_dir="/output/flux",
    ),
)
OWNER = Owner(job_uid=JOB_UID, attempt=3)

CASES = [
    pytest.param(REPORT, parse_report, "v1/report.json", id="report"),
    pytest.param(STATUS, parse_status, "v1/status.json", id="status"),
    pytest.param(JOB, parse_job_file, "v2/job.json", id="job file"),
    pytest.param(CUSTOM_JOB, parse_job_file, "v2/job-custom.json", id="job file of a custom trainer"),
    pytest.param(OWNER, parse_owner, "v1/owner", id="owner"),
]


@pytest.mark.parametrize(("value", "_parse", "file"), CASES)
def test_a_writer_writes_what_its_version_s_golden_file_says_to_the_byte(value, _parse, file) -> None:  # noqa: ANN001
    assert value.to_json() + "\n" == (GOLDEN / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(("value", "parse", "file"), CASES)
def test_a_reader_reads_every_field_of_a_released_version(value, parse, file) -> None:  # noqa: ANN001
    assert parse((GOLDEN / file).read_text(encoding="utf-8")) == value


def test_the_golden_files_are_those_of_the_current_versions() -> None:
    assert (REPORT_VERSION, STATUS_VERSION, JOB_FILE_VERSION) == (1, 1, 2), (
        "a new version needs golden files of its own"
    )
    assert sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.glob("*/*")) == [
        "v1/owner",
        "v1/report.json",
        "v1/status.json",
        "v2/job-custom.json",
        "v2/job.json",
    ]
