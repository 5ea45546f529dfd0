"""Whether a job trains on this machine's GPUs as in a pod: the agent, its preflight, its monitor, the ranks it forks.

    .venv/bin/python bench/gpu_trains.py [--result FILE] [--cpu]

A FLUX.1 with tiny random weights, 20 steps and a checkpoint, and then 20 more from it: on one GPU, where DeepSpeed has a
world of one, and then on all. `--cpu`: the same on two ranks over gloo, to try this program itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gpu_count
import gpu_results
from data_report import RESULTS
from PIL import Image

from oarlock_api.contract.job_file import JobFile
from oarlock_api.contract.sections import Ports

STEPS = 20


def main() -> int:
    """Train, and note what was seen after each run; 1 where one did not end well, or did other steps than its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, default=RESULTS / "gpu" / "gpu-trains.json")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    # As a node whose device plugin gives one, where the driver tells of none.
    gpus = 0 if options.cpu else max(gpu_count.gpus(), 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make_model(folder / "model")
        _draw_pictures(folder / "photos")
        found: dict[str, Any] = {}
        for count in sorted({min(gpus, 1), gpus}):
            title = f"{count} of {gpus} GPUs" if gpus else "no GPU: a rank on the CPU"
            for attempt in (1, 2):
                found[f"{title}, attempt {attempt}"] = _train(folder, count, attempt)
                gpu_results.write(options.result, found)
    print(json.dumps(found, indent=1))
    print("; ".join(f"{name}: {one['code']}, {one['steps']} steps, {one['said']}" for name, one in found.items()))
    return 0 if all(one["well"] for one in found.values()) else 1


def _make_model(folder: Path) -> None:
    command = [sys.executable, "-m", "oarlock_trainer", "make-tiny-flux", str(folder)]
    subprocess.run(command, check=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


def _draw_pictures(folder: Path) -> None:
    """Noise in colours, with captions."""
    folder.mkdir()
    for number in range(24):
        picture = Image.effect_noise((96, 96), sigma=40.0 + number)
        Image.merge("RGB", (picture, picture.transpose(Image.Transpose.ROTATE_90), picture)).save(
            folder / f"{number}.png"
        )
        (folder / f"{number}.txt").write_text(f"noise number {number}")


def _train(folder: Path, gpus: int, attempt: int) -> dict[str, Any]:
    """One attempt under an agent, as PID 1 of a pod would be: its exit code, its report, and what its steps told."""
    output = folder / f"output-{gpus}"
    job = JobFile(
        job="gpu-day",
        namespace="bench",
        job_uid=f"gpu-day-{gpus}",
        attempt=attempt,
        nodes=1,
        gpus_per_node=gpus,
        output_directory=str(output),
        training=_training(folder, STEPS * attempt),
        ports=Ports(rendezvous=0, status=0, link=0),
    )
    (folder / "job.json").write_text(job.to_json())
    environment = {
        **os.environ,
        "OARLOCK_JOB": "gpu-day",
        "OARLOCK_ATTEMPT": str(attempt),
        "OARLOCK_POD_UID": f"pod-{attempt}",
        "OARLOCK_NODE": "here",
        "OARLOCK_CONFIG": str(folder / "job.json"),
        "MACHINE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
    }
    report = folder / f"report-{gpus}-{attempt}"
    command = [sys.executable, "-m", "oarlock_trainer", "agent"]
    command += ["--run-directory", str(folder / f"run-{gpus}-{attempt}"), "--termination-log", str(report)]
    began = time.monotonic()
    code = subprocess.run(command, env=environment, check=False).returncode
    steps = _steps(output, attempt)
    return {
        "code": code,
        "well": code == 0 and steps["steps"] == STEPS and steps["first step"] == STEPS * (attempt - 1) + 1,
        "seconds": round(time.monotonic() - began, 1),
        "said": gpu_results.read(report).get("summary", "no report"),
        **steps,
    }


def _training(folder: Path, steps: int) -> dict[str, Any]:
    return {
        "model": {"family": "Flux1", "path": str(folder / "model")},
        "steps": steps,
        "batchSize": 2,
        "resolution": 64,
        "engine": {"strategy": "DeepSpeed"},
        "checkpoint": {"intervalSteps": STEPS},
        "optimizer": {"learningRate": 1e-3},
        "data": {
            "textEmbeds": {"path": str(folder / "text")},
            "imageEmbeds": {"path": str(folder / "latents")},
            "datasets": [{"name": "photos", "source": {"path": str(folder / "photos")}}],
        },
    }


def _steps(output: Path, attempt: int) -> dict[str, Any]:
    """From the job's own metrics: the attempt's steps, first and last loss, the most memory that a GPU held."""
    path = output / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    steps = [line for line in lines if "loss" in line and line["attempt"] == attempt]
    if not steps:
        return {"steps": 0, "first step": None}
    return {
        "steps": len(steps),
        "first step": steps[0]["step"],
        "loss": [steps[0]["loss"], steps[-1]["loss"]],
        "memory, GB": max(line.get("memoryPeakBytes") or 0 for line in steps) / 1e9,
    }


if __name__ == "__main__":
    sys.exit(main())
