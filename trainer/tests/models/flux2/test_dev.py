"""FLUX.2 Dev: what differs from Klein, against diffusers' own pipeline. The tokenizer stands in for the processor there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import Flux2Pipeline, Flux2Transformer2DModel  # noqa: E402 - before ours: a rank imports less of diffusers
from transformers import MistralConfig, MistralModel  # noqa: E402

from oarlock_trainer.models.flux2 import tiny  # noqa: E402
from oarlock_trainer.models.flux2.captions import CaptionEncoder  # noqa: E402
from oarlock_trainer.models.flux2.code import CODE  # noqa: E402
from oarlock_trainer.models.flux2.family import FLUX2  # noqa: E402
from oarlock_trainer.plan.parameters import whole  # noqa: E402
from oarlock_trainer.validation.decoding import PictureDecoder  # noqa: E402
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler  # noqa: E402

CPU = torch.device("cpu")
DEV = FLUX2.variants[ModelFlavor.DEV]
CAPTIONS = ["a cat", "the surface of the moon with craters and long shadows", "", "see [IMG] here", "very long " * 40]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dev")
    tiny.write(folder, dev=True)
    return folder


@pytest.fixture(scope="module")
def pipeline(model: Path) -> Any:
    found = Flux2Pipeline.from_pretrained(model, dtype=torch.float32)
    found.set_progress_bar_config(disable=True)
    return found


@pytest.mark.parametrize("streamed", [False, True])
def test_captions_are_encoded_as_the_pipeline_encodes_prompts(pipeline: Any, model: Path, *, streamed: bool) -> None:
    encoder = CaptionEncoder(model, ModelFlavor.DEV, CPU, streamed=streamed)
    texts, pooled, lengths = encoder.encode(CAPTIONS)
    with torch.inference_mode():
        expected, _ = pipeline.encode_prompt(CAPTIONS, max_sequence_length=tiny.TEXT_TOKENS)
    assert torch.equal(texts, expected.to(torch.bfloat16))
    assert pooled.shape == (len(CAPTIONS), 0)
    assert lengths == [tiny.TEXT_TOKENS] * len(CAPTIONS), "what is padded in front is not cut off behind"


def test_what_encoders_make_is_as_large_as_their_configurations_say(model: Path, tmp_path: Path) -> None:
    found = FLUX2.read_encoded(model, ModelFlavor.DEV)
    texts, pooled, _ = CaptionEncoder(model, ModelFlavor.DEV, CPU).encode(["a cat"])
    assert ((found.tokens, found.width), found.pooled) == (texts.shape[1:], pooled.shape[1])
    assert FLUX2.read_encoded(tmp_path, ModelFlavor.DEV) == DEV.encoded


def test_the_published_model_is_what_is_counted_without_a_configuration() -> None:
    with torch.device("meta"):
        transformer = Flux2Transformer2DModel()  # diffusers' defaults are Dev's
    assert DEV.published == FLUX2.architecture(transformer.config)
    assert whole(DEV.published).trained == sum(one.numel() for one in transformer.parameters())
    assert DEV.published.text_width == DEV.encoded.width
    assert DEV.published.has_guidance


def test_its_text_encoder_has_the_parameters_of_its_class_up_to_the_layer_that_is_asked() -> None:
    with torch.device("meta"):
        network = MistralModel(
            MistralConfig(
                vocab_size=131_072, hidden_size=5120, intermediate_size=32_768, num_hidden_layers=30,
                num_attention_heads=32, num_key_value_heads=8, head_dim=128,
            )
        )  # fmt: skip
    network.norm = torch.nn.Identity()
    matrices = [one.numel() for one in network.layers[0].parameters() if one.ndim == 2]
    assert DEV.texts.parameters == sum(one.numel() for one in network.parameters())
    assert (DEV.texts.layer_parameters, DEV.texts.layers) == (sum(matrices), 30)
    assert DEV.texts.largest == network.embed_tokens.weight.numel()


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_our_picture_is_that_of_the_pipeline_with_the_same_seed(pipeline: Any, model: Path, *, scale: float) -> None:
    theirs = pipeline(
        prompt="two cats", width=96, height=64, num_inference_steps=4, guidance_scale=scale,
        generator=torch.Generator().manual_seed(7), max_sequence_length=tiny.TEXT_TOKENS,
    ).images[0]  # fmt: skip
    with torch.no_grad():
        found, _ = pipeline.encode_prompt("two cats", max_sequence_length=tiny.TEXT_TOKENS)
    text = Text(sequence=found, pooled=found.new_zeros(1, 0))
    channels = FLUX2.architecture(pipeline.transformer.config).latent_channels
    latents = denoise(
        pipeline.transformer, draw_noise(7, FLUX2.grid, channels=channels, width=96, height=64), text, family=DEV,
        code=CODE, guidance=Guidance(told=scale, scale=1.0, negative=text), scheduler=read_scheduler(model, DEV),
        steps=4, go_on=lambda: None,
    )  # fmt: skip
    ours = PictureDecoder(model, DEV, CPU, code=CODE).decode(latents)[0]
    mine, other = (np.asarray(one, dtype=np.float32) for one in (ours, theirs))
    assert np.abs(mine - other).max() <= 1.0
    assert mine.std() > 10.0
