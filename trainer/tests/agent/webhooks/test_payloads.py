"""Payloads are what the published schema says, and what SimpleTuner's receivers already read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webhook_schema import complaints

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.job_file import JobFile
from oarlock_api.contract.report import Evidence, Gpu, Report
from oarlock_api.contract.rounds import RoundEnd
from oarlock_api.contract.status import CheckpointStatus, PodPhase, PodStatus
from oarlock_api.contract.webhooks import WebhookLevel
from oarlock_trainer.agent.webhooks import events
from oarlock_trainer.agent.webhooks.envelope import Identity, WebhookEvent, identity_of
from oarlock_trainer.agent.webhooks.gpu_fault import GpuFault, fault_of, fault_type, gpu_fault
from oarlock_trainer.health.readings import Readings
from oarlock_trainer.runtime.assignment import Assignment, Pod

AT = "2026-01-31T12:00:00.123Z"
WHO = Identity(
    job_id="flux",
    job="flux",
    namespace="research",
    job_uid="uid-1",
    attempt=3,
    rank=1,
    node="gpu-7",
    pod="flux-3-1",
)
GPU = Gpu(index=5, uuid="GPU-1", serial="1650", pci_bus_id="00000000:C1:00.0", name="NVIDIA H100")
FAULT = GpuFault(
    verdict=GpuVerdict.REPLACE_NODE,
    message="GPU 5 (GPU-1) has fallen off the bus (XID 79)",
    gpu=GPU,
    xid=79,
    evidence=(Evidence(probe="xid", value=79, at=AT), Evidence(probe="recoveryAction", value="reset", at=AT)),
    readings=Readings(
        temperature_celsius=61.0,
        ecc_errors_single=1,
        ecc_errors_double=0,
        throttle_reasons=("hw_slowdown",),
        memory_used_percent=71.239,
    ),
)
STATUS = PodStatus(
    job_uid="uid-1",
    pod_uid="pod-1",
    attempt=3,
    rank=0,
    phase=PodPhase.TRAINING,
    heartbeat_at=AT,
    started_at=AT,
    first_step_at=AT,
    resumed_from_step=100,
    figures=Figures(
        step=150,
        total_steps=200,
        epoch=2,
        loss=0.25,
        learning_rate=1e-5,
        seconds_per_step=4.0,
        images_per_second=8.5,
        mfu=0.4,
        data_wait_share=0.01,
    ),
    checkpoint=CheckpointStatus(step=150, path="/output/flux/checkpoints/step-150-a3", saved_at=AT, stall_seconds=0.5),
    model_path="/output/flux/model",
)
ROUND = RoundEnd(number=1, ended_at=AT, rank=1, code=137, why="rank 3 was killed by SIGKILL")
EMPTY = PodStatus(job_uid="", pod_uid="", attempt=0, rank=0, phase=PodPhase.PREFLIGHT, heartbeat_at="")
ERROR = Report(
    attempt=3, rank=1, pod_uid="p", failure_class="Hang", code=83, detected_at=AT, summary="rank 5 hangs", step=150
)


def told(status: PodStatus) -> list[WebhookEvent]:
    """One event of each kind."""
    saved = events.checkpoint(WHO, AT, status=replace(status, checkpoint=STATUS.checkpoint))
    assert saved is not None
    return [
        *(
            events.stage(WHO, AT, status=replace(status, phase=phase), over=over, level=WebhookLevel.INFO, count=1)
            for phase in PodPhase
            for over in (False, True)
        ),
        *(
            events.training_status(
                WHO, AT, state=state, level=WebhookLevel.INFO, status=status, message="m", reason=why
            )
            for state, why in (
                ("started", ""),
                ("resumed", ""),
                ("completed", ""),
                ("failed", "GPU"),
                ("left", "Requested"),
            )
        ),
        events.restarted(WHO, AT, end=ROUND, status=status),
        events.trains_again(WHO, AT, end=replace(ROUND, resumed_step=140, down_seconds=2.6), status=status),
        events.restarted(
            WHO, AT, end=replace(ROUND, number=2, step=143, resumed_step=140, down_seconds=2.6), status=status
        ),
        saved,
        events.progress(WHO, AT, status=status),
        events.summary(WHO, AT, status=status, state="completed"),
        events.error(WHO, AT, report=ERROR),
        gpu_fault(WHO, AT, fault=FAULT, step=status.figures.step),
        gpu_fault(WHO, AT, fault=GpuFault(verdict=GpuVerdict.HOLD, message="hot"), step=status.figures.step),
    ]


@pytest.mark.parametrize("status", [STATUS, EMPTY], ids=["all is known", "nothing is known"])
def test_every_payload_is_what_the_published_schema_says(status: PodStatus) -> None:
    for event in told(status):
        assert complaints(json.loads(json.dumps(event.payload, allow_nan=False))) == [], event.type


def test_the_reader_of_the_schema_finds_what_is_wrong() -> None:
    good = gpu_fault(WHO, AT, fault=FAULT, step=1).payload
    for change in (
        {"type": "gpu.falut"},
        {"severity": "loud"},
        {"attempt": -1},
        {"attempt": True},
        {"step": "1"},
        {"more": 1},
        {"dedupe_id": "x"},
        {"fault": {**good["fault"], "more": 1}},
        {"fault": {**good["fault"], "gpu": {}}},
        {"fault": {**good["fault"], "evidence": [{"probe": 1, "value": 1, "at": AT}]}},
    ):
        assert complaints({**good, **change}), change
    assert complaints({key: value for key, value in good.items() if key != "node"}) == [".node: is missing"]


def test_a_gpu_fault_has_simpletuner_s_fields_where_its_receivers_look_for_them() -> None:
    payload = gpu_fault(WHO, AT, fault=FAULT, step=150).payload
    theirs = {key: payload[key] for key in ("type", "severity", "job_id", "title", "message", "timestamp")}
    assert theirs == {
        "type": "gpu.fault",
        "severity": "critical",
        "job_id": "flux",
        "title": "GPU fault on node gpu-7",
        "message": "GPU 5 (GPU-1) has fallen off the bus (XID 79)",
        "timestamp": AT,
    }
    fault = payload["fault"]
    assert (fault["type"], fault["action_taken"], fault["exception_type"]) == ("circuit_open", "circuit_opened", None)
    gpu = ("index", "name", "temperature_celsius", "ecc_errors_single", "ecc_errors_double", "throttle_reasons")
    assert [fault["gpu"][key] for key in gpu] == [5, "NVIDIA H100", 61.0, 1, 0, ["hw_slowdown"]]
    assert fault["gpu"]["memory_used_percent"] == 71.2


def test_a_gpu_fault_says_besides_where_it_is_and_why_it_is_one() -> None:
    payload = gpu_fault(WHO, AT, fault=FAULT, step=150).payload
    ours = {key: payload[key] for key in ("schema_version", "node", "pod", "rank", "attempt", "namespace", "step")}
    assert ours == {
        "schema_version": 1,
        "node": "gpu-7",
        "pod": "flux-3-1",
        "rank": 1,
        "attempt": 3,
        "namespace": "research",
        "step": 150,
    }
    fault = payload["fault"]
    assert [fault["gpu"][key] for key in ("uuid", "serial", "pci_bus_id")] == ["GPU-1", "1650", "00000000:C1:00.0"]
    assert (fault["xid"], fault["verdict"]) == (79, "ReplaceNode")
    assert fault["evidence"][1] == {"probe": "recoveryAction", "value": "reset", "at": AT}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"xid": 94, "verdict": GpuVerdict.RESTART_PROCESS}, "ecc_error"),
        ({"xid": None, "evidence": (Evidence(probe="rowRemap", value=1, at=AT),)}, "ecc_error"),
        ({"xid": 31, "verdict": GpuVerdict.RESTART_PROCESS}, "cuda_error"),
        ({"xid": None, "evidence": (), "exception_type": "AcceleratorError"}, "cuda_error"),
        ({"xid": None, "evidence": (Evidence(probe="thermalMargin", value=1, at=AT),)}, "thermal"),
        ({"xid": 79}, "circuit_open"),
        ({"xid": None, "evidence": (), "verdict": GpuVerdict.HOLD}, "health_warning"),
        ({"type": "health_check"}, "health_check"),
    ],
)
def test_the_kind_of_fault_is_one_of_simpletuner_s_words(changes: dict[str, Any], expected: str) -> None:
    assert fault_type(replace(FAULT, **changes)) == expected


@pytest.mark.parametrize(
    ("verdict", "severity", "action"),
    [
        (GpuVerdict.HOLD, "warning", "none"),
        (GpuVerdict.RESTART_PROCESS, "critical", "circuit_opened"),
        (GpuVerdict.REPLACE_NODE, "critical", "circuit_opened"),
    ],
)
def test_only_a_fault_that_ends_the_ranks_is_critical(verdict: GpuVerdict, severity: str, action: str) -> None:
    event = gpu_fault(WHO, AT, fault=replace(FAULT, verdict=verdict), step=None)
    assert (event.payload["severity"], event.payload["fault"]["action_taken"]) == (severity, action)
    assert event.level.lower() == severity


def test_a_report_that_blames_a_gpu_is_a_fault_and_another_is_none() -> None:
    gone = Report(
        attempt=3, rank=1, pod_uid="p", failure_class="GPU", code=80, detected_at=AT, summary="lost", gpu=GPU, xid=79
    )
    assert fault_of(gone) == GpuFault(verdict=GpuVerdict.REPLACE_NODE, message="lost", gpu=GPU, xid=79)
    restart = fault_of(replace(gone, code=81, gpu=None))
    assert restart is not None
    assert restart.verdict is GpuVerdict.RESTART_PROCESS
    unfit = fault_of(replace(gone, code=87, failure_class="Preflight"))
    assert unfit is not None
    assert fault_type(unfit) == "health_check"
    assert fault_of(replace(gone, code=87, failure_class="Preflight", gpu=None)) is None
    assert fault_of(ERROR) is None


def test_the_same_event_is_recognised_and_another_is_not_taken_for_it() -> None:
    def known_by(event: WebhookEvent) -> str:
        return event.payload["dedupe_id"]

    one = gpu_fault(WHO, AT, fault=FAULT, step=150)
    assert known_by(one) == known_by(gpu_fault(WHO, "2026-02-01T00:00:00Z", fault=FAULT, step=151))
    others = [
        gpu_fault(replace(WHO, attempt=4), AT, fault=FAULT, step=150),
        gpu_fault(replace(WHO, rank=2), AT, fault=FAULT, step=150),
        gpu_fault(WHO, AT, fault=replace(FAULT, gpu=replace(GPU, uuid="GPU-2")), step=150),
        gpu_fault(WHO, AT, fault=replace(FAULT, xid=95), step=150),
        *told(STATUS)[:-2],
        events.progress(WHO, AT, status=replace(STATUS, figures=replace(STATUS.figures, step=151))),
    ]
    ids = [known_by(event) for event in [one, *others]]
    assert len(set(ids)) == len(ids) - 2, "Done and Failed are over when they begin"


@given(value=st.floats() | st.text(), summary=st.text(), loss=st.floats())
def test_no_reading_and_no_text_makes_a_message_that_is_no_json(value: float | str, summary: str, loss: float) -> None:
    evidence = (Evidence(probe="p", value=value, at=AT),) * 20
    odd = replace(FAULT, message=summary, evidence=evidence, readings=Readings(temperature_celsius=loss))
    figures = replace(STATUS.figures, loss=loss, seconds_per_step=loss)
    for event in [gpu_fault(WHO, AT, fault=odd, step=1), *told(replace(STATUS, figures=figures))]:
        assert complaints(json.loads(json.dumps(event.payload, allow_nan=False))) == []


def test_a_pod_is_named_as_its_job_does_unless_an_orchestrator_named_the_run() -> None:
    file = JobFile(
        job="flux",
        namespace="research",
        job_uid="uid-1",
        attempt=3,
        nodes=2,
        gpus_per_node=8,
        output_directory="/output/flux",
        training={},
    )
    pod = Pod(rank=1, job="flux", attempt=3, pod_uid="p", node="gpu-7")
    place = Assignment(pod=pod, job=file, master_address="m", master_port=1, simulate_gpus=False)
    assert identity_of(place) == WHO
    assert identity_of(place, "run-17").job_id == "run-17"
