"""A trainer of somebody else's for test_custom.py: run by the image's Python, resumed from its own files, told by webhooks.

The first node trains: a step every tenth of a second, `checkpoint-N` every fifth, posted as SimpleTuner posts them. The
others only take part. The first attempt never ends by itself, later ones do.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from pathlib import Path

TOTAL, EVERY, LIMIT = 30, 5, 12
OUTPUT = Path(os.environ["OARLOCK_OUTPUT_DIR"])
RANK, ATTEMPT = os.environ["MACHINE_RANK"], os.environ["OARLOCK_ATTEMPT"]
FIRST_ATTEMPT = "1"


def post(event: dict[str, object]) -> None:
    request = urllib.request.Request(
        "http://127.0.0.1:9400/webhook", json.dumps(event).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=5):  # noqa: S310 - the URL is ours
        pass


def train() -> None:
    resumed = max((int(path.name.partition("-")[2]) for path in OUTPUT.glob("checkpoint-*")), default=0)
    for step in range(resumed + 1, TOTAL + 1):
        time.sleep(0.1)
        data = {"status": "running", "global_step": step, "global_resume_step": resumed}
        progress = {"current": step, "total": TOTAL, "metrics": {"loss": 1 / step, "learning_rate": 1e-5, "epoch": 1}}
        post({"type": "training.status", "data": data, "progress": progress})
        if step % EVERY == 0:
            (OUTPUT / f"checkpoint-{step}").mkdir()
            post({"type": "training.checkpoint", "checkpoint": {"path": str(OUTPUT / f"checkpoint-{step}")}})
        while ATTEMPT == FIRST_ATTEMPT and step == LIMIT:
            time.sleep(0.1)
    (OUTPUT / "done").touch()


def take_part() -> None:
    while not (OUTPUT / "done").exists():
        time.sleep(0.1)


if __name__ == "__main__":
    (OUTPUT / f"pid-{ATTEMPT}-{RANK}").write_text(str(os.getpid()))
    train() if RANK == "0" else take_part()
