"""The Wan transformer by its numbers: blocks in which the image's tokens attend to each other, and then to the text's.

What a block keeps was counted by plan/counting (tests/models/test_counted.py), in bfloat16 values an image token and
width, beside the feed-forward part: 25.08 eager, 17.08 compiled, 12.08 lean. A text token keeps 3.01, 3.01 and 2.01, for it
is key and value alone: a plan that takes it for an image token is above that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.architecture import Architecture, BlockKind, Kept, Linear

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PROJECTIONS = ("to_q", "to_k", "to_v", "to_out.0")
_OF_OTHER_VARIANTS = ("image_dim", "added_kv_proj_dim", "pos_embed_seq_len")
"""Of models that are given a first frame."""
_KEPT = Kept(25.1, 17.1, 12.1)
_OF_HIDDEN = Kept(2.0, 2.0, 1.0)
"""Of the feed-forward part, for each of its widths: it is more than twice as wide in T2V-1.3B as in T2V-14B."""


def architecture(config: Mapping[str, Any]) -> Architecture:
    """Architecture that a parsed transformer/config.json describes.

    Raises KeyError where a number is missing, ValueError where it is of a variant that is not trained.
    """
    if other := [name for name in _OF_OTHER_VARIANTS if config.get(name)]:
        raise ValueError(f"{', '.join(other)}: this variant is given a first frame, and is not trained here")
    channels, patch = int(config["in_channels"]), tuple(config["patch_size"])
    if (config.get("out_channels") or channels) != channels:
        raise ValueError("in_channels, out_channels: this variant is given more than noise, and is not trained here")
    if patch[0] != 1 or patch[1] != patch[2]:
        raise ValueError(f"patch_size {list(patch)}: a token of several frames, or no square, is not trained here")
    if not config["cross_attn_norm"] or config["qk_norm"] != "rms_norm_across_heads":
        raise ValueError("cross_attn_norm, qk_norm: this variant is not trained here")
    return shaped(
        blocks=int(config["num_layers"]),
        heads=int(config["num_attention_heads"]),
        head_width=int(config["attention_head_dim"]),
        hidden=int(config["ffn_dim"]),
        channels=channels,
        patch=int(patch[1]),
        text_width=int(config["text_dim"]),
        time_channels=int(config["freq_dim"]),
    )


def shaped(
    *,
    blocks: int = 30,
    heads: int = 12,
    head_width: int = 128,
    hidden: int = 8960,
    channels: int = 16,
    patch: int = 2,
    text_width: int = 4096,
    time_channels: int = 256,
) -> Architecture:
    """A Wan transformer of this shape; the defaults are the published T2V-1.3B's, which has 1,418,996,800 parameters.

    An image token meets 4 d^2 weights of self-attention, 2 d^2 of cross-attention, and the feed-forward part; a text token
    2 d^2, by which it becomes key and value. Nothing in a block scales whole samples by a product: one for all blocks does.
    """
    width, token = heads * head_width, channels * patch**2
    kind = BlockKind(
        number=blocks,
        met=6 * width**2 + 2 * width * hidden,
        text_met=2 * width**2,
        modulation=0,
        kept=_kept(hidden / width),
        cross_attention=True,
    )
    return Architecture(
        width=width,
        kinds=(kind,),
        linears=(
            Linear("condition_embedder.time_embedder.linear_1", time_channels, width),
            Linear("condition_embedder.time_embedder.linear_2", width, width),
            Linear("condition_embedder.time_proj", width, 6 * width),
            Linear("condition_embedder.text_embedder.linear_1", text_width, width),
            Linear("condition_embedder.text_embedder.linear_2", width, width),
            *(one for number in range(blocks) for one in _block(f"blocks.{number}", width, hidden)),
            Linear("proj_out", width, token),
        ),
        # A block's table of 6 d, norms of queries and keys in both attentions, and one with weight and bias; then the
        # patches' convolution and the last table.
        others=blocks * (6 + 4 + 2) * width + (token + 1) * width + 2 * width,
        latent_channels=channels,
        token_channels=token,
        text_width=text_width,
        pooled_width=0,
        has_guidance=False,
    )


def _kept(ratio: float) -> Kept:
    """Of a block whose feed-forward part is `ratio` widths wide."""
    return Kept(
        _KEPT.eager + ratio * _OF_HIDDEN.eager,
        _KEPT.compiled + ratio * _OF_HIDDEN.compiled,
        _KEPT.lean + ratio * _OF_HIDDEN.lean,
    )


def _block(block: str, width: int, hidden: int) -> Iterator[Linear]:
    """Self-attention, cross-attention and the feed-forward part."""
    for attention in ("attn1", "attn2"):
        for projection in _PROJECTIONS:
            yield Linear(f"{block}.{attention}.{projection}", width, width)
    yield Linear(f"{block}.ffn.net.0.proj", width, hidden)
    yield Linear(f"{block}.ffn.net.2", hidden, width)
