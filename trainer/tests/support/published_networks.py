"""VAEs and text encoders as they were published, by their classes: made on torch's meta device they take no memory."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import AutoencoderKL
from transformers import (
    MistralConfig,
    MistralModel,
    Qwen2_5_VLTextConfig,
    Qwen2_5_VLTextModel,
    Qwen3Config,
    Qwen3Model,
    T5Config,
    T5EncoderModel,
    UMT5Config,
    UMT5EncoderModel,
)


def flux_vae() -> AutoencoderKL:
    """Stable Diffusion 3.5's and Z-Image's are made the same way."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=16, use_quant_conv=False,
        use_post_quant_conv=False,
    )  # fmt: skip


def t5() -> T5EncoderModel:
    """XXL, of FLUX.1 and Stable Diffusion 3.5."""
    return T5EncoderModel(
        T5Config(
            d_model=4096, d_kv=64, d_ff=10_240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu",
            vocab_size=32_128,
        )
    )  # fmt: skip


def umt5() -> UMT5EncoderModel:
    return UMT5EncoderModel(
        UMT5Config(vocab_size=256_384, d_model=4096, d_kv=64, d_ff=10_240, num_layers=24, num_heads=64)
    )


def qwen3(width: int, hidden: int, layers: int, **more: Any) -> Qwen3Model:
    return Qwen3Model(
        Qwen3Config(
            vocab_size=151_936, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
            num_attention_heads=32, num_key_value_heads=8, head_dim=128, **more,
        )
    )  # fmt: skip


def mistral() -> MistralModel:
    return MistralModel(
        MistralConfig(
            vocab_size=131_072, hidden_size=5120, intermediate_size=32_768, num_hidden_layers=30,
            num_attention_heads=32, num_key_value_heads=8, head_dim=128,
        )
    )  # fmt: skip


def qwen2_5_vl() -> Qwen2_5_VLTextModel:
    return Qwen2_5_VLTextModel(
        Qwen2_5_VLTextConfig(
            vocab_size=152_064, hidden_size=3584, intermediate_size=18_944, num_hidden_layers=28,
            num_attention_heads=28, num_key_value_heads=4,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        )
    )  # fmt: skip


def without_norm(network: Any) -> Any:
    """A layer before the last is asked: what stands behind all of them is never reached."""
    network.norm = torch.nn.Identity()
    return network
