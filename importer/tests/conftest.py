"""SimpleTuner configurations as people have them, and one call that imports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from oarlock_api import manifest
from oarlock_api.trainingjob import TrainingJob
from oarlock_import import write
from oarlock_import.importing import Inputs, build
from oarlock_import.read import Found
from oarlock_import.rows import Fate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oarlock_import.report import Report

# A machine that is busy draws slowly, and that is no failure of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

SECRETS = ("AKIA-OF-R2", "SECRET-OF-R2", "TOKEN-OF-HOOK", "AUTH-OF-HOOK", "DISCORD-OF-HOOK")


@dataclass(frozen=True, slots=True)
class Imported:
    """What came out."""

    report: Report
    text: str

    @property
    def job(self) -> TrainingJob:
        """The job, read from the manifest as kubectl would, and checked by the API's rules."""
        return TrainingJob.model_validate(manifest.load(self.text))

    @property
    def spec(self) -> dict[str, Any]:
        """The spec as it is written."""
        assert self.text, [str(entry) for entry in self.report.entries if entry.fate is Fate.REFUSED]
        found: dict[str, Any] = manifest.load(self.text)["spec"]
        return found

    @property
    def refused(self) -> dict[str, str]:
        """Option -> reason."""
        return {entry.key: entry.words for entry in self.report.entries if entry.fate is Fate.REFUSED}

    @property
    def ignored(self) -> dict[str, str]:
        """Option -> reason."""
        return {entry.key: entry.words for entry in self.report.entries if entry.fate is Fate.IGNORED}

    @property
    def differing(self) -> dict[str, str]:
        """Option -> how the job differs, though it is mapped."""
        return {entry.key: entry.differs for entry in self.report.entries if entry.differs}


@pytest.fixture(autouse=True)
def no_default_file_of_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where accelerate looks in these tests, and finds nothing."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return tmp_path / "hub/accelerate/default_config.yaml"


@pytest.fixture
def secrets() -> tuple[str, ...]:
    """Every value that may appear nowhere."""
    return SECRETS


@pytest.fixture
def simple() -> dict[str, Any]:
    """The least that SimpleTuner takes for a full-rank run."""
    return {
        "model_family": "flux",
        "model_flavour": "dev",
        "model_type": "full",
        "pretrained_model_name_or_path": "/output/models/FLUX.1-dev",
        "output_dir": "/output/boats",
        "optimizer": "torch-adamw",
        "max_train_steps": 1000,
        "num_train_epochs": 0,
        "data_backend_config": "config/multidatabackend.json",
    }


@pytest.fixture
def folder() -> dict[str, Any]:
    """One data set of local pictures."""
    return {"id": "boats", "type": "local", "instance_data_dir": "/output/data/boats", "caption_strategy": "textfile"}


@pytest.fixture
def full_rank(simple: dict[str, Any]) -> dict[str, Any]:
    """Full-rank training with the dashes that config.json may have."""
    return {f"--{key}": value for key, value in simple.items()} | {
        "--train_batch_size": 8,
        "--learning_rate": 1e-5,
        "--lr_scheduler": "polynomial",
        "--lr_warmup_steps": 100,
        "--optimizer": "adamw_bf16",
        "--seed": 42,
        "--mixed_precision": "bf16",
        "--gradient_checkpointing": "true",
        "--checkpointing_steps": 250,
        "--allow_dataset_oversubscription": True,
        "--report_to": "wandb",
        "--tracker_project_name": "boats",
        "--tracker_run_name": "first",
    }


@pytest.fixture
def accelerate() -> dict[str, Any]:
    """Four machines with eight GPUs, DeepSpeed ZeRO-1 and a compiled model."""
    return {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {
            "deepspeed_multinode_launcher": "standard",
            "gradient_accumulation_steps": 2,
            "gradient_clipping": 0.01,
            "zero3_init_flag": False,
            "zero_stage": 1,
        },
        "dynamo_config": {"dynamo_backend": "INDUCTOR", "dynamo_mode": "max-autotune"},
        "machine_rank": 0,
        "main_process_ip": "10.0.0.1",
        "main_process_port": 8080,
        "mixed_precision": "bf16",
        "num_machines": 4,
        "num_processes": 32,
        "rdzv_backend": "static",
        "same_network": False,
        "use_cpu": False,
    }


@pytest.fixture
def r2() -> list[dict[str, Any]]:
    """Pictures, table, latents and text embeddings in R2, all with the same credentials."""
    service = {
        "type": "aws",
        "aws_endpoint_url": "https://account.r2.cloudflarestorage.com",
        "aws_region_name": None,
        "aws_access_key_id": SECRETS[0],
        "aws_secret_access_key": SECRETS[1],
    }
    return [
        service
        | {
            "id": "Boats 2024",
            "aws_bucket_name": "boats",
            "aws_data_prefix": "train/",
            "metadata_backend": "parquet",
            "caption_strategy": "parquet",
            "parquet": {
                "path": "boats.parquet",
                "filename_column": "file",
                "caption_column": ["long", "short"],
                "fallback_caption_column": "tags",
                "width_column": "w",
                "height_column": "h",
                "identifier_includes_extension": True,
            },
            "crop": True,
            "crop_aspect": "square",
            "crop_style": "center",
            "resolution": 1024,
            "resolution_type": "pixel_area",
            "minimum_image_size": 512,
            "image_embeds": "latents",
            "cache_dir_vae": "vae/boats",
            "repeats": 2,
            "preserve_data_backend_cache": True,
        },
        service | {"id": "latents", "dataset_type": "image_embeds", "aws_bucket_name": "latents"},
        service
        | {
            "id": "text",
            "dataset_type": "text_embeds",
            "default": True,
            "aws_bucket_name": "text",
            "cache_dir": "t5/",
            "caption_filter_list": ["^an image of "],
        },
    ]


@pytest.fixture
def hooks() -> list[dict[str, Any]]:
    """An orchestrator and a chat."""
    return [
        {
            "webhook_type": "raw",
            "callback_url": f"https://orchestrator.example.com/hook?token={SECRETS[2]}",
            "auth_token": SECRETS[3],
            "log_level": "warning",
        },
        {"webhook_type": "discord", "webhook_url": f"https://discord.com/api/webhooks/1/{SECRETS[4]}"},
    ]


@pytest.fixture
def imported() -> Callable[..., Imported]:
    """Import options and data sets, with accelerate's file and webhooks if they are given."""

    def call(
        options: dict[str, Any],
        *datasets: dict[str, Any],
        accelerate: dict[str, Any] | None = None,
        webhooks: Any = None,
        files: dict[str, str] | None = None,
    ) -> Imported:
        def find(named: str) -> str:
            if named not in (files or {}):
                raise FileNotFoundError(f"{named} is not found")
            return (files or {})[named]

        inputs = Inputs(
            options=Found("config.json", {key.lstrip("-"): value for key, value in options.items()}),
            datasets=Found("multidatabackend.json", list(datasets)),
            accelerate=Found("accelerate.yaml", accelerate) if accelerate else None,
            webhooks=Found("webhooks.json", webhooks) if webhooks else None,
            find=find,
        )
        job, report = build(inputs)
        return Imported(report, write.manifest(job) if job else "")

    return call
