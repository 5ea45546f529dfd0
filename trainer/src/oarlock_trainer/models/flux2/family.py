"""FLUX.2 (Dev, and Klein of 4 and 9 billion parameters, distilled or not) in numbers and names."""

from __future__ import annotations

from dataclasses import replace

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Autoencoder, ClassName, Family, Grid, Presets
from oarlock_trainer.models.flux2 import encoded, texts
from oarlock_trainer.models.flux2.architecture import architecture, shaped
from oarlock_trainer.models.flux2.flavors import FLAVORS
from oarlock_trainer.models.flux2.language_models import MISTRAL, QWEN3
from oarlock_trainer.models.flux2.shift import TRAINED

_ATTENTION = (
    "attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj",
    "attn.to_add_out", "attn.to_qkv_mlp_proj", "attn.to_out",
)  # fmt: skip
_FEED_FORWARD = ("ff.linear_in", "ff.linear_out", "ff_context.linear_in", "ff_context.linear_out")

PRESETS = Presets(
    names={
        "all": (*_ATTENTION, *_FEED_FORWARD),
        "attention": _ATTENTION,
        "mlp": _FEED_FORWARD,
        "tiny": ("attn.to_q", "attn.to_k", "attn.to_v"),
    },
    default="all",
)
"""Those of SimpleTuner's flux_lora_target. A single block's two layers are attention and feed-forward in one."""

VAE = Autoencoder(parameters=84_046_115, pixel_bytes=5 * 128 * 2)
"""Five tensors of 128 bfloat16 channels in the pictures' full size are alive at once in diffusers' AutoencoderKLFlux2."""

_KLEIN_4B = Family(
    name="FLUX.2",
    slug="flux2",
    flavors=FLAVORS,
    transformer=ClassName("diffusers.models.transformers.transformer_flux2", "Flux2Transformer2DModel"),
    autoencoder=ClassName("diffusers.models.autoencoders.autoencoder_kl_flux2", "AutoencoderKLFlux2"),
    scheduler=ClassName("diffusers.schedulers.scheduling_flow_match_euler_discrete", "FlowMatchEulerDiscreteScheduler"),
    text_encoders=("text_encoder",),
    tokenizers=("tokenizer",),
    text_classes=(QWEN3.model, QWEN3.tokenizer),
    grid=Grid(pixels=16, patch=1, bucket=16),
    shift=TRAINED,
    blocks=("transformer_blocks", "single_transformer_blocks"),
    presets=PRESETS,
    published=shaped(double_blocks=5, single_blocks=20, heads=24, text_width=7680, has_guidance=False),
    architecture=architecture,
    encoded=encoded.KLEIN_4B,
    texts=texts.QWEN3_4B,
    vae=VAE,
    read_encoded=encoded.read_encoded,
    cache_mark="flux2",
)
_KLEIN_9B = replace(
    _KLEIN_4B,
    published=shaped(double_blocks=8, single_blocks=24, heads=32, text_width=12_288, has_guidance=False),
    encoded=encoded.KLEIN_9B,
    texts=texts.QWEN3_8B,
)
_DEV = replace(
    _KLEIN_4B,
    text_classes=(MISTRAL.model, MISTRAL.tokenizer),
    published=shaped(double_blocks=8, single_blocks=48, heads=48, text_width=15_360, has_guidance=True),
    encoded=encoded.DEV,
    texts=texts.MISTRAL_SMALL,
)
FLUX2 = replace(
    _KLEIN_4B,
    variants={ModelFlavor.KLEIN_9B: _KLEIN_9B, ModelFlavor.KLEIN_BASE_9B: _KLEIN_9B, ModelFlavor.DEV: _DEV},
)
