"""What a transformer is like, by its numbers alone: enough to plan memory and time with, without torch and its weights.

A family makes one from the transformer's config.json. Every Linear is listed by the name that diffusers gives it, because
adapters are placed by name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """One matrix, by its name in the transformer."""

    name: str
    inputs: int
    outputs: int
    bias: bool = True

    @property
    def parameters(self) -> int:
        """Those of its bias, too."""
        return (self.inputs + self.bias) * self.outputs


@dataclass(frozen=True, slots=True)
class Kept:
    """Widths a token that a block keeps for the backward pass where it is not recomputed: see plan/activations.py."""

    eager: float
    compiled: float
    lean: float
    """Compiled with an activation memory budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKind:
    """Blocks that are alike."""

    number: int
    met: int
    """Weights of a block's products that each token meets."""
    modulation: int
    """Weights of a block that scale and shift whole samples."""
    kept: Kept
    text_met: int | None = None
    """What the text's tokens meet, where it is not as much."""
    image: bool = True
    text: bool = True
    """Whether the image's tokens go through these blocks, and the text's."""
    alone: int = 0
    """How often the image's tokens attend to each other alone, beside the attention of all."""
    cross_attention: bool = False
    """The image's tokens attend to each other alone, and then to the text's, which attend to nothing."""

    def share(self, text_share: float) -> float:
        """Of a sample's tokens, of which the text has `text_share`, those that go through these blocks. Both 0..1."""
        return self.image * (1.0 - text_share) + self.text * text_share

    def met_by(self, text_share: float) -> float:
        """Weights that a sample's token meets on average, where the text has `text_share` of its tokens, 0..1."""
        text = self.met if self.text_met is None else self.text_met
        return self.image * self.met * (1.0 - text_share) + self.text * text * text_share

    def attended(self, tokens: int, text_share: float) -> float:
        """Pairs of a query and a key in one sample of so many tokens, of which the text has `text_share`, 0..1."""
        all_of_them, image = self.share(text_share) * tokens, (1.0 - text_share) * tokens
        if self.cross_attention:
            return image * all_of_them
        return all_of_them**2 + self.alone * image**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The transformer of one model."""

    width: int
    """Numbers that a token is inside the blocks (d)."""
    kinds: tuple[BlockKind, ...]
    """In the order of the forward pass."""
    linears: tuple[Linear, ...]
    others: int
    """Parameters that are no Linear's, such as those of norms."""
    latent_channels: int
    token_channels: int
    """Numbers of a token's latents."""
    text_width: int
    pooled_width: int
    has_guidance: bool
    """Whether the model is told a guidance value."""

    @property
    def blocks(self) -> int:
        """Blocks of all kinds."""
        return sum(kind.number for kind in self.kinds)
