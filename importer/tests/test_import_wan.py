"""Wan 2.1, from the options of SimpleTuner's own page for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported


@pytest.fixture
def given() -> dict[str, Any]:
    return {
        "model_family": "wan",
        "model_type": "lora",
        "lora_type": "standard",
        "lora_rank": 16,
        "pretrained_model_name_or_path": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
        "data_backend_config": "config/multidatabackend.json",
        "output_dir": "output/models-wan",
        "train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-4,
        "max_train_steps": 1000,
        "num_train_epochs": 0,
        "mixed_precision": "bf16",
        "optimizer": "adamw_bf16",
        "gradient_checkpointing": True,
        "base_model_precision": "int8-quanto",
        "flow_schedule_shift": 3,
        "flux_attention_masked_training": True,
        "framerate": 15,
        "validation_prompt": "a boat",
        "validation_negative_prompt": "blurred",
        "validation_guidance": 5.0,
        "validation_num_inference_steps": 40,
        "validation_num_video_frames": 49,
        "validation_resolution": "832x480",
    }


def test_the_page_of_simpletuner_imports(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any]
) -> None:
    """Adapters stand beside both attentions, and nothing is masked."""
    job = imported(given, folder)
    assert job.refused == {}
    training = job.spec["training"]
    assert training["model"] == {
        "family": "Wan", "flavor": "T2V-1.3B", "hub": {"repo": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"},
    }  # fmt: skip
    assert training["lora"]["targets"] == ["to_k", "to_q", "to_v", "to_out.0"]
    assert training["objective"]["timestepShift"] == 3
    assert "attentionMask" not in training["objective"]
    drawn = training["validation"]
    assert (drawn["frames"], drawn["guidance"], drawn["negativePrompt"]) == (49, 5, "blurred")
    assert drawn["resolutions"] == ["832x480"]


@pytest.mark.parametrize(("said", "frames"), [(None, 81), (1, 1), (16, 17), (200, 81)])
def test_a_video_has_as_many_frames_as_simpletuners_pipeline_makes_of_the_option(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any], said: int | None, frames: int
) -> None:
    job = imported(given | {"validation_num_video_frames": said}, folder)
    assert job.spec["training"]["validation"]["frames"] == frames


def test_another_family_draws_pictures_whatever_is_said_of_frames(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | {"validation_prompt": "a boat", "validation_num_video_frames": 49}, folder)
    assert job.refused == {}
    assert "frames" not in job.spec["training"]["validation"]


@pytest.mark.parametrize(
    ("fields", "model"),
    [
        ({"pretrained_model_name_or_path": None},
         {"flavor": "T2V-1.3B", "hub": {"repo": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"}}),
        ({"pretrained_model_name_or_path": None, "model_flavour": "t2v-480p-14b-2.1"},
         {"flavor": "T2V-14B", "hub": {"repo": "Wan-AI/Wan2.1-T2V-14B-Diffusers"}}),
        ({"pretrained_model_name_or_path": "/models/Wan2.1-T2V-14B-Diffusers"},
         {"flavor": "T2V-14B", "path": "/models/Wan2.1-T2V-14B-Diffusers"}),
    ],
)  # fmt: skip
def test_the_flavour_or_the_models_name_tells_its_size(
    imported: Callable[..., Imported],
    given: dict[str, Any],
    folder: dict[str, Any],
    fields: dict[str, Any],
    model: dict[str, Any],
) -> None:
    assert imported(given | fields, folder).spec["training"]["model"] == {"family": "Wan"} | model


@pytest.mark.parametrize(
    ("flavour", "why"),
    [
        ("i2v-14b-2.1", "is not here, as it is given a first frame: use one of"),
        ("i2v-14b-2.2-high", "as it is given a first frame"),
        ("flf2v-14b-2.1", "as it is given a first and a last frame"),
        ("vace-14b-2.1", "as it is given other videos"),
        ("ti2v-5b-2.2", "as Wan 2.2 has another VAE"),
        ("dev", "dev of Wan is not here: use one of t2v-480p-1.3b-2.1, t2v-480p-14b-2.1"),
    ],
)
def test_a_flavour_that_is_not_here_is_refused_with_the_reason(
    imported: Callable[..., Imported], given: dict[str, Any], folder: dict[str, Any], flavour: str, why: str
) -> None:
    refused = imported(given | {"model_flavour": flavour}, folder).refused
    assert why in refused["model_flavour"]
