"""FLUX.1 (Dev, Schnell, Krea, Kontext, Fill, Canny, Depth) in numbers and names."""

from __future__ import annotations

from dataclasses import replace

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Autoencoder, ClassName, Family, Grid, Presets, Shift, TextStack
from oarlock_trainer.models.flux.architecture import architecture, shaped
from oarlock_trainer.models.flux.encoded import PUBLISHED, read_encoded
from oarlock_trainer.models.flux.flavors import FLAVORS

_ATTENTION = ("to_k", "to_q", "to_v", "add_k_proj", "add_q_proj", "add_v_proj", "to_out.0", "to_add_out")
_CONTEXT = ("add_k_proj", "add_q_proj", "add_v_proj", "to_add_out")
_CONTEXT_FEED_FORWARD = ("ff_context.net.0.proj", "ff_context.net.2")
_FEED_FORWARD = ("ff.net.0.proj", "ff.net.2", *_CONTEXT_FEED_FORWARD, "proj_mlp", "proj_out")

PRESETS = Presets(
    names={
        "all": _ATTENTION,
        "mmdit": ("to_k", "to_q", "to_v", "to_out.0"),
        "context": _CONTEXT,
        "context+ffs": (*_CONTEXT, *_CONTEXT_FEED_FORWARD),
        "all+ffs": (*_ATTENTION, *_FEED_FORWARD),
        "all+ffs+embedder": ("x_embedder", *_ATTENTION, *_FEED_FORWARD),
        "ai-toolkit": (*_ATTENTION, *_FEED_FORWARD, "norm.linear", "norm1.linear", "norm1_context.linear"),
        "tiny": ("single_transformer_blocks.7.proj_out", "single_transformer_blocks.20.proj_out"),
        "nano": ("single_transformer_blocks.7.proj_out",),
    },
    default="all+ffs",
)
"""Those of SimpleTuner's flux_lora_target. proj_out is that of every single block and the transformer's last one."""

TEXTS = TextStack(
    name="T5",
    parameters=4_762_310_656,
    layers=24,
    width=4096,
    heads=64,
    hidden=10_240,
    layer_parameters=4 * 4096**2 + 3 * 4096 * 10_240,  # gated feed-forward parts
    largest=32_128 * 4096,  # the vocabulary
    beside="CLIP",
    beside_parameters=123_060_480,
)
"""T5-XXL's encoder, through which a caption goes at its full length."""

VAE = Autoencoder(parameters=83_819_683, pixel_bytes=5 * 128 * 2)
"""Five tensors of 128 bfloat16 channels in the pictures' full size are alive at once in diffusers' AutoencoderKL."""

_WHOLE = Family(
    name="FLUX.1",
    slug="flux",
    flavors=FLAVORS,
    transformer=ClassName("diffusers.models.transformers.transformer_flux", "FluxTransformer2DModel"),
    autoencoder=ClassName("diffusers.models.autoencoders.autoencoder_kl", "AutoencoderKL"),
    scheduler=ClassName("diffusers.schedulers.scheduling_flow_match_euler_discrete", "FlowMatchEulerDiscreteScheduler"),
    text_encoders=("text_encoder", "text_encoder_2"),
    tokenizers=("tokenizer", "tokenizer_2"),
    text_classes=("CLIPTextModel", "CLIPTokenizer", "T5EncoderModel", "T5TokenizerFast"),
    grid=Grid(pixels=8, patch=2),
    shift=Shift(few_tokens=256, low=0.5, many_tokens=4096, high=1.15),
    blocks=("transformer_blocks", "single_transformer_blocks"),
    presets=PRESETS,
    published=shaped(),
    architecture=architecture,
    encoded=PUBLISHED,
    texts=TEXTS,
    vae=VAE,
    read_encoded=read_encoded,
)
_CONTROLLED = replace(_WHOLE, published=shaped(token_channels=128))
FLUX1 = replace(
    _WHOLE,
    variants={
        ModelFlavor.FILL: replace(_WHOLE, published=shaped(token_channels=384)),
        ModelFlavor.CANNY: _CONTROLLED,
        ModelFlavor.DEPTH: _CONTROLLED,
    },
)
