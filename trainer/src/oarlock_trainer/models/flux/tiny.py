"""A FLUX.1 model small enough for a laptop: the real layout and the real classes, random weights from a seed.

Everything that reads a FLUX.1 directory of diffusers reads this one: transformer, VAE, CLIP and T5 encoders, both
tokenizers (trained here, on a few sentences), scheduler. Nothing is downloaded. The pictures it draws mean nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.family import Reference
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.tiny_tokenizers import write_clip_tokenizer, write_t5_tokenizer
from oarlock_trainer.runtime.file_modes import make_ordinary

if TYPE_CHECKING:
    from pathlib import Path

TEXT_WIDTH = 32
POOLED_WIDTH = 32
LATENT_CHANNELS = 4
TEXT_TOKENS = 32
"""Shorter than FLUX.1's 512: most of a tiny step would be padding."""


def write(
    directory: Path, *, seed: int = 0, layers: int = 2, single_layers: int = 4, beside: Reference | None = None
) -> None:
    """Write the model, or one with a reference `beside` the noise. The same seed gives the same bytes. Says nothing."""
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel  # noqa: PLC0415
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    directory.mkdir(parents=True, exist_ok=True)
    clip_tokens = write_clip_tokenizer(directory / "tokenizer")
    t5_tokens = write_t5_tokenizer(directory / "tokenizer_2", tokens=TEXT_TOKENS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = imported(FLUX1.transformer)(
            in_channels=4 * (LATENT_CHANNELS + (beside.channels(LATENT_CHANNELS, FLUX1.grid) if beside else 0)),
            out_channels=4 * LATENT_CHANNELS if beside else None,
            num_layers=layers,
            num_single_layers=single_layers,
            attention_head_dim=16,
            num_attention_heads=4,
            joint_attention_dim=TEXT_WIDTH,
            pooled_projection_dim=POOLED_WIDTH,
            guidance_embeds=True,
            axes_dims_rope=(4, 4, 8),
        )
        vae = imported(FLUX1.autoencoder)(
            in_channels=3,
            out_channels=3,
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(8, 8, 8, 8),
            layers_per_block=1,
            latent_channels=LATENT_CHANNELS,
            norm_num_groups=4,
            sample_size=64,
            scaling_factor=0.3611,
            shift_factor=0.1159,
            use_quant_conv=False,
            use_post_quant_conv=False,
        )
        clip = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=clip_tokens,
                hidden_size=POOLED_WIDTH,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                max_position_embeddings=77,
                projection_dim=POOLED_WIDTH,
                bos_token_id=0,
                eos_token_id=1,
                pad_token_id=1,
            )
        )
        t5 = T5EncoderModel(
            T5Config(
                vocab_size=t5_tokens, d_model=TEXT_WIDTH, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                feed_forward_proj="gated-gelu", tie_word_embeddings=False,
            )
        )  # fmt: skip
    torch.nn.Module.to(
        transformer, torch.bfloat16
    )  # diffusers' own .to() warns of modules that must not be, naming none
    transformer.save_pretrained(directory / "transformer")
    vae.save_pretrained(directory / "vae")
    clip.save_pretrained(directory / "text_encoder")
    t5.save_pretrained(directory / "text_encoder_2")
    imported(FLUX1.scheduler)(
        shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15, base_image_seq_len=256,
        max_image_seq_len=4096,
    ).save_pretrained(directory / "scheduler")  # fmt: skip
    _write_json(directory / "model_index.json", _model_index(beside))
    make_ordinary(directory)


_PIPELINES = {None: "FluxPipeline", Reference.HOLES: "FluxFillPipeline", Reference.BESIDE: "FluxControlPipeline"}


def _model_index(beside: Reference | None) -> dict[str, Any]:
    from diffusers import __version__  # noqa: PLC0415

    return {
        "_class_name": _PIPELINES[beside],
        "_diffusers_version": __version__,
        **({} if beside else {"feature_extractor": [None, None], "image_encoder": [None, None]}),
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "text_encoder_2": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "FluxTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
