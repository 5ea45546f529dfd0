"""A Z-Image model small enough for a laptop: the real layout and the real classes, random weights from a seed.

Everything that reads a Z-Image directory of diffusers reads this one: transformer, VAE, Qwen3 encoder, its tokenizer (made of
a few sentences), scheduler. Nothing is downloaded. The pictures it draws mean nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.tiny_tokenizers import write_qwen_tokenizer
from oarlock_trainer.models.zimage.family import Z_IMAGE
from oarlock_trainer.runtime.file_modes import make_ordinary

if TYPE_CHECKING:
    from pathlib import Path

TEXT_WIDTH = 32
LATENT_CHANNELS = 4
TEXT_TOKENS = 96
"""Shorter than Z-Image's 512, and more than one multiple of the 32 tokens that texts are padded to."""


def write(directory: Path, *, seed: int = 0, layers: int = 3, refiners: int = 1) -> None:
    """Write the model. The same seed gives the same bytes. Says nothing."""
    from transformers import Qwen3Config, Qwen3Model  # noqa: PLC0415
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    directory.mkdir(parents=True, exist_ok=True)
    tokens = write_qwen_tokenizer(directory / "tokenizer", tokens=TEXT_TOKENS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = imported(Z_IMAGE.transformer)(
            in_channels=LATENT_CHANNELS, dim=64, n_layers=layers, n_refiner_layers=refiners, n_heads=4, n_kv_heads=4,
            cap_feat_dim=TEXT_WIDTH, axes_dims=[4, 6, 6], axes_lens=[256, 64, 64],
        )  # fmt: skip
        for token in (transformer.x_pad_token, transformer.cap_pad_token):  # else zeros, which hide mistakes
            torch.nn.init.normal_(token)
        vae = imported(Z_IMAGE.autoencoder)(
            in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4, block_out_channels=(8, 8, 8, 8), layers_per_block=1,
            latent_channels=LATENT_CHANNELS, norm_num_groups=4, sample_size=64, scaling_factor=0.3611,
            shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False,
        )  # fmt: skip
        encoder = Qwen3Model(
            Qwen3Config(
                vocab_size=tokens, hidden_size=TEXT_WIDTH, intermediate_size=64, num_hidden_layers=3,
                num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=1024,
                tie_word_embeddings=True, pad_token_id=0,
            )
        )  # fmt: skip
    torch.nn.Module.to(transformer, torch.bfloat16)  # diffusers' own .to() warns of modules that must not be
    transformer.save_pretrained(directory / "transformer")
    vae.save_pretrained(directory / "vae")
    encoder.save_pretrained(directory / "text_encoder")
    imported(Z_IMAGE.scheduler)(shift=3.0).save_pretrained(directory / "scheduler")
    index = json.dumps(_model_index(), indent=2)
    (directory / "model_index.json").write_text(f"{index}\n", encoding="utf-8")
    make_ordinary(directory)


def _model_index() -> dict[str, Any]:
    from diffusers import __version__  # noqa: PLC0415

    return {
        "_class_name": "ZImagePipeline",
        "_diffusers_version": __version__,
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen3Model"],
        "tokenizer": ["transformers", "Qwen2Tokenizer"],
        "transformer": ["diffusers", "ZImageTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
