"""Captions -> text embeddings: one record per caption, the pooled vector first, then the sequence.

Where diffusers feeds a model the padded sequence without a mask, the padding positions carry values that depend on the
caption. So the whole sequence is kept, unless padding is masked in training (objective.attentionMask): then only the
positions that are no padding are.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING

import torch

from oarlock_trainer.data.shards import Shard
from oarlock_trainer.preprocess.latents import bits
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.stages import PipelineStage, Stages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np

    from oarlock_trainer.data.progress import Progress
    from oarlock_trainer.models.family_code import CaptionEncoder
    from oarlock_trainer.preprocess.storing import Storing
    from oarlock_trainer.storage.files import Files

_SHOWN = 80
"""Letters of a caption in a line for people."""


def encode_captions(
    tasks: Iterable[tuple[int, bytes, str]],
    encoder: CaptionEncoder,
    out: Storing,
    *,
    store: Files,
    batch_size: int,
    unpadded: bool,
    progress: Progress,
    go_on: Callable[[], None],
) -> None:
    """Encode (unit, key, caption), each unit into a shard of its own; a record's shape is (tokens, width, pooled width).

    `go_on` as in encode_pictures. People are told of captions that fill all the tokens that the encoder takes.
    """
    long, first = 0, ""
    encoding = PipelineStage("encode", 1)
    stages = (encoding, *out.stages)
    with progress.over(stages), Stages(stages, making=1):
        for _, members in groupby(tasks, key=lambda task: task[0]):
            shard = Shard()
            while batch := list(islice(members, batch_size)):
                go_on()
                with encoding.working():
                    sequences, pooled, lengths = encoder.encode([caption for _, _, caption in batch])
                full = [
                    caption for (_, _, caption), length in zip(batch, lengths, strict=True) if length >= encoder.tokens
                ]
                long, first = long + len(full), first or next(iter(full), "")
                records = []
                for (_, key, _), sequence, vector, length in zip(batch, sequences, pooled, lengths, strict=True):
                    kept = sequence[:length] if unpadded else sequence
                    shape = (len(kept), kept.shape[1], len(vector))
                    records.append(out.pack(key, shape, partial(values, vector, kept)))
                out.put(shard, records)
                progress.advance(len(batch))
            out.publish(shard, store)
        out.drain()
    if long:
        channel.tell(
            f"{long} of this rank's captions have {encoder.tokens} tokens or more, which is what the model reads: what "
            f"follows in them is not seen. The first begins: {first[:_SHOWN]!r}"
        )


def values(vector: torch.Tensor, sequence: torch.Tensor) -> np.ndarray:
    """What a record holds of a pooled vector (p,) and a sequence (T, t), as flat uint16."""
    return bits(torch.cat([vector, sequence.reshape(-1)]))
