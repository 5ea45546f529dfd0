"""Captions that are encoded while training (data.textEmbedsMode OnTheFly): nothing of them is stored.

What a caption is encoded to is what the cache would hold. The empty caption, which stands for those that are dropped, is
encoded once.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from oarlock_trainer.models.compute.own_stream import OwnStream
from oarlock_trainer.models.families import flavor_of, masks_text
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.plan.text_encoders import live_captions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job

    Text = tuple[torch.Tensor, torch.Tensor]


class LiveText:
    """The text encoders of a rank, at work beside training. Safe to use from several threads, one at a time computes."""

    def __init__(self, job: Job, ranks: RankGroup, *, streamed: bool) -> None:
        """Loads the encoders. `streamed`: their weights stay in the node's memory.

        In the main thread: while transformers is imported no other thread may import diffusers' classes.
        """
        training = job.training
        self._unpadded = masks_text(training)
        self._at_once = live_captions(training)
        self._stream, self._working = OwnStream(ranks.device), Lock()
        with self._stream.entered():
            folder = Path(training.model.path or "")
            make = code_of(training.model).caption_encoder
            self._encoder = make(folder, flavor_of(training.model), ranks.device, streamed=streamed)
        self._empty = self._encoded([""])[0]

    def encode(self, captions: Sequence[str]) -> list[Text]:
        """Pooled vector (p,) and sequence (T, t) of each, bfloat16 on the CPU; without padding where that is masked."""
        distinct = [caption for caption in dict.fromkeys(captions) if caption]
        found = dict(zip(distinct, self._encoded(distinct), strict=True)) | {"": self._empty}
        return [found[caption] for caption in captions]

    def _encoded(self, captions: Sequence[str]) -> list[Text]:
        found: list[Text] = []
        with self._working, self._stream.entered():
            for some in _batches(captions, self._at_once):
                made = zip(*self._encoder.encode(some), strict=True)
                found += [
                    (pooled, sequence[:length] if self._unpadded else sequence) for sequence, pooled, length in made
                ]
        return found


def _batches(captions: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (captions[start : start + size] for start in range(0, len(captions), size))
