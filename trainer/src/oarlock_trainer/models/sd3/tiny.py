"""A Stable Diffusion 3.5 small enough for a laptop: the real layout and the real classes, random weights from a seed.

Its three blocks are of the three kinds that Medium has. Nothing is downloaded. The pictures it draws mean nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.sd3.family import STABLE_DIFFUSION_3
from oarlock_trainer.models.tiny_tokenizers import write_clip_tokenizer, write_t5_tokenizer
from oarlock_trainer.runtime.file_modes import make_ordinary

if TYPE_CHECKING:
    from pathlib import Path

TEXT_WIDTH = 48
"""T5's: both CLIPs side by side are narrower."""
CLIP_WIDTHS = (16, 24)
LATENT_CHANNELS = 4
TEXT_TOKENS = 16
"""Shorter than the 256 of T5: most of a tiny step would be padding. CLIP's 77 stay."""
_WIDTH, _HEADS = 64, 4


def write(directory: Path, *, seed: int = 0) -> None:
    """Write the model. The same seed gives the same bytes. Says nothing."""
    from transformers import CLIPTextModelWithProjection, T5Config, T5EncoderModel  # noqa: PLC0415
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    directory.mkdir(parents=True, exist_ok=True)
    clip_tokens = [write_clip_tokenizer(directory / name) for name in ("tokenizer", "tokenizer_2")]
    t5_tokens = write_t5_tokenizer(directory / "tokenizer_3", tokens=TEXT_TOKENS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = imported(STABLE_DIFFUSION_3.transformer)(
            sample_size=16,
            in_channels=LATENT_CHANNELS,
            out_channels=LATENT_CHANNELS,
            num_layers=3,
            attention_head_dim=_WIDTH // _HEADS,
            num_attention_heads=_HEADS,
            joint_attention_dim=TEXT_WIDTH,
            caption_projection_dim=_WIDTH,
            pooled_projection_dim=sum(CLIP_WIDTHS),
            pos_embed_max_size=32,
            dual_attention_layers=(0,),
            qk_norm="rms_norm",
        )
        vae = imported(STABLE_DIFFUSION_3.autoencoder)(
            in_channels=3,
            out_channels=3,
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(8, 8, 8, 8),
            layers_per_block=1,
            latent_channels=LATENT_CHANNELS,
            norm_num_groups=4,
            sample_size=64,
            scaling_factor=1.5305,
            shift_factor=0.0609,
            use_quant_conv=False,
            use_post_quant_conv=False,
        )
        clips = [
            CLIPTextModelWithProjection(_clip(tokens, width, kind))
            for tokens, width, kind in zip(clip_tokens, CLIP_WIDTHS, ("quick_gelu", "gelu"), strict=True)
        ]
        t5 = T5EncoderModel(
            T5Config(
                vocab_size=t5_tokens, d_model=TEXT_WIDTH, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                feed_forward_proj="gated-gelu", tie_word_embeddings=False,
            )
        )  # fmt: skip
    torch.nn.Module.to(
        transformer, torch.bfloat16
    )  # diffusers' own .to() warns of modules that must not be, naming none
    networks = {
        "transformer": transformer, "vae": vae, "text_encoder": clips[0], "text_encoder_2": clips[1], "text_encoder_3": t5,
    }  # fmt: skip
    for name, network in networks.items():
        network.save_pretrained(directory / name)
    imported(STABLE_DIFFUSION_3.scheduler)(shift=3.0).save_pretrained(directory / "scheduler")
    (directory / "model_index.json").write_text(json.dumps(_model_index(), indent=2) + "\n", encoding="utf-8")
    make_ordinary(directory)


def _clip(tokens: int, width: int, activation: str) -> Any:
    from transformers import CLIPTextConfig  # noqa: PLC0415

    return CLIPTextConfig(
        vocab_size=tokens,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=3,
        num_attention_heads=width // 8,
        max_position_embeddings=77,
        projection_dim=width,
        hidden_act=activation,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )


def _model_index() -> dict[str, Any]:
    from diffusers import __version__  # noqa: PLC0415

    return {
        "_class_name": "StableDiffusion3Pipeline",
        "_diffusers_version": __version__,
        "feature_extractor": [None, None],
        "image_encoder": [None, None],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "CLIPTextModelWithProjection"],
        "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
        "text_encoder_3": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "CLIPTokenizer"],
        "tokenizer_3": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "SD3Transformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
