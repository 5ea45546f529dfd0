"""The shift of noise levels that grows with the picture, as a scheduler's own configuration says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def picture_shift(config: Mapping[str, Any], image_tokens: int, *, high: float = 1.15) -> float:
    """Mu of a picture of so many tokens: along the line through two numbers of tokens, as diffusers' `calculate_shift`.

    `high` is what the pipeline takes where the configuration has no `max_shift`.
    """
    few, many = config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096)
    low, most = config.get("base_shift", 0.5), config.get("max_shift", high)
    shift: float = low + (most - low) * (image_tokens - few) / (many - few)
    return shift
