"""The FLUX.2 transformer by its numbers. No layer has a bias, and all blocks of a kind share what modulates them.

What a block keeps was counted on torch's meta device (plan/counting), in micro-batches of two, with the kernels of a GPU:
27.05, 21.05 and 16.05 widths a token in a double block, eager, compiled and lean, and 23.05, 19.05 and 12.05 in a single one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.architecture import Architecture, BlockKind, Kept, Linear

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ATTENTION = ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
_DOUBLE, _SINGLE = Kept(27.1, 21.1, 16.1), Kept(23.1, 19.1, 12.1)


def architecture(config: Mapping[str, Any]) -> Architecture:
    """Architecture that a parsed transformer/config.json describes. Raises KeyError where a number is missing."""
    return shaped(
        double_blocks=int(config["num_layers"]),
        single_blocks=int(config["num_single_layers"]),
        heads=int(config["num_attention_heads"]),
        head_width=int(config["attention_head_dim"]),
        mlp_ratio=float(config.get("mlp_ratio") or 3.0),
        time_channels=int(config.get("timestep_guidance_channels") or 256),
        token_channels=int(config["in_channels"]),
        out_channels=int(config.get("patch_size") or 1) ** 2 * int(config.get("out_channels") or config["in_channels"]),
        text_width=int(config["joint_attention_dim"]),
        has_guidance=bool(config.get("guidance_embeds", True)),
    )


def shaped(
    *,
    double_blocks: int,
    single_blocks: int,
    heads: int,
    text_width: int,
    has_guidance: bool,
    head_width: int = 128,
    mlp_ratio: float = 3.0,
    time_channels: int = 256,
    token_channels: int = 128,
    out_channels: int = 128,
) -> Architecture:
    """A FLUX.2 of this shape; the defaults are what all published ones share.

    With three times the width in the feed-forward part, a token meets 13 d^2 weights in a block of either kind.
    """
    width = heads * head_width
    hidden = int(width * mlp_ratio)
    met = 4 * width**2 + 3 * width * hidden
    embedders = ("timestep_embedder", *(("guidance_embedder",) if has_guidance else ()))
    return Architecture(
        width=width,
        kinds=(
            BlockKind(number=double_blocks, met=met, modulation=0, kept=_DOUBLE),
            BlockKind(number=single_blocks, met=met, modulation=0, kept=_SINGLE),
        ),
        linears=(
            *(
                layer
                for name in embedders
                for layer in (
                    _linear(f"time_guidance_embed.{name}.linear_1", time_channels, width),
                    _linear(f"time_guidance_embed.{name}.linear_2", width, width),
                )
            ),
            _linear("double_stream_modulation_img.linear", width, 6 * width),
            _linear("double_stream_modulation_txt.linear", width, 6 * width),
            _linear("single_stream_modulation.linear", width, 3 * width),
            _linear("x_embedder", token_channels, width),
            _linear("context_embedder", text_width, width),
            *(
                one
                for number in range(double_blocks)
                for one in _double_block(f"transformer_blocks.{number}", width, hidden)
            ),
            *(
                one
                for number in range(single_blocks)
                for one in _single_block(f"single_transformer_blocks.{number}.attn", width, hidden)
            ),
            _linear("norm_out.linear", width, 2 * width),
            _linear("proj_out", width, out_channels),
        ),
        others=(4 * double_blocks + 2 * single_blocks) * head_width,  # norms of queries and keys
        latent_channels=token_channels,
        token_channels=token_channels,
        text_width=text_width,
        pooled_width=0,
        has_guidance=has_guidance,
    )


def _double_block(block: str, width: int, hidden: int) -> Iterator[Linear]:
    """Image and text stream, each with attention and feed-forward of its own."""
    for projection in _ATTENTION:
        yield _linear(f"{block}.attn.{projection}", width, width)
    for stream in ("ff", "ff_context"):
        yield _linear(f"{block}.{stream}.linear_in", width, 2 * hidden)
        yield _linear(f"{block}.{stream}.linear_out", hidden, width)


def _single_block(attention: str, width: int, hidden: int) -> Iterator[Linear]:
    """One stream, attention and feed-forward in the same two products."""
    yield _linear(f"{attention}.to_qkv_mlp_proj", width, 3 * width + 2 * hidden)
    yield _linear(f"{attention}.to_out", width + hidden, width)


def _linear(name: str, inputs: int, outputs: int) -> Linear:
    return Linear(name, inputs, outputs, bias=False)
