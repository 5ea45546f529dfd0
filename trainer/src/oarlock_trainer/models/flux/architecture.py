"""The FLUX.1 transformer by its numbers.

What a block keeps for the backward pass was counted by plan/counting, in bfloat16 values a token and width: 23.05, 20.05 and
14.05 in a double block, eager, compiled and lean, and 19.05, 18.05 and 10.05 in a single one. Of one sample alone a compiled
double block keeps one less: the parts of attention's result lie in one piece then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.architecture import Architecture, BlockKind, Kept, Linear

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TIME_CHANNELS = 256
"""Sines and cosines of the noise level and of the guidance: fixed in diffusers' classes."""
_MLP_RATIO = 4
_ATTENTION = ("to_q", "to_k", "to_v")
_OUTPUT = ("to_out.0",)
_CONTEXT = ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
_TOKEN = 4
"""Latents of a token."""


def architecture(config: Mapping[str, Any]) -> Architecture:
    """Architecture that a parsed transformer/config.json describes. Raises KeyError where a number is missing."""
    return shaped(
        double_blocks=int(config["num_layers"]),
        single_blocks=int(config["num_single_layers"]),
        heads=int(config["num_attention_heads"]),
        head_width=int(config["attention_head_dim"]),
        token_channels=int(config["in_channels"]),
        out_channels=int(config.get("patch_size") or 1) ** 2 * int(config.get("out_channels") or config["in_channels"]),
        text_width=int(config["joint_attention_dim"]),
        pooled_width=int(config["pooled_projection_dim"]),
        has_guidance=bool(config.get("guidance_embeds")),
    )


def shaped(
    *,
    double_blocks: int = 19,
    single_blocks: int = 38,
    heads: int = 24,
    head_width: int = 128,
    token_channels: int = 64,
    out_channels: int = 64,
    text_width: int = 4096,
    pooled_width: int = 768,
    has_guidance: bool = True,
) -> Architecture:
    """A FLUX.1 of this shape; the defaults are FLUX.1-dev's, which has 11,901,408,320 parameters.

    A token meets only its own stream's matrices, 12 d^2 in a block of either kind: "6 x parameters x tokens" would overstate
    the work by 1.84.
    """
    width = heads * head_width
    embedders = ["timestep_embedder", *(["guidance_embedder"] if has_guidance else [])]
    inputs = [*((name, _TIME_CHANNELS) for name in embedders), ("text_embedder", pooled_width)]
    return Architecture(
        width=width,
        kinds=(
            BlockKind(number=double_blocks, met=12 * width**2, modulation=12 * width**2, kept=Kept(23.1, 20.1, 14.1)),
            BlockKind(number=single_blocks, met=12 * width**2, modulation=3 * width**2, kept=Kept(19.1, 18.1, 10.1)),
        ),
        linears=(
            *(
                layer
                for name, size in inputs
                for layer in (
                    Linear(f"time_text_embed.{name}.linear_1", size, width),
                    Linear(f"time_text_embed.{name}.linear_2", width, width),
                )
            ),
            Linear("context_embedder", text_width, width),
            Linear("x_embedder", token_channels, width),
            *(one for number in range(double_blocks) for one in _double_block(f"transformer_blocks.{number}", width)),
            *(
                one
                for number in range(single_blocks)
                for one in _single_block(f"single_transformer_blocks.{number}", width)
            ),
            Linear("norm_out.linear", width, 2 * width),
            Linear("proj_out", width, out_channels),
        ),
        others=(4 * double_blocks + 2 * single_blocks) * head_width,  # norms of queries and keys
        latent_channels=out_channels // _TOKEN,
        token_channels=token_channels,
        text_width=text_width,
        pooled_width=pooled_width,
        has_guidance=has_guidance,
    )


def _double_block(block: str, width: int) -> Iterator[Linear]:
    """Image and text stream, each with attention, feed-forward and modulation of its own: 36 d^2 in all."""
    for norm in ("norm1", "norm1_context"):
        yield Linear(f"{block}.{norm}.linear", width, 6 * width)
    for projection in (*_ATTENTION, *_OUTPUT, *_CONTEXT):
        yield Linear(f"{block}.attn.{projection}", width, width)
    for stream in ("ff", "ff_context"):
        yield Linear(f"{block}.{stream}.net.0.proj", width, _MLP_RATIO * width)
        yield Linear(f"{block}.{stream}.net.2", _MLP_RATIO * width, width)


def _single_block(block: str, width: int) -> Iterator[Linear]:
    """One stream, attention and feed-forward side by side: 15 d^2."""
    yield Linear(f"{block}.norm.linear", width, 3 * width)
    for projection in _ATTENTION:
        yield Linear(f"{block}.attn.{projection}", width, width)
    yield Linear(f"{block}.proj_mlp", width, _MLP_RATIO * width)
    yield Linear(f"{block}.proj_out", (1 + _MLP_RATIO) * width, width)
