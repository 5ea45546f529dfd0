"""How many parameters a FLUX transformer has and how many of them are trained, from its configuration alone.

No weights are read and torch is not imported: the answer is needed before anything heavy is begun. Every Linear is
listed by the name that diffusers gives it, because adapters are placed by name.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_api.weights import AdapterAlgorithm
from oarlock_trainer.models.adapters.lokr_shapes import factor_shapes
from oarlock_trainer.models.adapters.targets import targeted
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from oarlock_api.weights import Lora

_TIME_CHANNELS = 256
"""Sines and cosines of the noise level and of the guidance: fixed in diffusers' classes."""
_MLP_RATIO = 4
_ATTENTION = ("to_q", "to_k", "to_v")
_OUTPUT = ("to_out.0",)
_CONTEXT = ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What transformer/config.json says of the shape; the defaults are FLUX.1-dev's."""

    double_blocks: int = 19
    single_blocks: int = 38
    heads: int = 24
    head_width: int = 128
    packed_channels: int = 64
    out_channels: int = 64
    text_width: int = 4096
    pooled_width: int = 768
    has_guidance: bool = True

    @property
    def blocks(self) -> int:
        """Blocks of both kinds."""
        return self.double_blocks + self.single_blocks

    @property
    def width(self) -> int:
        """Numbers that a token is inside the blocks (d)."""
        return self.heads * self.head_width


@dataclass(frozen=True, slots=True)
class Linear:
    """One matrix with its bias, by its name in the transformer."""

    name: str
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of parameters. Where adapters are trained, `frozen` are all of the model's own."""

    trained: int
    frozen: int
    largest: int
    """Of one trained tensor: no bucket may be smaller."""


def read_architecture(model: Path) -> Architecture:
    """Architecture of the transformer in a diffusers directory. Raises ConfigurationError where there is none."""
    path = model / "transformer" / "config.json"
    try:
        return architecture(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"training.model: {path} cannot be read ({error!r}): model.path must be a FLUX.1 directory in the layout of "
            "diffusers, with transformer, vae, text_encoder, text_encoder_2, tokenizer and tokenizer_2"
        ) from error


def architecture(config: Mapping[str, Any]) -> Architecture:
    """Architecture that a parsed transformer/config.json describes. Raises KeyError where a number is missing."""
    return Architecture(
        double_blocks=int(config["num_layers"]),
        single_blocks=int(config["num_single_layers"]),
        heads=int(config["num_attention_heads"]),
        head_width=int(config["attention_head_dim"]),
        packed_channels=int(config["in_channels"]),
        out_channels=int(config.get("patch_size") or 1) ** 2 * int(config.get("out_channels") or config["in_channels"]),
        text_width=int(config["joint_attention_dim"]),
        pooled_width=int(config["pooled_projection_dim"]),
        has_guidance=bool(config.get("guidance_embeds")),
    )


def whole(shape: Architecture) -> Parameters:
    """All parameters are trained. 11,901,408,320 for FLUX.1-dev."""
    layers = list(linears(shape))
    norms = (4 * shape.double_blocks + 2 * shape.single_blocks) * shape.head_width  # of queries and keys
    return Parameters(
        trained=sum(one.inputs * one.outputs + one.outputs for one in layers) + norms,
        frozen=0,
        largest=max(one.inputs * one.outputs for one in layers),
    )


def adapters(shape: Architecture, settings: Lora) -> Parameters:
    """The factors beside every targeted Linear are trained.

    LoRA: two matrices, (inputs, rank) and (rank, outputs) (Hu et al. 2021). LoKr: those of lokr_shapes. Raises
    ConfigurationError where a target is no layer.
    """
    layers = {one.name: one for one in linears(shape)}
    names = targeted(settings.targets, list(layers))
    sizes = [size for name in names for size in _factors(layers[name], settings)]
    return Parameters(trained=sum(sizes), frozen=whole(shape).trained, largest=max(sizes))


def _factors(layer: Linear, settings: Lora) -> list[int]:
    """Elements of each factor of an adapter."""
    if settings.algorithm is AdapterAlgorithm.LORA:
        return [settings.rank * layer.inputs, settings.rank * layer.outputs]
    shapes = factor_shapes(layer.name, outputs=layer.outputs, inputs=layer.inputs, settings=settings)
    return [math.prod(one) for one in shapes.values()]


def linears(shape: Architecture) -> Iterator[Linear]:
    """Every Linear of diffusers' FluxTransformer2DModel."""
    width = shape.width
    embedders = ["timestep_embedder", *(["guidance_embedder"] if shape.has_guidance else [])]
    for name, inputs in [*((name, _TIME_CHANNELS) for name in embedders), ("text_embedder", shape.pooled_width)]:
        yield Linear(f"time_text_embed.{name}.linear_1", inputs, width)
        yield Linear(f"time_text_embed.{name}.linear_2", width, width)
    yield Linear("context_embedder", shape.text_width, width)
    yield Linear("x_embedder", shape.packed_channels, width)
    for number in range(shape.double_blocks):
        yield from _double_block(f"transformer_blocks.{number}", width)
    for number in range(shape.single_blocks):
        yield from _single_block(f"single_transformer_blocks.{number}", width)
    yield Linear("norm_out.linear", width, 2 * width)
    yield Linear("proj_out", width, shape.out_channels)


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
