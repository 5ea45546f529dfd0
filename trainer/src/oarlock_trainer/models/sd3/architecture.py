"""The transformer of Stable Diffusion 3.5 by its numbers.

A block has weights of its own for the image and for the text, and one attention over both. In the first blocks of Medium
the image's tokens attend to each other once more, by weights of their own. The last block makes nothing of the text.

What a block keeps was counted by plan/counting (tests/models/test_counted.py), in bfloat16 values a token and width.
What an image token keeps is taken for the text's too, which is less in the blocks with two attentions and in the last one.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.architecture import Architecture, BlockKind, Kept, Linear

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TIME_CHANNELS = 256
"""Sines and cosines of the noise level: fixed in diffusers' classes."""
_MLP_RATIO = 4
_OWN = ("to_q", "to_k", "to_v", "to_out.0")
_CONTEXT = ("add_q_proj", "add_k_proj", "add_v_proj")
_KEPT, _DUAL_KEPT = Kept(29.2, 20.2, 14.2), Kept(43.3, 28.3, 19.3)


def architecture(config: Mapping[str, Any]) -> Architecture:
    """Architecture that a parsed transformer/config.json describes. Raises KeyError where a number is missing."""
    return shaped(
        blocks=int(config["num_layers"]),
        dual=tuple(config.get("dual_attention_layers") or ()),
        heads=int(config["num_attention_heads"]),
        head_width=int(config["attention_head_dim"]),
        channels=int(config["in_channels"]),
        out_channels=int(config.get("out_channels") or config["in_channels"]),
        patch=int(config["patch_size"]),
        text_width=int(config["joint_attention_dim"]),
        pooled_width=int(config["pooled_projection_dim"]),
        has_norms=bool(config.get("qk_norm")),
    )


def shaped(
    *,
    blocks: int = 38,
    dual: Sequence[int] = (),
    heads: int = 38,
    head_width: int = 64,
    channels: int = 16,
    out_channels: int = 16,
    patch: int = 2,
    text_width: int = 4096,
    pooled_width: int = 2048,
    has_norms: bool = True,
) -> Architecture:
    """A Stable Diffusion 3.5 of this shape; the defaults are Large's. `dual` are the blocks with a second attention."""
    width, token = heads * head_width, channels * patch**2
    kinds = [(number in dual, number == blocks - 1) for number in range(blocks)]
    inputs = (("timestep_embedder", _TIME_CHANNELS), ("text_embedder", pooled_width))
    return Architecture(
        width=width,
        kinds=tuple(
            _kind(len(list(alike)), width, is_dual=is_dual, is_last=is_last)
            for (is_dual, is_last), alike in groupby(kinds)
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
            *(
                one
                for number, (is_dual, is_last) in enumerate(kinds)
                for one in _block(f"transformer_blocks.{number}", width, is_dual=is_dual, is_last=is_last)
            ),
            Linear("norm_out.linear", width, 2 * width),
            Linear("proj_out", width, out_channels * patch**2),
        ),
        # The convolution that makes tokens, and norms of queries and keys: of image and text, and of the second attention.
        others=(token + 1) * width + has_norms * (4 * blocks + 2 * sum(is_dual for is_dual, _ in kinds)) * head_width,
        latent_channels=channels,
        token_channels=token,
        text_width=text_width,
        pooled_width=pooled_width,
        has_guidance=False,
    )


def _kind(number: int, width: int, *, is_dual: bool, is_last: bool) -> BlockKind:
    return BlockKind(
        number=number,
        met=(16 if is_dual else 12) * width**2,
        text_met=(3 if is_last else 12) * width**2,
        alone=int(is_dual),
        modulation=((9 if is_dual else 6) + (2 if is_last else 6)) * width**2,
        kept=_DUAL_KEPT if is_dual else _KEPT,
    )


def _block(block: str, width: int, *, is_dual: bool, is_last: bool) -> Iterator[Linear]:
    yield Linear(f"{block}.norm1.linear", width, (9 if is_dual else 6) * width)
    yield Linear(f"{block}.norm1_context.linear", width, (2 if is_last else 6) * width)
    for projection in (*_OWN, *_CONTEXT, *(() if is_last else ("to_add_out",))):
        yield Linear(f"{block}.attn.{projection}", width, width)
    for projection in _OWN if is_dual else ():
        yield Linear(f"{block}.attn2.{projection}", width, width)
    for stream in ("ff",) if is_last else ("ff", "ff_context"):
        yield Linear(f"{block}.{stream}.net.0.proj", width, _MLP_RATIO * width)
        yield Linear(f"{block}.{stream}.net.2", _MLP_RATIO * width, width)


LARGE = shaped()
"""8,056,627,520 parameters."""
MEDIUM = shaped(blocks=24, dual=range(13), heads=24)
"""2,243,171,520 parameters."""
