"""Stable Diffusion 3.5 (Large, Medium) in numbers and names."""

from __future__ import annotations

from dataclasses import replace

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Autoencoder, ClassName, Family, Grid, Presets, TextStack
from oarlock_trainer.models.sd3.architecture import LARGE, MEDIUM, architecture
from oarlock_trainer.models.sd3.encoded import PUBLISHED, read_encoded
from oarlock_trainer.models.sd3.flavors import FLAVORS

_IMAGE = ("to_k", "to_q", "to_v", "to_out.0")
_CONTEXT = ("add_k_proj", "add_q_proj", "add_v_proj", "to_add_out")
_CONTEXT_FEED_FORWARD = ("ff_context.net.0.proj", "ff_context.net.2")

PRESETS = Presets(
    names={
        "all": (*_IMAGE, *_CONTEXT),
        "mmdit": _IMAGE,
        "context": _CONTEXT,
        "context+ffs": (*_CONTEXT, *_CONTEXT_FEED_FORWARD),
        "all+ffs": (*_IMAGE, *_CONTEXT, "ff.net.0.proj", "ff.net.2", *_CONTEXT_FEED_FORWARD),
    },
    default="all+ffs",
)
"""mmdit is what SimpleTuner takes for this family: attention of the image's tokens, both of them where a block has two."""

TEXTS = TextStack(
    name="T5",
    parameters=4_762_310_656,
    layers=24,
    width=4096,
    heads=64,
    hidden=10_240,
    layer_parameters=4 * 4096**2 + 3 * 4096 * 10_240,  # gated feed-forward parts
    largest=32_128 * 4096,  # the vocabulary
    beside="both CLIPs",
    beside_parameters=123_650_304 + 694_659_840,
)
"""T5-XXL's encoder, through which a caption goes at its full length."""

_LARGE = Family(
    name="Stable Diffusion 3.5",
    slug="sd3",
    flavors=FLAVORS,
    transformer=ClassName("diffusers.models.transformers.transformer_sd3", "SD3Transformer2DModel"),
    autoencoder=ClassName("diffusers.models.autoencoders.autoencoder_kl", "AutoencoderKL"),
    scheduler=ClassName("diffusers.schedulers.scheduling_flow_match_euler_discrete", "FlowMatchEulerDiscreteScheduler"),
    text_encoders=("text_encoder", "text_encoder_2", "text_encoder_3"),
    tokenizers=("tokenizer", "tokenizer_2", "tokenizer_3"),
    text_classes=("CLIPTextModelWithProjection", "CLIPTokenizer", "T5EncoderModel", "T5TokenizerFast"),
    grid=Grid(pixels=8, patch=2),
    shift=3.0,
    blocks=("transformer_blocks",),
    presets=PRESETS,
    published=LARGE,
    architecture=architecture,
    encoded=PUBLISHED,
    texts=TEXTS,
    vae=Autoencoder(parameters=83_819_683, pixel_bytes=5 * 128 * 2),
    read_encoded=read_encoded,
)
STABLE_DIFFUSION_3 = replace(_LARGE, variants={ModelFlavor.MEDIUM: replace(_LARGE, published=MEDIUM)})
