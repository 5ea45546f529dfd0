"""From SimpleTuner's files to a trained model, as a user goes: import, the Secret that its report asks for, plan, apply."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock_api import manifest
from tests.e2e.jobs import EXAMPLE, Jobs

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(400)]

SEED = Path(__file__).parents[2] / "importer/tests/seed"
"""Blocks of SimpleTuner's guide to several nodes, as they stand there."""
TRAINER = str(Path(sys.executable).parent / "oarlock-trainer")
STEPS, EVERY = 8, 4
CONFIG: dict[str, Any] = {
    "--model_family": "flux",
    "--model_flavour": "dev",
    "--model_type": "full",
    "--pretrained_model_name_or_path": "models/flux-tiny",
    "--resolution": 64,
    "--resolution_type": "pixel",
    "--train_batch_size": 1,
    "--learning_rate": 1e-3,
    "--max_train_steps": STEPS,
    "--num_train_epochs": 0,
    "--checkpointing_steps": EVERY,
    "--accelerate_config": "config/accelerate.yaml",
    "--data_backend_config": "config/multidatabackend.json",
}
DATASETS: list[dict[str, Any]] = [
    {"id": "photos", "instance_data_dir": "data/photos", "caption_strategy": "textfile", "cache_dir_vae": "cache/vae"},
    {"id": "text", "dataset_type": "text_embeds", "default": True, "cache_dir": "cache/text"},
]


def accelerate() -> str:
    """The guide's file, for two machines with two GPUs: DDP. That `plan` takes its other blocks, the importer tests."""
    base = (SEED / "default_config.yaml").read_text()
    return base.replace("num_machines: 4", "num_machines: 2").replace("num_processes: 32", "num_processes: 4")


def ours(*arguments: str) -> str:
    """What a command of ours says of itself; it has to succeed."""
    done = subprocess.run([TRAINER, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_the_guides_files_become_a_job_that_trains_to_its_end(jobs: Jobs, tmp_path: Path) -> None:
    name = "guide"
    config = jobs.output / "config"  # SimpleTuner's folder lies on the claim
    config.mkdir(exist_ok=True)
    shutil.copy(SEED / "webhooks.json", config)
    options = CONFIG | json.loads((SEED / "config.json").read_text()) | {"--output_dir": f"output/{name}"}
    (config / "config.json").write_text(json.dumps(options))
    (config / "multidatabackend.json").write_text(json.dumps(DATASETS))
    (config / "accelerate.yaml").write_text(accelerate())

    written = tmp_path / "job.yaml"
    report = ours("import-simpletuner", str(config / "config.json"), "-o", str(written)).splitlines()
    secrets = [line.strip() for line in report if line.startswith("  kubectl create secret")]
    assert secrets == [f"kubectl create secret generic {name}-webhooks --from-literal=webhook-1-url=..."]
    jobs.cluster.kubectl(*shlex.split(secrets[0].replace("...", "https://127.0.0.1:9/nobody"))[1:])
    ours(*shlex.split(report[-1].removeprefix("next: "))[1:])

    job = manifest.load(written.read_text())
    job["spec"]["pod"] |= manifest.load(EXAMPLE.read_text())["spec"]["pod"]  # what a cluster without GPUs needs
    jobs.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    status = jobs.wait_for_end(name)
    assert (status["phase"], status["attempt"]) == ("Succeeded", 1), status
    assert jobs.checkpoints(name) == {(step, 1) for step in range(EVERY, STEPS + 1, EVERY)}
    assert sorted(jobs.losses(name)) == [(1, step) for step in range(1, STEPS + 1)]
    model = jobs.output / status["output"]["relativePath"] / "model"
    assert (model / "transformer/diffusion_pytorch_model.safetensors").is_file()
