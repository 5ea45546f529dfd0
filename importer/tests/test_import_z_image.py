"""Z-Image, from the options of SimpleTuner's own page for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported


@pytest.fixture
def given() -> dict[str, Any]:
    return {
        "model_family": "z_image",
        "model_type": "lora",
        "model_flavour": "turbo",
        "pretrained_model_name_or_path": "TONGYI-MAI/Z-Image-Turbo",
        "disable_assistant_lora": True,
        "data_backend_config": "config/multidatabackend.json",
        "output_dir": "output/z-image",
        "learning_rate": 1e-4,
        "lora_rank": 16,
        "lr_scheduler": "constant",
        "max_train_steps": 100,
        "num_train_epochs": 0,
        "mixed_precision": "bf16",
        "optimizer": "adamw_bf16",
        "gradient_checkpointing": True,
        "grad_clip_method": "value",
        "train_batch_size": 1,
        "flux_lora_target": "mmdit",
        "validation_prompt": "a boat",
        "validation_guidance": 1.0,
        "validation_num_inference_steps": 8,
        "validation_resolution": "1024x1024",
    }


def test_the_page_of_simpletuner_imports(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(given, folder)
    assert job.refused == {}
    training = job.spec["training"]
    assert training["model"] == {
        "family": "ZImage", "flavor": "Turbo", "hub": {"repo": "Tongyi-MAI/Z-Image-Turbo"},
    }  # fmt: skip
    assert training["lora"]["targets"] == ["to_k", "to_q", "to_v", "to_out.0"]
    assert training["activationCheckpointing"]["mode"] == "Full"
    assert training["validation"]["guidance"] == 0


@pytest.mark.parametrize(
    ("changed", "model"),
    [
        ({"model_flavour": "base"}, {"flavor": "Base", "hub": {"repo": "Tongyi-MAI/Z-Image"}}),
        ({}, {"flavor": "Turbo", "hub": {"repo": "Tongyi-MAI/Z-Image-Turbo"}}),
        ({"pretrained_model_name_or_path": "/models/Z-Image"}, {"flavor": "Base", "path": "/models/Z-Image"}),
    ],
)
def test_flavors_have_repositories_and_the_models_name_may_tell_one(
    imported: Callable[..., Imported],
    given: dict[str, Any],
    folder: dict[str, Any],
    changed: dict[str, Any],
    model: dict[str, Any],
) -> None:
    del given["model_flavour"], given["pretrained_model_name_or_path"]
    assert imported(given | changed, folder).spec["training"]["model"] == {"family": "ZImage"} | model


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"model_flavour": "schnell"}, "model_flavour"),
        ({"model_flavour": "ostris-de-turbo"}, "model_flavour"),
        ({"disable_assistant_lora": False}, "disable_assistant_lora"),
    ],
)
def test_what_is_not_trained_is_refused(
    imported: Callable[..., Imported],
    given: dict[str, Any],
    folder: dict[str, Any],
    changed: dict[str, Any],
    refused: str,
) -> None:
    assert list(imported(given | changed, folder).refused) == [refused]


def test_guidance_above_1_is_two_passes_with_the_negative_prompt(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any]
) -> None:
    pictures = {"validation_guidance": 4.0, "validation_negative_prompt": "ugly"}
    found = imported(given | pictures, folder).spec["training"]["validation"]
    assert (found["guidance"], found["negativePrompt"]) == (4, "ugly")
