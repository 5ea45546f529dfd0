"""The Qwen-Image transformer by its numbers: blocks of one kind, each with weights for the image and for the text.

What a block keeps was counted by plan/counting (tests/models/test_counted.py), in bfloat16 values a token
and width, in micro-batches of two: 29.05 eager, 20.05 compiled, 14.05 lean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.architecture import Architecture, BlockKind, Kept, Linear

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TIME_CHANNELS = 256
"""Sines and cosines of the noise level: fixed in diffusers' class."""
_MLP_RATIO = 4
_ATTENTION = ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
_OF_OTHER_VARIANTS = (
    "guidance_embeds", "zero_cond_t", "use_additional_t_cond", "use_layer3d_rope", "causal_condition",
)  # fmt: skip
"""Of models that are told their guidance, that edit pictures, that make layers, and of Qwen-Image 2.1."""
_KEPT = Kept(29.1, 20.1, 14.1)


def architecture(config: Mapping[str, Any]) -> Architecture:
    """Architecture that a parsed transformer/config.json describes.

    Raises KeyError where a number is missing, ValueError where it is of a variant that is not trained.
    """
    if other := [name for name in _OF_OTHER_VARIANTS if config.get(name)]:
        raise ValueError(f"{', '.join(other)}: this variant is not trained here")
    token, patch = int(config["in_channels"]), int(config["patch_size"])
    if patch**2 * int(config.get("out_channels") or token) != token:
        raise ValueError("in_channels, out_channels, patch_size: the model says something else than it is given")
    return shaped(
        blocks=int(config["num_layers"]),
        heads=int(config["num_attention_heads"]),
        head_width=int(config["attention_head_dim"]),
        token_channels=token,
        patch=patch,
        text_width=int(config["joint_attention_dim"]),
    )


def shaped(
    *,
    blocks: int = 60,
    heads: int = 24,
    head_width: int = 128,
    token_channels: int = 64,
    patch: int = 2,
    text_width: int = 3584,
) -> Architecture:
    """A Qwen-Image of this shape; the defaults are the published models', which have 20,430,401,088 parameters.

    A token meets 4 d^2 weights of attention and 8 d^2 of a feed-forward part in each block.
    """
    width = heads * head_width
    return Architecture(
        width=width,
        kinds=(BlockKind(number=blocks, met=12 * width**2, modulation=12 * width**2, kept=_KEPT),),
        linears=(
            Linear("time_text_embed.timestep_embedder.linear_1", _TIME_CHANNELS, width),
            Linear("time_text_embed.timestep_embedder.linear_2", width, width),
            Linear("img_in", token_channels, width),
            Linear("txt_in", text_width, width),
            *(one for number in range(blocks) for one in _block(f"transformer_blocks.{number}", width)),
            Linear("norm_out.linear", width, 2 * width),
            Linear("proj_out", width, token_channels),
        ),
        others=text_width + 4 * blocks * head_width,  # norms of the text, and of both streams' queries and keys
        latent_channels=token_channels // patch**2,
        token_channels=token_channels,
        text_width=text_width,
        pooled_width=0,
        has_guidance=False,
    )


def _block(block: str, width: int) -> Iterator[Linear]:
    """Both streams: modulation and feed-forward of their own, and their projections of one attention."""
    for projection in _ATTENTION:
        yield Linear(f"{block}.attn.{projection}", width, width)
    for stream in ("img", "txt"):
        yield Linear(f"{block}.{stream}_mod.1", width, 6 * width)
        yield Linear(f"{block}.{stream}_mlp.net.0.proj", width, _MLP_RATIO * width)
        yield Linear(f"{block}.{stream}_mlp.net.2", _MLP_RATIO * width, width)
