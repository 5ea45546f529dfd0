"""Stable Diffusion 3.5: SimpleTuner's model_family sd3, whose words and defaults are others than FLUX.1's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported


@pytest.fixture
def sd3(simple: dict[str, Any]) -> dict[str, Any]:
    without = {key: value for key, value in simple.items() if not key.startswith(("pretrained", "model_flav", "flux"))}
    return without | {"model_family": "sd3", "model_type": "lora", "lora_rank": 16}


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ({}, {"flavor": "Medium", "hub": {"repo": "stabilityai/stable-diffusion-3.5-medium"}}),
        ({"model_flavour": "large"}, {"flavor": "Large", "hub": {"repo": "stabilityai/stable-diffusion-3.5-large"}}),
        (
            {"pretrained_model_name_or_path": "stabilityai/stable-diffusion-3.5-large"},
            {"flavor": "Large", "hub": {"repo": "stabilityai/stable-diffusion-3.5-large"}},
        ),
        (
            {"pretrained_model_name_or_path": "/models/mine", "model_flavour": "medium"},
            {"flavor": "Medium", "path": "/models/mine"},
        ),
    ],
)
def test_the_model_and_its_variant_are_those_that_simpletuner_takes(
    given: dict[str, Any],
    model: dict[str, Any],
    imported: Callable[..., Imported],
    sd3: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    job = imported(sd3 | given, folder)
    assert job.refused == {}
    assert job.spec["training"]["model"] == {"family": "StableDiffusion3"} | model


def test_adapters_stand_where_simpletuner_puts_them_and_options_of_flux_change_nothing(
    imported: Callable[..., Imported], sd3: dict[str, Any], folder: dict[str, Any]
) -> None:
    flux = {"flux_lora_target": "all+ffs", "flux_guidance_value": 4.0, "flux_attention_masked_training": True}
    job = imported(sd3 | flux, folder)
    training = job.spec["training"]
    assert set(training["lora"]["targets"]) == {"to_k", "to_q", "to_v", "to_out.0"}
    assert not training["objective"].get("attentionMask")
    assert training["objective"].get("guidance", {}).get("value", 1.0) == 1.0
    assert flux.keys() <= {one.key for one in job.report.entries if one.fate == "ignored"}
    assert any("154 of T5's tokens" in one.differs for one in job.report.entries)


def test_pictures_are_guided_by_the_negative_prompt_as_there(
    imported: Callable[..., Imported], sd3: dict[str, Any], folder: dict[str, Any]
) -> None:
    pictures = {"validation_prompt": "a boat", "validation_guidance": 4.5, "validation_negative_prompt": "ugly"}
    validation = imported(sd3 | pictures, folder).spec["training"]["validation"]
    assert (validation["guidance"], validation["negativePrompt"]) == (4.5, "ugly")


@pytest.mark.parametrize(
    ("given", "named"),
    [({"model_flavour": "dev"}, "model_flavour"), ({"sd3_t5_uncond_behaviour": "zero"}, "sd3_t5_uncond")],
)
def test_what_a_job_of_this_family_does_not_do_is_refused(
    given: dict[str, Any], named: str, imported: Callable[..., Imported], sd3: dict[str, Any], folder: dict[str, Any]
) -> None:
    assert any(key.startswith(named) for key in imported(sd3 | given, folder).refused)


def test_of_mediums_one_list_of_24_blocks_every_fourth_one_is_a_quarter(
    imported: Callable[..., Imported], sd3: dict[str, Any], folder: dict[str, Any]
) -> None:
    some = {
        "gradient_checkpointing": True, "gradient_checkpointing_interval": 1,
        "gradient_checkpointing_segment_stride": 4,
    }  # fmt: skip
    found = imported(sd3 | some, folder).spec["training"].get("activationCheckpointing")
    assert found == {"mode": "Partial", "percent": 25}
