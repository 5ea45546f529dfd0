"""A pod with webhooks: its place, the life that it has, and the fault that may end it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.job_file import JobFile
from oarlock_api.contract.report import Evidence, Gpu, Report
from oarlock_api.contract.sections import Webhook
from oarlock_api.contract.status import CheckpointStatus, PodPhase, PodStatus
from oarlock_local.patience import eventually
from oarlock_trainer.agent.webhooks.gpu_fault import GpuFault
from oarlock_trainer.agent.webhooks.webhooks import Webhooks
from oarlock_trainer.runtime.assignment import Assignment, Pod

if TYPE_CHECKING:
    from webhook_inbox import Inbox

AT = "2026-01-31T12:00:00.123Z"
GPU = Gpu(index=5, uuid="GPU-1", serial="1650", pci_bus_id="00000000:C1:00.0", name="NVIDIA H100")
FAULT = GpuFault(
    verdict=GpuVerdict.REPLACE_NODE,
    message="GPU 5 has fallen off the bus",
    gpu=GPU,
    xid=79,
    evidence=(Evidence(probe="xid", value=79, at=AT),),
)
LOST = Report(
    attempt=3,
    rank=0,
    pod_uid="p",
    failure_class="GPU",
    code=80,
    detected_at=AT,
    summary="GPU 5 is lost",
    gpu=GPU,
    xid=79,
)
FRESH = PodStatus(job_uid="uid-1", pod_uid="p", attempt=3, rank=0, phase=PodPhase.PREFLIGHT, heartbeat_at=AT)
SAVED = CheckpointStatus(step=20, path="/output/flux/checkpoints/step-20-a3", saved_at=AT)
LIFE = [
    FRESH,
    replace(FRESH, phase=PodPhase.STARTING),
    replace(FRESH, phase=PodPhase.TRAINING),
    replace(FRESH, phase=PodPhase.TRAINING, first_step_at=AT, figures=Figures(step=1, total_steps=20)),
    replace(FRESH, phase=PodPhase.SAVING, first_step_at=AT, figures=Figures(step=20, total_steps=20)),
    replace(FRESH, phase=PodPhase.SAVING, first_step_at=AT, figures=Figures(step=20, total_steps=20), checkpoint=SAVED),
    replace(FRESH, phase=PodPhase.DONE, first_step_at=AT, figures=Figures(step=20, total_steps=20), checkpoint=SAVED),
]


def assignment(*webhooks: Webhook, rank: int = 0) -> Assignment:
    job = JobFile(
        job="flux",
        namespace="research",
        job_uid="uid-1",
        attempt=3,
        nodes=2,
        gpus_per_node=8,
        output_directory="/output/flux",
        training={},
        webhooks=webhooks,
    )
    pod = Pod(rank=rank, job="flux", attempt=3, pod_uid="p", node=f"gpu-{rank}")
    return Assignment(pod=pod, job=job, master_address="m", master_port=1, simulate_gpus=False)


def telling(inbox: Inbox, *, rank: int = 0, environment: dict[str, str] | None = None, **fields: Any) -> Webhooks:
    """Webhooks of a pod with one receiver."""
    webhook = Webhook(name="test", url=f"{inbox.url}/hook", **fields)
    return Webhooks.of(assignment(webhook, rank=rank), environment or {})


def kinds(inbox: Inbox) -> list[str]:
    return [one.json["type"] for one in inbox.received]


def everything(inbox: Inbox, webhooks: Webhooks, count: int) -> list[dict[str, Any]]:
    """Payloads, once that many were told, in order."""
    eventually(lambda: webhooks.tallies["test"].sent >= count, f"{count} messages to arrive")
    return [one.json for one in inbox.received]
