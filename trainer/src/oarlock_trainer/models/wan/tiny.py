"""A Wan model small enough for a laptop: the real layout and the real classes, random weights from a seed.

Everything that reads a Wan directory of diffusers reads this one: transformer, VAE, UMT5 with its tokenizer, scheduler.
Nothing is downloaded. The videos it draws mean nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.tiny_tokenizers import write_t5_tokenizer
from oarlock_trainer.models.wan.family import WAN
from oarlock_trainer.runtime.file_modes import make_ordinary

if TYPE_CHECKING:
    from pathlib import Path

TEXT_WIDTH = 32
LATENT_CHANNELS = 4
TEXT_TOKENS = 32
"""Shorter than Wan's 512: most of a tiny step would be padding."""


def write(directory: Path, *, seed: int = 0, layers: int = 3) -> None:
    """Write the model. The same seed gives the same bytes. Says nothing."""
    from transformers import UMT5Config, UMT5EncoderModel  # noqa: PLC0415
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    directory.mkdir(parents=True, exist_ok=True)
    pieces = write_t5_tokenizer(directory / "tokenizer", tokens=TEXT_TOKENS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = imported(WAN.transformer)(
            num_attention_heads=4,
            attention_head_dim=16,
            in_channels=LATENT_CHANNELS,
            out_channels=LATENT_CHANNELS,
            text_dim=TEXT_WIDTH,
            freq_dim=32,
            ffn_dim=96,
            num_layers=layers,
            rope_max_seq_len=64,
        )
        vae = imported(WAN.autoencoder)(
            base_dim=8,
            z_dim=LATENT_CHANNELS,
            dim_mult=[1, 1, 1, 1],
            num_res_blocks=1,
            latents_mean=[-0.3, 0.2, 0.1, -0.1],
            latents_std=[0.5, 0.8, 1.5, 1.2],
        )
        text_encoder = UMT5EncoderModel(
            UMT5Config(vocab_size=pieces, d_model=TEXT_WIDTH, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
        )
    torch.nn.Module.to(transformer, torch.bfloat16)  # diffusers' own .to() warns of modules that must not be
    transformer.save_pretrained(directory / "transformer")
    vae.save_pretrained(directory / "vae")
    text_encoder.save_pretrained(directory / "text_encoder")
    imported(WAN.scheduler)(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0).save_pretrained(
        directory / "scheduler"
    )
    (directory / "model_index.json").write_text(json.dumps(_model_index(), indent=2) + "\n", encoding="utf-8")
    make_ordinary(directory)


def _model_index() -> dict[str, Any]:
    from diffusers import __version__  # noqa: PLC0415

    return {
        "_class_name": "WanPipeline",
        "_diffusers_version": __version__,
        "boundary_ratio": None,
        "expand_timesteps": False,
        "scheduler": ["diffusers", "UniPCMultistepScheduler"],
        "text_encoder": ["transformers", "UMT5EncoderModel"],
        "tokenizer": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "transformer_2": [None, None],
        "vae": ["diffusers", "AutoencoderKLWan"],
    }
