"""Qwen-Image (text to image) and Qwen-Image-Edit in numbers and names."""

from __future__ import annotations

from dataclasses import replace

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.family import Autoencoder, ClassName, Family, Grid, Presets, Shift
from oarlock_trainer.models.qwenimage.architecture import architecture, shaped
from oarlock_trainer.models.qwenimage.encoded import PUBLISHED, PUBLISHED_EDIT, read_encoded
from oarlock_trainer.models.qwenimage.flavors import FLAVORS
from oarlock_trainer.models.qwenimage.sight import PROCESSOR
from oarlock_trainer.models.qwenimage.texts import SEEING_TEXTS, TEXTS

_IMAGE = ("to_k", "to_q", "to_v", "to_out.0")
_CONTEXT = ("add_k_proj", "add_q_proj", "add_v_proj", "to_add_out")
_FEED_FORWARD = ("img_mlp.net.0.proj", "img_mlp.net.2")
_CONTEXT_FEED_FORWARD = ("txt_mlp.net.0.proj", "txt_mlp.net.2")

PRESETS = Presets(
    names={
        "all": (*_IMAGE, *_CONTEXT),
        "mmdit": _IMAGE,
        "context": _CONTEXT,
        "context+ffs": (*_CONTEXT, *_CONTEXT_FEED_FORWARD),
        "all+ffs": (*_IMAGE, *_CONTEXT, *_FEED_FORWARD, *_CONTEXT_FEED_FORWARD),
    },
    default="all+ffs",
)
"""mmdit is what SimpleTuner takes for this family: attention of the image's tokens."""

VAE = Autoencoder(parameters=126_892_531, pixel_bytes=1942)
"""Counted of the encoder (tests/models/test_counted.py). Its convolutions are three frames wide, of which
two are zeros here, and what each was given is kept for a next frame. The decoder, which draws, takes 3460 a pixel."""

_DRAWS = Family(
    name="Qwen-Image",
    slug="qwen_image",
    flavors=FLAVORS,
    transformer=ClassName("diffusers.models.transformers.transformer_qwenimage", "QwenImageTransformer2DModel"),
    autoencoder=ClassName("diffusers.models.autoencoders.autoencoder_kl_qwenimage", "AutoencoderKLQwenImage"),
    scheduler=ClassName("diffusers.schedulers.scheduling_flow_match_euler_discrete", "FlowMatchEulerDiscreteScheduler"),
    text_encoders=("text_encoder",),
    tokenizers=("tokenizer",),
    text_classes=("Qwen2_5_VLForConditionalGeneration", "Qwen2Tokenizer"),
    grid=Grid(pixels=8, patch=2, bucket=32),
    shift=Shift(few_tokens=256, low=0.5, many_tokens=8192, high=0.9),
    blocks=("transformer_blocks",),
    presets=PRESETS,
    published=shaped(),
    architecture=architecture,
    encoded=PUBLISHED,
    texts=TEXTS,
    vae=VAE,
    read_encoded=read_encoded,
    pipelines=("QwenImagePipeline", "QwenImageImg2ImgPipeline", "QwenImageInpaintPipeline"),
    masks_text=True,
    cache_mark="qwen_image",
)
_EDITS = replace(
    _DRAWS,
    name="Qwen-Image-Edit",
    tokenizers=("tokenizer", PROCESSOR),
    encoded=PUBLISHED_EDIT,
    texts=SEEING_TEXTS,
    pipelines=("QwenImageEditPipeline", "QwenImageEditInpaintPipeline"),
)
QWEN_IMAGE = replace(_DRAWS, variants={ModelFlavor.EDIT: _EDITS})
