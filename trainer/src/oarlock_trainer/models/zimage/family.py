"""Z-Image (Base, Turbo) in numbers and names."""

from __future__ import annotations

from oarlock_trainer.models.family import Autoencoder, ClassName, Family, Grid, Presets, Shift, TextStack
from oarlock_trainer.models.zimage.architecture import architecture, shaped
from oarlock_trainer.models.zimage.encoded import PUBLISHED, read_encoded
from oarlock_trainer.models.zimage.flavors import FLAVORS

_ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")
_FEED_FORWARD = ("feed_forward.w1", "feed_forward.w2", "feed_forward.w3")

PRESETS = Presets(names={"all": _ATTENTION, "all+ffs": (*_ATTENTION, *_FEED_FORWARD)}, default="all+ffs")

TEXTS = TextStack(
    name="Qwen3",
    parameters=4_022_468_096,
    layers=36,
    width=4096,
    heads=32,
    hidden=9728,
    layer_parameters=2560 * (2 * 4096 + 2 * 1024) + 3 * 2560 * 9728,
    largest=151_936 * 2560,  # the vocabulary
    beside="",
    beside_parameters=0,
)
"""Qwen3 4B without its last layer for words. The width is that of all heads' queries: its layers have 2560."""

VAE = Autoencoder(parameters=83_819_683, pixel_bytes=5 * 128 * 2)
"""FLUX.1's: five tensors of 128 bfloat16 channels in the pictures' full size are alive at once."""

Z_IMAGE = Family(
    name="Z-Image",
    slug="z-image",
    flavors=FLAVORS,
    transformer=ClassName("diffusers.models.transformers.transformer_z_image", "ZImageTransformer2DModel"),
    autoencoder=ClassName("diffusers.models.autoencoders.autoencoder_kl", "AutoencoderKL"),
    scheduler=ClassName("diffusers.schedulers.scheduling_flow_match_euler_discrete", "FlowMatchEulerDiscreteScheduler"),
    text_encoders=("text_encoder",),
    tokenizers=("tokenizer",),
    text_classes=("Qwen3Model", "Qwen2Tokenizer"),
    grid=Grid(pixels=8, patch=2),
    shift=Shift(few_tokens=256, low=0.5, many_tokens=4096, high=1.15),
    blocks=("noise_refiner", "context_refiner", "layers"),
    presets=PRESETS,
    published=shaped(),
    architecture=architecture,
    encoded=PUBLISHED,
    texts=TEXTS,
    vae=VAE,
    read_encoded=read_encoded,
    masks_text=True,
    unguided=0.0,
)
