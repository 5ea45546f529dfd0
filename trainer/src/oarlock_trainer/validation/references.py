"""Reference pictures of prompts -> latents, once and before the transformer is loaded: no encoder is needed while training.

They lie in one file below the output, named after the VAE, the pictures and the sizes: a resumed run finds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from oarlock_api.dataset import CropStyle, ResolutionType, SizeLimits
from oarlock_trainer.data import buckets
from oarlock_trainer.data.cache_keys import encoder_fingerprint
from oarlock_trainer.data.metadata.discovery import header
from oarlock_trainer.data.pair_sizes import seen_cut
from oarlock_trainer.data.quarantine import UNREADABLE
from oarlock_trainer.models.families import family_of, reference_of
from oarlock_trainer.models.family import VAE, Reference
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.preprocess.pictures import decode
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError, failed_reading, storage
from oarlock_trainer.validation.encoded_once import encoded_once
from oarlock_trainer.validation.image_requests import REFERENCES, references_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.models.family import Sight
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.locations import Locations
    from oarlock_trainer.validation.image_requests import ImageRequest


class References:
    """The latents of all references, in a file."""

    def __init__(self, file: Path | None) -> None:
        """None where no picture has a reference."""
        self._file = file

    def read(self, wanted: ImageRequest) -> torch.Tensor | None:
        """(1, R, h, w) bfloat16 (`family.Reference`) of a picture's size; None without a reference. Raises StorageError."""
        from safetensors import safe_open  # noqa: PLC0415

        if wanted.reference is None or self._file is None:
            return None
        with storage(f"reading {self._file}"), safe_open(self._file, framework="pt") as file:
            latents: torch.Tensor = file.get_tensor(key_of(wanted))
            return latents[None]


def prepare_references(
    job: Job, locations: Locations, ranks: RankGroup, wanted: Sequence[ImageRequest], *, go_on: Callable[[], None]
) -> References:
    """The latents of all references, encoded by rank 0 where they are not there yet. Collective.

    `go_on` is called meanwhile, and may raise to stop. Raises ConfigurationError where one is no picture.
    """
    files, family = references_of(job, locations), family_of(job.training.model)
    if files is None:
        return References(None)
    different = {key_of(one): one for one in wanted if one.reference is not None}
    versions = versions_of(different)
    vae = encoder_fingerprint([_model(job) / VAE], family.cache_mark)
    facts = [vae, reference_of(job.training.model), files.where, versions]

    def encode(still: Callable[[], None]) -> dict[str, torch.Tensor]:
        return _encode(job, ranks, files, different, still=still)

    return References(encoded_once(job.output, ranks, "references", facts, encode, go_on=go_on))


def _encode(
    job: Job, ranks: RankGroup, files: Files, wanted: Mapping[str, ImageRequest], *, still: Callable[[], None]
) -> dict[str, torch.Tensor]:
    from oarlock_trainer.models.encoders import PictureEncoder  # noqa: PLC0415 - torch

    model = job.training.model
    encoder, found = PictureEncoder(_model(job), family_of(model), ranks.device, code=code_of(model)), {}
    holes = reference_of(model) is Reference.HOLES
    for key, one in wanted.items():
        still()
        found[key] = encoder.encode_reference(reference_pixels(files, one, holes=holes)[None])[0].contiguous()
    return found


def reference_pixels(
    files: Files, wanted: ImageRequest, *, holes: bool = False, sight: Sight | None = None
) -> np.ndarray:
    """(H, W, 3) uint8, with `holes` 4: the middle of a reference, in the shape of the picture that is drawn.

    In its size, or with `sight` in that of what the text encoder sees. Raises ConfigurationError where it is no picture.
    """
    name = wanted.reference.name if wanted.reference else ""
    try:
        size = header(files, name)
        cut = buckets.cuts(
            (np.array([size.width]), np.array([size.height])),
            (np.array([wanted.width]), np.array([wanted.height])),
            style=CropStyle.CENTER,
            draws=(np.zeros(1), np.zeros(1)),
            limits=SizeLimits(),
            kind=ResolutionType.PIXEL,
        ).one(0)
        return decode(files.read(name), seen_cut(cut, sight), holes=holes)
    except UNREADABLE as error:
        if failed_reading(error):
            raise StorageError(f"reading {name} in {files.where}: {error}") from error
        raise ConfigurationError(
            f"{REFERENCES}: {name} in {files.where} is no picture ({error}): replace it"
        ) from error


def versions_of(wanted: Mapping[str, ImageRequest]) -> list[list[str | None]]:
    """[key, version] of references by their keys, sorted: facts of what is made of them."""
    return [[key, one.reference.version if one.reference else None] for key, one in sorted(wanted.items())]


def key_of(wanted: ImageRequest) -> str:
    """Tells a picture's reference, in the picture's size, from others."""
    return f"{wanted.reference.name if wanted.reference else ''}-{wanted.width}x{wanted.height}"


def _model(job: Job) -> Path:
    return Path(job.training.model.path or "")
