"""Events as SimpleTuner posts them."""

from __future__ import annotations

from typing import Any

JSON = "application/json"
STATUS: dict[str, Any] = {
    "type": "training.status",
    "message_type": "training.status",
    "job_id": "job-1",
    "title": "Running",
    "timestamp": 1767225600,
    "data": {
        "status": "running",
        "final_epoch": 9,
        "global_step": 512,
        "total_num_steps": 1000,
        "global_resume_step": 500,
    },
    "progress": {
        "current": 512,
        "total": 1000,
        "metrics": {"loss": 0.25, "parent_loss": 0.5, "learning_rate": 1e-05, "epoch": 3},
    },
}


GPU_FAULT: dict[str, Any] = {
    "type": "gpu.fault",
    "severity": "critical",
    "job_id": None,
    "title": "GPU Fault: circuit_open",
    "message": "GPU 1: uncorrectable ECC errors rose by 12",
    "fault": {
        "type": "circuit_open",
        "gpu": {"index": 1, "name": "NVIDIA H100", "temperature_celsius": 61.0, "ecc_errors_double": 12},
        "action_taken": "circuit_opened",
    },
}


def stage(key: str, status: str) -> dict[str, Any]:
    return {"type": "lifecycle.stage", "severity": "info", "stage": {"key": key, "label": "A stage", "status": status}}
