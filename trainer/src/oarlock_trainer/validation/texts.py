"""Prompts -> embeddings, once and before the transformer is loaded: no text encoder is needed while training.

They lie in one file below the output, named after the encoders and the texts: a resumed run finds it. Each rank reads
the prompts of its own pictures from it when it makes them. Where the text encoder sees references, a prompt is encoded beside
the one of each picture that it is for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_trainer.data.cache_keys import fingerprints
from oarlock_trainer.models.families import family_of, flavor_of, masks_text, sight_of
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.preprocess.shares import TEXT_BATCH
from oarlock_trainer.runtime.errors import storage
from oarlock_trainer.validation.encoded_once import encoded_once
from oarlock_trainer.validation.image_requests import references_of
from oarlock_trainer.validation.references import key_of, reference_pixels, versions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.locations import Locations
    from oarlock_trainer.validation.image_requests import ImageRequest

    Encoded = tuple[torch.Tensor, torch.Tensor, list[int]]
    _Encode = Callable[[Sequence["PromptText"]], Encoded]

PromptText = tuple[str, str]
"""A text, and the key of the reference that it is encoded beside; "" where it is encoded by itself."""


class Texts:
    """The embeddings of all prompts, in a file."""

    def __init__(self, file: Path, texts: Sequence[PromptText]) -> None:
        """`texts` in the order of the file: each beside a reference, or none of them."""
        self._file = file
        self._places = {text: place for place, text in enumerate(texts)}
        self._seen = any(reference for _, reference in texts)

    def read(self, text: str, wanted: ImageRequest) -> tuple[torch.Tensor, torch.Tensor]:
        """Sequence (1, T, t) and pooled vector (1, p) of a picture's prompt, both bfloat16. Raises StorageError."""
        from safetensors import safe_open  # noqa: PLC0415

        place = self._places[text, key_of(wanted) if self._seen else ""]
        with storage(f"reading {self._file}"), safe_open(self._file, framework="pt") as file:
            return file.get_tensor(f"{place}.sequence")[None], file.get_tensor(f"{place}.pooled")[None]


def prepare_texts(
    job: Job, locations: Locations, ranks: RankGroup, wanted: Sequence[ImageRequest], *, go_on: Callable[[], None]
) -> Texts:
    """The embeddings of all prompts, encoded by rank 0 where they are not there yet. Collective.

    `go_on` is called meanwhile, and may raise to stop. Raises ConfigurationError where one that is seen is no picture.
    """
    files = references_of(job, locations) if sight_of(job.training.model) else None
    beside = {key_of(one): one for one in wanted} if files else {}
    texts = sorted({(text, key_of(one) if files else "") for one in wanted for text in (one.prompt, one.negative)})
    facts: list[object] = [
        fingerprints(_model(job), family_of(job.training.model)).text,
        flavor_of(job.training.model),
        masks_text(job.training),
        texts if files else [text for text, _ in texts],
    ]
    if files:
        facts += [files.where, versions_of(beside)]

    def encode(still: Callable[[], None]) -> dict[str, torch.Tensor]:
        return _encode(job, _encoder(job, ranks, files, beside), texts, still=still)

    return Texts(encoded_once(job.output, ranks, "prompts", facts, encode, go_on=go_on), texts)


def _encoder(job: Job, ranks: RankGroup, files: Files | None, beside: Mapping[str, ImageRequest]) -> _Encode:
    """What encodes texts, each beside its reference where the encoder sees one."""
    model, code = job.training.model, code_of(job.training.model)
    if files is None or code.seeing_encoder is None:
        alone = code.caption_encoder(_model(job), flavor_of(model), ranks.device)
        return lambda some: alone.encode([text for text, _ in some])
    seeing, sight = code.seeing_encoder(_model(job), flavor_of(model), ranks.device), sight_of(model)

    def encode(some: Sequence[PromptText]) -> Encoded:
        return seeing.encode(
            [text for text, _ in some], [reference_pixels(files, beside[key], sight=sight) for _, key in some]
        )

    return encode


def _encode(
    job: Job, encode: _Encode, texts: Sequence[PromptText], *, still: Callable[[], None]
) -> dict[str, torch.Tensor]:
    found, unpadded = {}, masks_text(job.training)
    size = job.training.data.tuning.text_batch_size or TEXT_BATCH
    for start in range(0, len(texts), size):
        still()
        sequences, pooled, lengths = encode(texts[start : start + size])
        for place, (sequence, vector, length) in enumerate(zip(sequences, pooled, lengths, strict=True), start):
            # A single prompt needs no mask: without its padding it is what a masked one would be.
            found[f"{place}.sequence"] = sequence[:length].clone() if unpadded else sequence.clone()
            found[f"{place}.pooled"] = vector.clone()
    return found


def _model(job: Job) -> Path:
    return Path(job.training.model.path or "")
