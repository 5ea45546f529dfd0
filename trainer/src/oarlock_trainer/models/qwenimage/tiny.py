"""A Qwen-Image model small enough for a laptop: the real layout and the real classes, random weights from a seed.

Everything that reads a Qwen-Image directory of diffusers reads this one: transformer, VAE, Qwen2.5-VL with its tokenizer,
scheduler. As in the published tokenizer, 34 tokens stand before a caption. Nothing is downloaded. The pictures it draws mean
nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.qwenimage.captions import BEFORE, BEHIND
from oarlock_trainer.models.qwenimage.encoded import DROPPED
from oarlock_trainer.models.qwenimage.family import QWEN_IMAGE
from oarlock_trainer.models.tiny_tokenizers import write_qwen_tokenizer
from oarlock_trainer.runtime.file_modes import make_ordinary

if TYPE_CHECKING:
    from pathlib import Path

TEXT_WIDTH = 32
LATENT_CHANNELS = 4
TEXT_TOKENS = 48
"""Shorter than Qwen-Image's 1024: most of a tiny step would be padding."""


def write(directory: Path, *, seed: int = 0, layers: int = 3) -> None:
    """Write the model. The same seed gives the same bytes. Says nothing."""
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    directory.mkdir(parents=True, exist_ok=True)
    pieces = write_qwen_tokenizer(directory / "tokenizer", tokens=TEXT_TOKENS + DROPPED, known=f"{BEFORE}{BEHIND}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = imported(QWEN_IMAGE.transformer)(
            in_channels=4 * LATENT_CHANNELS,
            out_channels=LATENT_CHANNELS,
            num_layers=layers,
            attention_head_dim=16,
            num_attention_heads=4,
            joint_attention_dim=TEXT_WIDTH,
            axes_dims_rope=(4, 6, 6),
        )
        vae = imported(QWEN_IMAGE.autoencoder)(
            base_dim=8,
            z_dim=LATENT_CHANNELS,
            dim_mult=[1, 1, 1, 1],
            num_res_blocks=1,
            latents_mean=[-0.3, 0.2, 0.1, -0.1],
            latents_std=[0.5, 0.8, 1.5, 1.2],
        )
        text_encoder = _text_encoder(pieces)
    torch.nn.Module.to(transformer, torch.bfloat16)  # diffusers' own .to() warns of modules that must not be
    transformer.save_pretrained(directory / "transformer")
    vae.save_pretrained(directory / "vae")
    text_encoder.save_pretrained(directory / "text_encoder")
    imported(QWEN_IMAGE.scheduler)(
        shift=1.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, base_image_seq_len=256,
        max_image_seq_len=8192, shift_terminal=0.02,
    ).save_pretrained(directory / "scheduler")  # fmt: skip
    (directory / "model_index.json").write_text(json.dumps(_model_index(), indent=2) + "\n", encoding="utf-8")
    make_ordinary(directory)


def _text_encoder(pieces: int) -> Any:
    """With a network for pictures, as the published one has: nobody asks it."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration  # noqa: PLC0415

    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config={
                "vocab_size": pieces, "hidden_size": TEXT_WIDTH, "intermediate_size": 64, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
                "initializer_range": 0.2, "bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1]},
            },
            vision_config={
                "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": TEXT_WIDTH,
                "fullatt_block_indexes": [0],
            },
        )
    )  # fmt: skip


def _model_index() -> dict[str, Any]:
    from diffusers import __version__  # noqa: PLC0415

    return {
        "_class_name": "QwenImagePipeline",
        "_diffusers_version": __version__,
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
        "tokenizer": ["transformers", "Qwen2Tokenizer"],
        "transformer": ["diffusers", "QwenImageTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKLQwenImage"],
    }
