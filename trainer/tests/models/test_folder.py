"""A model path that is wrong is told by what is there, before any library looks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oarlock_trainer.models import folder
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

FIELD = "training.model.path"


@pytest.fixture
def model(tiny_flux: Path, tmp_path: Path) -> Path:
    """A complete model, to be spoilt."""
    copy = tmp_path / "models" / "flux"
    shutil.copytree(tiny_flux, copy)
    return copy


def refusal(model: Path) -> str:
    with pytest.raises(ConfigurationError) as refused:
        folder.check(model, FLUX1, field=FIELD)
    return str(refused.value)


def test_a_complete_model_is_taken(model: Path) -> None:
    folder.check(model, FLUX1, field=FIELD)
    folder.check_transformer(model, FLUX1, field="training.initFrom.path")


def test_a_path_that_is_not_there_is_told_with_what_is(model: Path) -> None:
    assert refusal(model.parent / "flx") == (
        f"training.model.path: {model.parent}/flx is no folder here, {model.parent} holds flux: mount it with "
        "pod.volumes, or correct training.model.path"
    )


def test_a_folder_without_an_index_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "flux1-dev.safetensors").touch()
    said = refusal(tmp_path)
    assert f"{tmp_path} is no FLUX.1 model in the layout of diffusers: model_index.json is missing" in said
    assert "text_encoder_2" in said


def test_a_folder_beside_the_model_is_refused_with_the_one_that_may_be_meant(model: Path) -> None:
    assert refusal(model.parent).endswith(f"; {model} may be meant")
    assert refusal(model / "transformer").endswith(f"; {model} may be meant")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda model: shutil.rmtree(model / "text_encoder_2"), "text_encoder_2 is missing", id="part"),
        pytest.param(lambda model: shutil.rmtree(model / "tokenizer"), "tokenizer is missing", id="tokenizer"),
        pytest.param(
            lambda model: (
                (model / "tokenizer_2/tokenizer.json").unlink() or (model / "tokenizer_2/spiece.model").unlink()
            ),
            "tokenizer_2 has no vocabulary",
            id="vocabulary",
        ),
        pytest.param(lambda model: (model / "vae/config.json").unlink(), "vae/config.json is missing", id="config"),
        pytest.param(
            lambda model: (model / "text_encoder/model.safetensors").unlink(),
            "text_encoder has no weights (*.safetensors)",
            id="weights",
        ),
        pytest.param(
            lambda model: (model / "text_encoder_2/model.safetensors.index.json").write_text(
                json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}})
            ),
            "text_encoder_2/model-00001-of-00002.safetensors is missing",
            id="shard",
        ),
        pytest.param(
            lambda model: (model / "transformer/config.json").write_text('{"_class_name": "Flux2Transformer2DModel"}'),
            "transformer is of the class Flux2Transformer2DModel, FLUX.1's is FluxTransformer2DModel",
            id="another model",
        ),
    ],
)
def test_a_model_that_lacks_something_is_refused_with_what_it_lacks(
    spoil: Callable[[Path], object], said: str, model: Path
) -> None:
    spoil(model)
    assert f"{model} is no FLUX.1 model in the layout of diffusers: {said}. " in refusal(model)


def test_all_that_is_missing_is_told_at_once(model: Path) -> None:
    shutil.rmtree(model / "vae")
    shutil.rmtree(model / "tokenizer")
    assert "vae is missing, tokenizer is missing" in refusal(model)


def test_a_link_that_leads_out_of_the_mount_is_named_with_its_target(model: Path) -> None:
    (model / "vae/extra.json").symlink_to("../../../blobs/0123")
    said = refusal(model)
    assert f"{model}/vae/extra.json leads to {(model / '../../blobs/0123').resolve()}, which is not there" in said


def test_of_the_weights_to_start_from_only_the_transformer_counts(model: Path) -> None:
    shutil.rmtree(model / "vae")
    folder.check_transformer(model, FLUX1, field="training.initFrom.path")
    shutil.rmtree(model / "transformer")
    with pytest.raises(ConfigurationError, match=r"^training\.initFrom\.path: .* transformer is missing"):
        folder.check_transformer(model, FLUX1, field="training.initFrom.path")


def test_a_mount_that_fails_while_the_model_is_read_is_the_storages_fault() -> None:
    with pytest.raises(StorageError, match="Stale file handle"), folder.loading(Path("/models/flux")):
        raise OSError(116, "Stale file handle")
