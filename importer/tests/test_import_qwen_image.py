"""Qwen-Image, from the options of SimpleTuner's own page for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported


@pytest.fixture
def given() -> dict[str, Any]:
    return {
        "model_family": "qwen_image",
        "model_type": "lora",
        "model_flavour": "v1.0",
        "lora_type": "standard",
        "lora_rank": 8,
        "lora_alpha": 8,
        "data_backend_config": "config/multidatabackend.json",
        "output_dir": "output/models-qwen_image",
        "train_batch_size": 1,
        "gradient_accumulation_steps": 4,
        "learning_rate": 1e-4,
        "lr_scheduler": "constant",
        "max_train_steps": 1000,
        "num_train_epochs": 0,
        "mixed_precision": "bf16",
        "optimizer": "adamw_bf16",
        "gradient_checkpointing": True,
        "base_model_precision": "int8-quanto",
        "quantize_via": "cpu",
        "flow_schedule_shift": 1.73,
        "flux_lora_target": "all+ffs",
        "validation_prompt": "a boat",
        "validation_guidance": 4.0,
        "validation_num_inference_steps": 30,
        "validation_resolution": "1024x1024",
    }


def test_the_page_of_simpletuner_imports(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any]
) -> None:
    """Adapters stand beside attention of the image's tokens, whatever is said of FLUX.1's."""
    job = imported(given, folder)
    assert job.refused == {}
    training = job.spec["training"]
    assert training["model"] == {"family": "QwenImage", "flavor": "V1", "hub": {"repo": "Qwen/Qwen-Image"}}
    assert training["lora"]["targets"] == ["to_k", "to_q", "to_v", "to_out.0"]
    assert training["lora"]["quantizeBase"] == "Int8"
    assert training["validation"]["guidance"] == 4
    assert training["objective"]["timestepShift"] == 1.73


@pytest.mark.parametrize(
    ("name", "model"),
    [
        (None, {"flavor": "V2512", "hub": {"repo": "Qwen/Qwen-Image-2512"}}),
        ("Qwen/Qwen-Image-2512", {"flavor": "V2512", "hub": {"repo": "Qwen/Qwen-Image-2512"}}),
        ("/models/Qwen-Image", {"flavor": "V1", "path": "/models/Qwen-Image"}),
    ],
)
def test_the_models_name_may_tell_the_flavor(
    imported: Callable[..., Imported],
    given: dict[str, Any],
    folder: dict[str, Any],
    name: str | None,
    model: dict[str, Any],
) -> None:
    del given["model_flavour"]
    found = imported(given | {"pretrained_model_name_or_path": name}, folder)
    assert found.spec["training"]["model"] == {"family": "QwenImage"} | model


def test_v2_0_is_the_model_of_december_2025(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any]
) -> None:
    found = imported(given | {"model_flavour": "v2.0"}, folder).spec["training"]["model"]
    assert found == {"family": "QwenImage", "flavor": "V2512", "hub": {"repo": "Qwen/Qwen-Image-2512"}}


def edits(folder: dict[str, Any]) -> list[dict[str, Any]]:
    """Entries of the page for edit-v1."""
    return [
        folder | {"conditioning_data": ["before"], "conditioning_image_embeds": "seen"},
        {
            "id": "before", "type": "local", "dataset_type": "conditioning", "conditioning_type": "reference_strict",
            "instance_data_dir": "data/before", "resolution": 1024, "cache_dir_vae": "cache/vae/before",
        },
        {
            "id": "seen", "type": "local", "dataset_type": "conditioning_image_embeds",
            "cache_dir": "cache/conditioning_image_embeds/before",
        },
    ]  # fmt: skip


def test_the_page_for_edit_imports_without_its_pictures(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any]
) -> None:
    edit = given | {"model_flavour": "edit-v1", "caption_dropout_probability": 0.0}
    assert list(imported(edit, *edits(folder)).refused) == ["validation_prompt"]
    del edit["validation_prompt"]
    job = imported(edit, *edits(folder))
    assert job.refused == {}
    training = job.spec["training"]
    assert training["model"] == {"family": "QwenImage", "flavor": "Edit", "hub": {"repo": "Qwen/Qwen-Image-Edit"}}
    (own,) = training["data"]["datasets"]
    assert own["conditioning"] == {"source": {"path": "/output/data/before"}, "kind": "Reference"}
    assert "validation" not in training


def test_captions_of_edit_are_cached(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any]
) -> None:
    edit = given | {"model_flavour": "edit-v1", "validation_prompt": None, "text_cache_disable": True}
    assert list(imported(edit, *edits(folder)).refused) == ["text_cache_disable"]


def test_edit_without_references_is_refused(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any]
) -> None:
    found = imported(given | {"model_flavour": "edit-v1", "validation_prompt": None}, folder)
    assert list(found.refused) == ["conditioning_data"]


@pytest.mark.parametrize("flavour", ["edit-v2", "dev"])
def test_what_edits_several_pictures_is_refused(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any], flavour: str
) -> None:
    assert list(imported(given | {"model_flavour": flavour}, folder).refused) == ["model_flavour"]
