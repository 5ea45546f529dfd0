"""What was counted of one model, for whoever has no torch: a row for each kind of block, and one for the rest.

Of one sample; FLOPs as in `flops`, bytes as in `kept`, each by its three coefficients (`scaling`).
"""

from __future__ import annotations

from dataclasses import dataclass

from oarlock_trainer.plan.counting.scaling import Coefficients, at, by_pair, by_token


@dataclass(frozen=True, slots=True)
class Pass:
    """FLOPs of one pass: products with weights grow with tokens, attention with pairs of them."""

    matrices: Coefficients
    attention: Coefficients

    def at(self, *, image: int, text: int) -> int:
        """With so many tokens."""
        return at(self.matrices, by_token((image, text))) + at(self.attention, by_pair((image, text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Bytes between the passes."""

    inputs: Coefficients
    """Of what goes from block to block: all that is kept of one that is recomputed."""
    eager: Coefficients
    compiled: Coefficients | None = None
    lean: Coefficients | None = None
    """Compiled with an activation memory budget. Neither was counted where they are None."""

    def bytes(self, how: Coefficients, *, image: int, text: int) -> int:
        """Of one of these, with so many tokens."""
        return at(how, by_token((image, text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a kind, and how many there are."""

    name: str
    number: int
    parameters: int
    forward: Pass
    backward: Pass
    frozen: Pass
    """The backward pass where no weight is trained: gradients of what goes from block to block."""
    kept: Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A whole model."""

    parameters: int
    blocks: tuple[Block, ...]
    rest_forward: Pass
    rest_backward: Pass
    """Of what is in no block."""

    def flops(self, *, image: int, text: int) -> int:
        """Of one sample's forward and backward pass."""
        tokens = {"image": image, "text": text}
        blocks = sum(one.number * (one.forward.at(**tokens) + one.backward.at(**tokens)) for one in self.blocks)
        return blocks + self.rest_forward.at(**tokens) + self.rest_backward.at(**tokens)
