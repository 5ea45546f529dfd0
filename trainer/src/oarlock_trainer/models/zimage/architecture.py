"""The Z-Image transformer by its numbers.

Image and text go through a few blocks of their own, and then as one sequence through the others. What a block keeps was
counted of itself (tests/models/test_counted.py), in bfloat16 values a token and width:

- Compiled, 19.05: the inputs of its matrices, three times 8/3 d in its feed-forward part among them, and queries, keys and
  values before and after their norms.
- Compiled with an activation memory budget (models/compute/compiled.py), 14.38.
- Eager, 44.7, and 40.7 where it has no modulation: diffusers' norms keep float32 copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.architecture import Architecture, BlockKind, Kept, Linear

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TIME_CHANNELS, _TIME_HIDDEN = 256, 1024
"""Sines and cosines of the noise level, and their hidden layer."""
_MODULATION_INPUT = 256
"""The most that blocks are modulated by. These three are fixed in diffusers' class."""
_MODULATED, _PLAIN = Kept(44.8, 19.1, 14.4), Kept(40.8, 19.1, 14.4)


def architecture(config: Mapping[str, Any]) -> Architecture:
    """Architecture that a parsed transformer/config.json describes.

    Raises KeyError where a number is missing, ValueError where it is of a variant that is not trained.
    """
    if config.get("siglip_feat_dim"):
        raise ValueError("siglip_feat_dim: the Omni variant is not trained here")
    if len(config["all_patch_size"]) > 1 or not config["qk_norm"]:
        raise ValueError("all_patch_size, qk_norm: one size of patches is known here, and normed queries and keys")
    return shaped(
        blocks=int(config["n_layers"]),
        refiners=int(config["n_refiner_layers"]),
        heads=int(config["n_heads"]),
        width=int(config["dim"]),
        latent_channels=int(config["in_channels"]),
        patch=int(config["all_patch_size"][0]),
        frames=int(config["all_f_patch_size"][0]),
        text_width=int(config["cap_feat_dim"]),
    )


def shaped(
    *,
    blocks: int = 30,
    refiners: int = 2,
    heads: int = 30,
    width: int = 3840,
    latent_channels: int = 16,
    patch: int = 2,
    frames: int = 1,
    text_width: int = 2560,
) -> Architecture:
    """A Z-Image of this shape; the defaults are the published models', which have 6,154,908,736 parameters.

    A token meets 4 d^2 weights of attention and three matrices of a gated feed-forward part, d to 8/3 d, in each block.
    """
    hidden, modulated = int(width / 3 * 8), min(width, _MODULATION_INPUT)
    met, modulation = 4 * width**2 + 3 * width * hidden, 4 * width * modulated
    embedder, token = f"{patch}-{frames}", frames * patch**2 * latent_channels
    lists = (("noise_refiner", refiners, True), ("context_refiner", refiners, False), ("layers", blocks, True))
    return Architecture(
        width=width,
        kinds=(
            BlockKind(number=refiners, met=met, modulation=modulation, kept=_MODULATED, text=False),
            BlockKind(number=refiners, met=met, modulation=0, kept=_PLAIN, image=False),
            BlockKind(number=blocks, met=met, modulation=modulation, kept=_MODULATED),
        ),
        linears=(
            Linear("t_embedder.mlp.0", _TIME_CHANNELS, _TIME_HIDDEN),
            Linear("t_embedder.mlp.2", _TIME_HIDDEN, modulated),
            Linear(f"all_x_embedder.{embedder}", token, width),
            Linear("cap_embedder.1", text_width, width),
            *(
                one
                for name, number, is_modulated in lists
                for place in range(number)
                for one in _block(f"{name}.{place}", width, hidden, modulated if is_modulated else 0)
            ),
            Linear(f"all_final_layer.{embedder}.adaLN_modulation.1", modulated, width),
            Linear(f"all_final_layer.{embedder}.linear", width, token),
        ),
        # norms of blocks, of queries and keys, and of the text; the tokens that image and text are padded with
        others=(2 * refiners + blocks) * (4 * width + 2 * (width // heads)) + text_width + 2 * width,
        latent_channels=latent_channels,
        token_channels=token,
        text_width=text_width,
        pooled_width=0,
        has_guidance=False,
    )


def _block(block: str, width: int, hidden: int, modulated: int) -> Iterator[Linear]:
    """Attention, feed-forward and modulation, if it has any; only that has biases."""
    for projection in ("to_q", "to_k", "to_v", "to_out.0"):
        yield Linear(f"{block}.attention.{projection}", width, width, bias=False)
    for part in ("w1", "w3"):
        yield Linear(f"{block}.feed_forward.{part}", width, hidden, bias=False)
    yield Linear(f"{block}.feed_forward.w2", hidden, width, bias=False)
    if modulated:
        yield Linear(f"{block}.adaLN_modulation.0", modulated, 4 * width)
