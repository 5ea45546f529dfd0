"""A stand-in for SimpleTuner: it trains nothing, and posts what SimpleTuner posts, as `requests` would.

    python standin.py FUNCTION

STATUS_PORT says where its node's agent listens, MACHINE_RANK which node it is: only the first one posts, as SimpleTuner's
main process does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.parse
import urllib.request
from itertools import count

from own_program import leave, wait_for

from oarlock_local import patience

TOTAL = 40
FAULT = {
    "type": "gpu.fault",
    "severity": "critical",
    "job_id": None,
    "title": "GPU Fault: circuit_open",
    "message": "the circuit is open after a health check",
    "fault": {"type": "circuit_open", "gpu": {"index": 1, "name": "H100"}, "action_taken": "circuit_opened"},
}


def post(body: bytes, content_type: str) -> None:
    url = f"http://127.0.0.1:{os.environ['STATUS_PORT']}/webhook"
    request = urllib.request.Request(url, body, {"Content-Type": content_type})
    with urllib.request.urlopen(request, timeout=5):  # noqa: S310 - the URL is ours
        pass


def raw(event: dict[str, object]) -> None:
    post(json.dumps({**event, "message_type": event["type"], "timestamp": 1767225600}).encode(), "application/json")


def discord(event: dict[str, object]) -> None:
    content = {"content": f"`(run)` {event}"}
    post(urllib.parse.urlencode(content).encode(), "application/x-www-form-urlencoded")


def status(step: int, *, resumed: int = 0) -> None:
    raw(
        {
            "type": "training.status",
            "job_id": "job-1",
            "data": {"status": "running", "global_step": step, "total_num_steps": TOTAL, "global_resume_step": resumed},
            "progress": {"current": step, "total": TOTAL, "metrics": {"loss": 0.5, "learning_rate": 1e-05, "epoch": 1}},
        }
    )


def stage(key: str, state: str) -> None:
    raw({"type": "lifecycle.stage", "job_id": "job-1", "stage": {"key": key, "label": key, "status": state}})


def begins() -> None:
    stage("init_load_base_model", "running")
    raw({"type": "telemetry.of.tomorrow"})
    status(0)


def reports_steps() -> int:
    begins()
    for step in range(1, 8):
        status(step)
    stage("checkpoint_save", "running")
    raw(
        {
            "type": "training.checkpoint",
            "checkpoint": {"path": "/output/flux/checkpoint-5", "label": "x", "is_final": False},
        }
    )
    stage("checkpoint_save", "completed")
    leave("running", os.getpid())
    wait_for("finish")
    return 0


def stops_reporting() -> int:
    reports = 3 if os.environ["MACHINE_RANK"] == "0" else 0
    for step in range(1, reports + 1):
        status(step)
    leave("running", os.getpid())
    wait_for("finish")
    return 0


def blames_a_gpu(send: object = raw) -> int:
    """And raises, a moment after it has told."""
    for step in count(1):
        status(step)
        if step == 1:
            leave("running", os.getpid())
        if step == 3:
            break
    wait_for("fail")
    discord(FAULT) if send is discord else raw(FAULT)
    leave("blamed")
    wait_for("raise")
    raise RuntimeError("GPU health check failed: circuit open")


def blames_a_gpu_by_discord() -> int:
    return blames_a_gpu(discord)


def warns_of_a_gpu() -> int:
    status(1)
    raw({**FAULT, "severity": "warning"})
    leave("running", os.getpid())
    wait_for("finish")
    return 0


if __name__ == "__main__":
    signal.alarm(int(patience.SECONDS))
    sys.exit(globals()[sys.argv[1]]())
