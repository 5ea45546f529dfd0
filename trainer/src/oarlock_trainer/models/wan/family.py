"""Wan 2.1 (T2V of 1.3 and of 14 billion parameters) in numbers and names."""

from __future__ import annotations

from dataclasses import replace

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Autoencoder, ClassName, Family, Grid, Presets
from oarlock_trainer.models.wan.architecture import architecture, shaped
from oarlock_trainer.models.wan.encoded import PUBLISHED, read_encoded
from oarlock_trainer.models.wan.flavors import FLAVORS
from oarlock_trainer.models.wan.texts import TEXTS

_ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")
_FEED_FORWARD = ("ffn.net.0.proj", "ffn.net.2")

PRESETS = Presets(names={"all": _ATTENTION, "all+ffs": (*_ATTENTION, *_FEED_FORWARD)}, default="all+ffs")
"""all is what SimpleTuner takes for this family: self-attention and cross-attention."""

VAE = Autoencoder(parameters=126_892_531, pixel_bytes=1942, video=4)
"""Counted of the encoder (tests/models/wan/test_wan_plan.py), which takes four frames of a video at a time."""

_SMALL = Family(
    name="Wan",
    slug="wan",
    flavors=FLAVORS,
    transformer=ClassName("diffusers.models.transformers.transformer_wan", "WanTransformer3DModel"),
    autoencoder=ClassName("diffusers.models.autoencoders.autoencoder_kl_wan", "AutoencoderKLWan"),
    scheduler=ClassName("diffusers.schedulers.scheduling_unipc_multistep", "UniPCMultistepScheduler"),
    text_encoders=("text_encoder",),
    tokenizers=("tokenizer",),
    text_classes=("UMT5EncoderModel", "T5TokenizerFast"),
    grid=Grid(pixels=8, patch=2, frames=4, bucket=32),
    shift=3.0,
    blocks=("blocks",),
    presets=PRESETS,
    published=shaped(),
    architecture=architecture,
    encoded=PUBLISHED,
    texts=TEXTS,
    vae=VAE,
    read_encoded=read_encoded,
    foreign={
        "transformer_2": "Wan 2.2 of two transformers, each for its own noise levels",
        "expand_timesteps": "Wan 2.2 of 5 billion parameters, whose frames have noise levels of their own",
    },
    fps=16,
    cache_mark="wan",
)
WAN = replace(
    _SMALL,
    variants={
        ModelFlavor.T2V14B: replace(_SMALL, published=shaped(blocks=40, heads=40, hidden=13_824)),
    },
)
