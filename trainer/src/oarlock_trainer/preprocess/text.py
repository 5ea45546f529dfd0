"""Captions -> text embeddings: one record per caption, the CLIP vector first, then the T5 sequence.

diffusers feeds FLUX.1 the padded T5 sequence without a mask, and the padding positions carry values that depend on the
caption. So the whole sequence is kept, unless padding is masked in training (objective.attentionMask): then only the
positions that are no padding are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oarlock_trainer.preprocess.latents import bits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oarlock_trainer.data.shards import ShardWriter
    from oarlock_trainer.models.flux.encode import CaptionEncoder


def encode_captions(
    work: Sequence[tuple[str, str]],
    encoder: CaptionEncoder,
    writer: ShardWriter,
    *,
    batch_size: int,
    unpadded: bool,
    go_on: Callable[[], None],
) -> None:
    """Encode (key, caption) pairs; a record's shape is (tokens kept, T5 width, CLIP width)."""
    for start in range(0, len(work), batch_size):
        go_on()
        batch = work[start : start + batch_size]
        sequences, pooled, lengths = encoder.encode([caption for _, caption in batch])
        for (key, _), sequence, vector, length in zip(batch, sequences, pooled, lengths, strict=True):
            kept = sequence[:length] if unpadded else sequence
            record = torch.cat([vector, kept.reshape(-1)])
            writer.append(key, bits(record), (len(kept), kept.shape[1], len(vector)))
