"""SimpleTuner's own examples: their options with values of a run of FLUX.1, where the example has a place to fill in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api import manifest
from oarlock_trainer.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Imported

CONFIG_ENV = """\
export MODEL_TYPE='lora'
export STABLE_DIFFUSION_3=false
export PIXART_SIGMA=false
export STABLE_DIFFUSION_LEGACY=false
export KOLORS=false
export FLUX=true
export FLUX_GUIDANCE_VALUE=1.0
export FLUX_LORA_TARGET=all # or mmdit
export HUNYUAN_DIT=false
export CONTROLNET=false
export USE_DORA=false
export RESUME_CHECKPOINT="latest"
export CHECKPOINTING_STEPS=150
export CHECKPOINTING_LIMIT=2
export LEARNING_RATE=8e-7 #@param {type:"number"}
export MODEL_NAME="black-forest-labs/FLUX.1-dev"
export DEBUG_EXTRA_ARGS="--report_to=wandb"
export TRACKER_PROJECT_NAME="${MODEL_TYPE}-training"
export TRACKER_RUN_NAME="boats"
export MAX_NUM_STEPS=30000
export NUM_EPOCHS=0
export DATALOADER_CONFIG="config/multidatabackend.json"
export OUTPUT_DIR="output/models"
export PUSH_TO_HUB="false"
export PUSH_CHECKPOINTS="true"
export HUB_MODEL_NAME=$TRACKER_PROJECT_NAME
export RESOLUTION=1024
export RESOLUTION_TYPE="pixel"
export MINIMUM_RESOLUTION=$RESOLUTION
export VALIDATION_PROMPT="a boat on a lake"
export VALIDATION_GUIDANCE=7.5
export VALIDATION_GUIDANCE_RESCALE=0.0
export VALIDATION_GUIDANCE_REAL=1.0
export VALIDATION_NO_CFG_UNTIL_TIMESTEP=2
export VALIDATION_STEPS=100
export VALIDATION_NUM_INFERENCE_STEPS=30
export VALIDATION_NEGATIVE_PROMPT="blurry, cropped"
export VALIDATION_SEED=42
export VALIDATION_RESOLUTION=$RESOLUTION
export TRAIN_BATCH_SIZE=10
export VAE_BATCH_SIZE=4
export LR_SCHEDULE="polynomial"
export LR_WARMUP_STEPS=1000
export CAPTION_DROPOUT_PROBABILITY=0.1
export METADATA_UPDATE_INTERVAL=65
export MAX_WORKERS=32
export READ_BATCH_SIZE=25
export WRITE_BATCH_SIZE=64
export IMAGE_PROCESSING_BATCH_SIZE=32
export AWS_MAX_POOL_CONNECTIONS=128
export TORCH_NUM_THREADS=8
export DELETE_ERRORED_IMAGES=0
export DELETE_SMALL_IMAGES=0
export TRAINING_SCHEDULER_TIMESTEP_SPACING="trailing"
export INFERENCE_SCHEDULER_TIMESTEP_SPACING="trailing"
export MIN_SNR_GAMMA=5
export USE_XFORMERS=false
export USE_GRADIENT_CHECKPOINTING=true
export ALLOW_TF32=true
export OPTIMIZER="adamw_bf16"
export USE_EMA=false
export EMA_DECAY=0.999
export TRAINER_EXTRA_ARGS=""
export TRAINING_SEED=42
export MIXED_PRECISION="bf16"                # a remark
export PURE_BF16=true
export TRAINING_NUM_PROCESSES=1
export TRAINING_NUM_MACHINES=1
export ACCELERATE_EXTRA_ARGS=""              # a remark
export TRAINING_DYNAMO_BACKEND='no'          # a remark
export TOKENIZERS_PARALLELISM=false
"""
CONFIG_JSON = {
    "--resume_from_checkpoint": "latest",
    "--data_backend_config": "config/multidatabackend.json",
    "--aspect_bucket_rounding": 2,
    "--seed": 42,
    "--minimum_image_size": 0,
    "--output_dir": "output/models",
    "--lora_type": "lycoris",
    "--lycoris_config": "config/lycoris_config.json",
    "--max_train_steps": 10000,
    "--num_train_epochs": 0,
    "--checkpointing_steps": 500,
    "--checkpoints_total_limit": 5,
    "--hub_model_id": "boats",
    "--push_to_hub": "true",
    "--push_checkpoints_to_hub": "true",
    "--tracker_project_name": "boats",
    "--tracker_run_name": "boats",
    "--report_to": "wandb",
    "--model_type": "lora",
    "--pretrained_model_name_or_path": "black-forest-labs/FLUX.1-dev",
    "--model_family": "flux",
    "--train_batch_size": 1,
    "--gradient_checkpointing": "true",
    "--caption_dropout_probability": 0.1,
    "--resolution_type": "pixel_area",
    "--resolution": 1024,
    "--validation_seed": 42,
    "--validation_steps": 500,
    "--validation_resolution": "1024x1024",
    "--validation_guidance": 3.0,
    "--validation_guidance_rescale": "0.0",
    "--validation_num_inference_steps": "20",
    "--validation_prompt": "a boat on a lake",
    "--mixed_precision": "bf16",
    "--optimizer": "adamw_bf16",
    "--learning_rate": "1e-4",
    "--lr_scheduler": "polynomial",
    "--lr_warmup_steps": 100,
    "--validation_torch_compile": "false",
    "--disable_benchmark": "false",
}
LYCORIS = {
    "algo": "lokr",
    "multiplier": 1.0,
    "full_matrix": True,
    "linear_alpha": 1,
    "factor": 16,
    "apply_preset": {
        "target_module": ["Attention", "FeedForward"],
        "module_algo_map": {"Attention": {"factor": 16}, "FeedForward": {"factor": 8}},
    },
}
DATALOADER: list[dict[str, Any]] = [
    {
        "id": "boats of all kinds",
        "type": "local",
        "instance_data_dir": "/data/boats",
        "crop": True,
        "crop_style": "center",
        "crop_aspect": "square",
        "resolution": 1024,
        "minimum_image_size": 768,
        "maximum_image_size": 2048,
        "minimum_aspect_ratio": 0.50,
        "maximum_aspect_ratio": 3.00,
        "target_downsample_size": 1024,
        "resolution_type": "pixel_area",
        "prepend_instance_prompt": False,
        "instance_prompt": "a boat",
        "only_instance_prompt": False,
        "caption_strategy": "textfile",
        "cache_dir_vae": "/data/vae",
        "repeats": 0,
    },
    {
        "id": "an entry for text embeds.",
        "dataset_type": "text_embeds",
        "default": True,
        "type": "aws",
        "aws_bucket_name": "text",
        "aws_region_name": None,
        "aws_endpoint_url": "https://s3.example.com/",
        "aws_access_key_id": "AKIA-OF-R2",
        "aws_secret_access_key": "SECRET-OF-R2",
        "aws_data_prefix": "",
        "cache_dir": "",
    },
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of examples that were filled in."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "config.json").write_text(json.dumps(CONFIG_JSON, indent=4))
    (config / "lycoris_config.json").write_text(json.dumps(LYCORIS, indent=4))
    (config / "multidatabackend.json").write_text(json.dumps(DATALOADER, indent=2))
    (config / "config.env").write_text(CONFIG_ENV)
    return config


@pytest.mark.parametrize("name", ["config.json", "config.env"])
def test_simpletuners_own_example_is_imported(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["import-simpletuner", str(place / name)])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert manifest.load(told.out)["spec"]["training"]["method"] == "LoRA"


def test_variables_of_config_env_are_put_into_later_ones(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import-simpletuner", str(place / "config.env")]) == 0
    training = manifest.load(capsys.readouterr().out)["spec"]["training"]
    assert training["tracking"][0]["project"] == "lora-training"
    assert training["validation"]["resolutions"] == ["1024x1024"]
    assert training["data"]["datasets"][0]["size"]["minimum"] == 768


def test_nothing_is_put_in_between_single_quotes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = CONFIG_ENV.replace('"${MODEL_TYPE}-training"', "'${MODEL_TYPE}-training'")
    (place / "config.env").write_text(text)
    assert main(["import-simpletuner", str(place / "config.env")]) == 85
    assert "tracker_project_name: takes its value from an environment that is not here" in capsys.readouterr().err


def test_an_older_switch_for_stable_diffusion_3_is_taken(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = CONFIG_ENV.replace("FLUX=true", "FLUX=false").replace("STABLE_DIFFUSION_3=false", "STABLE_DIFFUSION_3=true")
    (place / "config.env").write_text(text)
    main(["import-simpletuner", str(place / "config.env")])
    assert "model_family: sd3 -> training.model.family: StableDiffusion3" in capsys.readouterr().err


@pytest.mark.parametrize(("second", "named"), [("STABLE_DIFFUSION_3", "flux"), ("PIXART_SIGMA", "pixart_sigma")])
def test_two_families_are_refused(second: str, named: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "config.env").write_text(CONFIG_ENV.replace(f"{second}=false", f"{second}=true"))
    assert main(["import-simpletuner", str(place / "config.env")]) == 85
    assert f": {named}: a switch of older versions: remove it" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["PIXART_SIGMA", "KOLORS"])
def test_an_older_switch_of_another_family_is_refused(
    family: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "config.env").write_text(CONFIG_ENV.replace(f"{family}=false", f"{family}=true"))
    assert main(["import-simpletuner", str(place / "config.env")]) == 85
    assert f": {family.lower()}: a switch of older versions: remove it" in capsys.readouterr().err


def test_an_example_that_names_no_family_is_asked_for_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "config.env").write_text(CONFIG_ENV.replace("FLUX=true", "FLUX=false"))
    assert main(["import-simpletuner", str(place / "config.env")]) == 85
    assert "model_family: is missing: write flux (in config.env FLUX=true" in capsys.readouterr().err


def test_limits_of_aspects_are_those_of_the_job(imported: Callable[..., Imported], simple: dict[str, Any]) -> None:
    size = imported(simple, *DATALOADER).spec["training"]["data"]["datasets"][0]["size"]
    assert (size["minimumAspect"], size["maximumAspect"]) == (0.5, 3)


def test_checkpoints_that_would_be_pushed_are_told_as_a_difference(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    pushed = {"push_to_hub": True, "hub_model_id": "me/boats", "push_checkpoints_to_hub": True}
    job = imported(simple | pushed, folder)
    assert "the finished model alone is pushed" in job.differing["push_checkpoints_to_hub"]
    assert "push_to_hub is not set" in imported(simple | pushed | {"push_to_hub": False}, folder).ignored.values()
