"""Prompts -> embeddings, once and before the transformer is loaded: no text encoder is needed while training.

They lie in one file below the output, named after the encoders and the texts: a resumed run finds it. Each rank reads
the prompts of its own pictures from it when it makes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_trainer.data.cache_keys import fingerprints
from oarlock_trainer.models.families import family_of, flavor_of, masks_text
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.preprocess.shares import TEXT_BATCH
from oarlock_trainer.runtime.errors import storage
from oarlock_trainer.validation.encoded_once import encoded_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.validation.image_requests import ImageRequest


class Texts:
    """The embeddings of all prompts, in a file."""

    def __init__(self, file: Path, texts: Sequence[str]) -> None:
        self._file = file
        self._places = {text: place for place, text in enumerate(texts)}

    def read(self, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Sequence (1, T, t) and pooled vector (1, p) of a prompt, both bfloat16. Raises StorageError."""
        from safetensors import safe_open  # noqa: PLC0415

        place = self._places[text]
        with storage(f"reading {self._file}"), safe_open(self._file, framework="pt") as file:
            return file.get_tensor(f"{place}.sequence")[None], file.get_tensor(f"{place}.pooled")[None]


def prepare_texts(job: Job, ranks: RankGroup, wanted: Sequence[ImageRequest], *, go_on: Callable[[], None]) -> Texts:
    """The embeddings of all prompts, encoded by rank 0 where they are not there yet. Collective.

    `go_on` is called meanwhile, and may raise to stop.
    """
    texts = sorted({text for one in wanted for text in (one.prompt, one.negative)})
    unpadded = masks_text(job.training)
    facts = [
        fingerprints(_model(job), family_of(job.training.model)).text,
        flavor_of(job.training.model),
        unpadded,
        texts,
    ]

    def encode(still: Callable[[], None]) -> dict[str, torch.Tensor]:
        return _encode(job, ranks, texts, unpadded=unpadded, still=still)

    return Texts(encoded_once(job.output, ranks, "prompts", facts, encode, go_on=go_on), texts)


def _encode(
    job: Job, ranks: RankGroup, texts: Sequence[str], *, unpadded: bool, still: Callable[[], None]
) -> dict[str, torch.Tensor]:
    encoder = code_of(job.training.model).caption_encoder(_model(job), flavor_of(job.training.model), ranks.device)
    found = {}
    size = job.training.data.tuning.text_batch_size or TEXT_BATCH
    for start in range(0, len(texts), size):
        still()
        sequences, pooled, lengths = encoder.encode(texts[start : start + size])
        for place, (sequence, vector, length) in enumerate(zip(sequences, pooled, lengths, strict=True), start):
            # A single prompt needs no mask: without its padding it is what a masked one would be.
            found[f"{place}.sequence"] = sequence[:length].clone() if unpadded else sequence.clone()
            found[f"{place}.pooled"] = vector.clone()
    return found


def _model(job: Job) -> Path:
    return Path(job.training.model.path or "")
