"""LoRA on one node, from the options of SimpleTuner's own example for FLUX.1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported


@pytest.fixture
def lora() -> dict[str, Any]:
    return {
        "base_model_precision": "int8-quanto",
        "checkpoint_step_interval": 10,
        "controlnet": False,
        "data_backend_config": "config/multidatabackend.json",
        "disable_bucket_pruning": True,
        "flow_schedule_shift": 3,
        "fuse_qkv_projections": False,
        "grad_clip_method": "value",
        "gradient_checkpointing": True,
        "hub_model_id": "boats-lora",
        "learning_rate": 1e-4,
        "lora_alpha": 16,
        "lora_rank": 16,
        "lora_type": "standard",
        "lr_scheduler": "constant",
        "max_train_steps": 100,
        "mixed_precision": "bf16",
        "model_family": "flux",
        "model_type": "lora",
        "num_eval_images": 25,
        "num_train_epochs": 0,
        "optimizer": "adamw_bf16",
        "output_dir": "output/boats.lora",
        "push_checkpoints_to_hub": False,
        "push_to_hub": False,
        "quantize_via": "cpu",
        "report_to": "none",
        "seed": 7,
        "tracker_project_name": "lora-training",
        "train_batch_size": 1,
        "use_ema": False,
        "validation_disable_unconditional": True,
        "validation_guidance": 4.0,
        "validation_guidance_rescale": 0.0,
        "validation_negative_prompt": "ugly",
        "validation_num_inference_steps": 16,
        "validation_prompt": "a boat",
        "validation_prompt_library": False,
        "validation_resolution": "1024x1024,768",
        "validation_seed": 42,
        "validation_steps": 50,
    }


def test_the_example_of_simpletuner_imports(
    imported: Callable[..., Imported], lora: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(lora, folder)
    assert job.refused == {}
    assert job.job.metadata.name == "boats-lora"
    spec = job.spec
    assert (spec["nodes"], spec["gpusPerNode"]) == (1, 1)
    assert spec["output"]["directory"] == "boats.lora"
    training = spec["training"]
    assert training["model"] == {
        "family": "Flux1",
        "flavor": "Krea",
        "hub": {"repo": "black-forest-labs/FLUX.1-Krea-dev"},
    }
    assert training["method"] == "LoRA"
    assert training["lora"] == {
        "rank": 16,
        "alpha": 16,
        "dropout": 0.1,
        "targets": ["to_k", "to_q", "to_v", "add_k_proj", "add_q_proj", "add_v_proj", "to_out.0", "to_add_out"],
        "quantizeBase": "Int8",
    }
    assert training["engine"]["strategy"] == "DDP"
    assert training["optimizer"]["options"] == {"eps": 1e-6}
    assert training["optimizer"]["schedule"] == {"name": "Constant", "warmupSteps": 0}
    assert training["gradientClipping"] == {"method": "Value", "max": 2}
    assert training["validation"] == {
        "everySteps": 50,
        "prompts": [{"name": "validation", "prompt": "a boat"}],
        "guidance": 4,
        "inferenceSteps": 16,
        "resolutions": ["1024x1024", "768x768"],
        "seed": 42,
    }
    assert "tracking" not in training
    assert "publish" not in training


def test_alpha_is_the_rank_where_it_is_not_said(
    imported: Callable[..., Imported], lora: dict[str, Any], folder: dict[str, Any]
) -> None:
    del lora["lora_alpha"]
    assert imported(lora | {"lora_rank": 64}, folder).spec["training"]["lora"]["alpha"] == 64


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"lora_type": "lycoris"}, "lycoris_config"),
        ({"lora_type": "oft"}, "lora_type"),
        ({"base_model_precision": "int4-quanto"}, "base_model_precision"),
        ({"flux_lora_target": "controlnet"}, "flux_lora_target"),
        ({"init_lora": "owner/adapter"}, "init_lora"),
        ({"model_flavour": "schnell"}, "disable_assistant_lora"),
        ({"model_flavour": "fluxbooru"}, "model_flavour"),
        ({"model_type": "full"}, "base_model_precision"),
        ({"deepspeed_config": {"zero_stage": 1}}, "deepspeed_config"),
    ],
)
def test_what_a_lora_cannot_be_is_refused(
    changed: dict[str, Any],
    refused: str,
    imported: Callable[..., Imported],
    lora: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    job = imported(lora | changed, folder)
    assert list(job.refused) == [refused]
    assert job.text == ""


def test_an_adapter_begins_from_its_file(
    imported: Callable[..., Imported], lora: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(lora | {"init_lora": "/adapters/boats.safetensors"}, folder)
    assert job.spec["training"]["initFrom"] == {"path": "/adapters/boats.safetensors"}
    assert any("mount /adapters/boats.safetensors" in task for task in job.report.tasks)


def test_a_file_of_an_adapter_may_be_named_from_the_working_directory(
    imported: Callable[..., Imported], lora: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(lora | {"init_lora": "output/boats/pytorch_lora_weights.safetensors"}, folder)
    assert job.spec["training"]["initFrom"] == {"path": "/output/output/boats/pytorch_lora_weights.safetensors"}


def test_publishing_goes_by_a_secret(
    imported: Callable[..., Imported], lora: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(lora | {"push_to_hub": True}, folder)
    assert job.spec["training"]["publish"] == [
        {
            "name": "hub",
            "hub": {
                "repo": "boats-lora",
                "private": True,
                "tokenSecretRef": {"name": "boats-lora-hub", "key": "token"},
            },
        }
    ]
    (said,) = [one.words for one in job.report.entries if one.key == "model_card_private"]
    assert said == "absent, its default true -> training.publish.hub.private: true"
    (said,) = [one.words for one in job.report.entries if one.key == "hub_model_id"]
    assert said.endswith("without an owner: of the account that the token belongs to")


@pytest.mark.parametrize("private", [True, False])
def test_a_repository_is_as_private_as_is_said(
    *, private: bool, imported: Callable[..., Imported], lora: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(lora | {"push_to_hub": True, "model_card_private": private}, folder)
    assert job.spec["training"]["publish"][0]["hub"]["private"] is private


@pytest.mark.parametrize(
    ("written", "model"),
    [
        (None, {"flavor": "Krea", "hub": {"repo": "black-forest-labs/FLUX.1-Krea-dev"}}),
        ("black-forest-labs/flux.1-dev", {"flavor": "Dev", "hub": {"repo": "black-forest-labs/FLUX.1-dev"}}),
        ("owner/mine", {"flavor": "Krea", "hub": {"repo": "owner/mine"}}),
        ("/models/FLUX.1-dev", {"flavor": "Dev", "path": "/models/FLUX.1-dev"}),
        ("models/of/mine", {"flavor": "Krea", "path": "/output/models/of/mine"}),
    ],
)
def test_the_model_is_a_path_or_a_repository(
    written: str | None,
    model: dict[str, Any],
    imported: Callable[..., Imported],
    lora: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    job = imported(lora | {"pretrained_model_name_or_path": written}, folder)
    assert job.spec["training"]["model"] == {"family": "Flux1"} | model


def test_a_model_of_one_file_is_refused_with_the_command_that_makes_a_folder_of_it(
    imported: Callable[..., Imported], lora: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(lora | {"pretrained_model_name_or_path": "/models/my boats.safetensors"}, folder)
    assert job.refused["pretrained_model_name_or_path"].endswith(
        "oarlock-trainer import-single-file '/models/my boats.safetensors' --base FOLDER --output NEW, and name that"
    )


def test_a_flavor_that_only_the_models_name_tells_is_reported_with_the_default_that_it_replaces(
    imported: Callable[..., Imported], lora: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(lora | {"pretrained_model_name_or_path": "black-forest-labs/FLUX.1-dev"}, folder)
    (said,) = [one.words for one in job.report.entries if one.key == "model_flavour"]
    assert said == (
        "absent (SimpleTuner's default flavour is Krea) -> training.model.flavor: Dev, because "
        "pretrained_model_name_or_path names FLUX.1-dev"
    )
