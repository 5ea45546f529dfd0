"""Plans of FLUX.1 for nodes of H100s, by a job's fields, and what other cards are called."""

from __future__ import annotations

from typing import Any

from oarlock_api.training import Training
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.planner import Plan, plan_for

FLUX = FLUX1.published
H100 = "NVIDIA H100 80GB HBM3"
H100_BYTES = 85_520_809_984
H200 = "NVIDIA H200"
H200_BYTES = 150_754_820_096
COMPILED = {"compile": {"mode": "Default"}}


def training(**fields: Any) -> Training:
    body: dict[str, Any] = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 10,
        "batchSize": 8,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }
    return Training.model_validate(body | fields)


def on_h100(*, nodes: int = 4, gpus: int = 8, **fields: Any) -> Plan:
    return plan_for(
        training(**fields), FLUX, world_size=nodes * gpus, local_world_size=gpus, gpu_memory_bytes=H100_BYTES,
        gpu_name=H100,
    )  # fmt: skip
