"""SimpleTuner's model_family decides what its words for flavours, layers and repositories mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported


@pytest.fixture
def flux2(simple: dict[str, Any]) -> dict[str, Any]:
    return simple | {
        "model_family": "flux2",
        "model_flavour": "klein-4b",
        "model_type": "lora",
        "pretrained_model_name_or_path": None,
    }


@pytest.mark.parametrize(
    ("fields", "model"),
    [
        ({}, {"flavor": "KleinBase4B", "hub": {"repo": "black-forest-labs/FLUX.2-klein-base-4B"}}),
        ({"model_flavour": "klein-9b"},
         {"flavor": "KleinBase9B", "hub": {"repo": "black-forest-labs/FLUX.2-klein-base-9B"}}),
        ({"model_flavour": None, "pretrained_model_name_or_path": "/models/flux.2-klein-9b"},
         {"flavor": "Klein9B", "path": "/models/flux.2-klein-9b"}),
        ({"pretrained_model_name_or_path": "owner/mine"}, {"flavor": "KleinBase4B", "hub": {"repo": "owner/mine"}}),
        ({"model_flavour": None, "pretrained_model_name_or_path": "owner/FLUX.2-dev"},
         {"flavor": "Dev", "hub": {"repo": "owner/FLUX.2-dev"}}),
        ({"model_flavour": None, "pretrained_model_name_or_path": "Black-Forest-Labs/flux.2-dev"},
         {"flavor": "Dev", "hub": {"repo": "black-forest-labs/FLUX.2-dev"}}),
    ],
)  # fmt: skip
def test_a_model_of_flux2_is_a_path_or_a_repository(
    fields: dict[str, Any],
    model: dict[str, Any],
    imported: Callable[..., Imported],
    flux2: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    assert imported(flux2 | fields, folder).spec["training"]["model"] == {"family": "Flux2"} | model


@pytest.mark.parametrize("flavour", [None, "klein-9b"])
def test_flux2_is_klein_9b_where_nothing_else_is_said_as_in_simpletuner(
    flavour: str | None, imported: Callable[..., Imported], flux2: dict[str, Any], folder: dict[str, Any]
) -> None:
    given = {name: value for name, value in flux2.items() if name != "model_flavour"} | (
        {"model_flavour": flavour} if flavour else {}
    )
    model = imported(given, folder).spec["training"]["model"]
    base = "black-forest-labs/FLUX.2-klein-base-9B"
    assert model == {"family": "Flux2", "flavor": "KleinBase9B", "hub": {"repo": base}}


@pytest.mark.parametrize("mode", ["constant", "random-range"])
def test_dev_is_told_a_guidance_of_1_whatever_is_said_and_klein_takes_two_passes(
    mode: str, imported: Callable[..., Imported], flux2: dict[str, Any], folder: dict[str, Any]
) -> None:
    given = flux2 | {
        "flux_guidance_mode": mode, "flux_guidance_value": 3.5, "validation_guidance": 1.0,
        "validation_prompt": "a boat", "validation_negative_prompt": "blurry", "validation_step_interval": 10,
    }  # fmt: skip
    dev = imported(given | {"model_flavour": "dev"}, folder).spec["training"]
    assert dev["objective"]["guidance"] == {"mode": "Constant", "value": 1}
    assert dev["validation"]["guidance"] == 1.0
    assert "negativePrompt" not in dev["validation"]
    klein = imported(given | {"model_flavour": "klein-9b"}, folder).spec["training"]
    assert "guidance" not in klein["objective"]
    assert (klein["validation"]["guidance"], klein["validation"]["negativePrompt"]) == (0, "blurry")


def test_references_are_for_all_of_flux2(
    imported: Callable[..., Imported], flux2: dict[str, Any], folder: dict[str, Any]
) -> None:
    before = {
        "id": "before", "type": "local", "dataset_type": "conditioning", "conditioning_type": "reference_strict",
        "instance_data_dir": "/data/before",
    }  # fmt: skip
    for flavour in ("dev", "klein-4b"):
        job = imported(flux2 | {"model_flavour": flavour}, folder | {"conditioning_data": "before"}, before)
        assert job.spec["training"]["data"]["datasets"][0]["conditioning"]["kind"] == "Reference"


@pytest.mark.parametrize("flavour", ["krea", "schnell"])
def test_a_flavour_that_the_family_does_not_have_here_is_refused(
    flavour: str | None, imported: Callable[..., Imported], flux2: dict[str, Any], folder: dict[str, Any]
) -> None:
    refused = imported(flux2 | {"model_flavour": flavour}, folder).refused
    assert refused["model_flavour"].endswith("of FLUX.2 is not here: use one of dev, klein-4b, klein-9b")


@pytest.mark.parametrize("said", [{}, {"flux_lora_target": "mlp"}, {"flux_lora_target": "mmdit"}])
def test_flux2_trains_five_kinds_of_layers_whatever_flux_lora_target_says(
    said: dict[str, str], imported: Callable[..., Imported], flux2: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(flux2 | said, folder)
    names = ["attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.to_qkv_mlp_proj"]
    assert job.spec["training"]["lora"]["targets"] == names
    assert all("SimpleTuner's own of FLUX.2" in job.ignored[key] for key in said)


@pytest.mark.parametrize("written", ["z_image", "z-image", "Z-Image"])
def test_a_family_is_known_by_simpletuners_name_and_by_that_of_its_page(
    written: str, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    given = simple | {"model_family": written, "model_flavour": "base", "pretrained_model_name_or_path": None}
    assert imported(given, folder).spec["training"]["model"]["flavor"] == "Base"


@pytest.mark.parametrize("family", ["sdxl", None])
def test_nothing_is_judged_under_another_family(
    family: str | None, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    odd = {"model_flavour": "base-1.0", "flux_lora_target": "odd", "revision": "main", "lora_rank": 4}
    job = imported(simple | odd | {"model_family": family, "model_type": "lora"}, folder)
    assert list(job.refused) == ["model_family"]
    assert "family is not here" in job.ignored["model_flavour"]


def test_the_share_of_recomputed_blocks_is_of_the_flavors_own_blocks(
    imported: Callable[..., Imported], flux2: dict[str, Any], folder: dict[str, Any]
) -> None:
    """Every third of 8 and of 24 blocks, and not of the 5 and 20 of the smaller one."""
    sparse = {
        "gradient_checkpointing": True,
        "gradient_checkpointing_interval": 1,
        "gradient_checkpointing_segment_stride": 3,
    }
    large = imported(flux2 | sparse | {"model_flavour": "klein-9b"}, folder)
    assert "11 of 32 blocks" in str(large.differing)
