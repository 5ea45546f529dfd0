"""Which pictures a validation makes: every prompt at every size, from training.validation and its library of prompts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from posixpath import splitext
from typing import TYPE_CHECKING, Any

from oarlock_api.training import Task
from oarlock_trainer.data.metadata.listing import pictures
from oarlock_trainer.models import folder
from oarlock_trainer.models.families import family_of, flavor_of
from oarlock_trainer.models.family import SCHEDULER
from oarlock_trainer.runtime.errors import ConfigurationError, NotThereError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oarlock_api.training import Training
    from oarlock_api.validation import Validation
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.files import FileEntry, Files
    from oarlock_trainer.storage.locations import Locations

_FIELD = "training.validation.promptsFrom"
REFERENCES = "training.validation.references"
_MOST_PROMPTS = 256
_LIBRARY_BYTES = 4 * 2**20
_LONGEST_NAME = 120
"""Characters: a file's name has at most 255 bytes, with the size and the mark of a temporary name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRequest:
    """A picture or video of `width` x `height` pixels, both multiples of `grid.edge`; `file`: its name in the step's folder.

    `guidance` is what the model is told, where it can be told; `scale` 1 = one pass, above = with the negative prompt.
    """

    name: str
    prompt: str
    negative: str
    file: str
    width: int
    height: int
    steps: int
    guidance: float
    scale: float
    seed: int
    reference: FileEntry | None = None
    """Below training.validation.references."""
    frames: int | None = None
    """Of a video; None of a picture."""


def read_image_requests(job: Job, locations: Locations) -> list[ImageRequest]:
    """All pictures of one validation, the largest first; none where the job makes none.

    Raises ConfigurationError where promptsFrom is no library of prompts, or the model has no scheduler, and StorageError.
    """
    settings = job.training.validation
    if settings is None or job.training.task is Task.PREPROCESS:
        return []
    scheduler = Path(job.training.model.path or "") / SCHEDULER
    folder.check_file(scheduler, "scheduler_config.json", field="training.model.path")
    prompts = _prompts(job, locations, settings)
    references = _references(job, locations, prompts)
    found = [
        replace(_picture(job.training, settings, name, prompt, size), reference=references.get(name))
        for size in settings.resolutions
        for name, prompt in prompts.items()
    ]
    return sorted(found, key=lambda one: -one.width * one.height * (one.frames or 1))


def references_of(job: Job, locations: Locations) -> Files | None:
    """The place of the prompts' references, if they have such."""
    settings = job.training.validation
    return locations.files_at(settings.references, REFERENCES) if settings and settings.references else None


def _references(job: Job, locations: Locations, prompts: Iterable[str]) -> dict[str, FileEntry]:
    """Name of a prompt -> its reference. Raises ConfigurationError where prompts have none though others have."""
    files = references_of(job, locations)
    if files is None:
        return {}
    found: dict[str, FileEntry] = {}
    for entry in pictures(files.list()):
        found.setdefault(splitext(entry.name)[0], entry)
    if missing := [name for name in prompts if name not in found]:
        raise ConfigurationError(
            f"{REFERENCES}: {files.where} has no picture for {', '.join(missing)}: add {missing[0]}.png, or one with another "
            "ending, or remove the prompt"
        )
    return found


def check_prompts(job: Job, locations: Locations) -> None:
    """What read_image_requests says of the prompts, on a machine without the model."""
    settings = job.training.validation
    if settings and job.training.task is not Task.PREPROCESS:
        _references(job, locations, _prompts(job, locations, settings))


def _prompts(job: Job, locations: Locations, settings: Validation) -> dict[str, str]:
    """Name -> prompt of a picture, with those of promptsFrom."""
    prompts = {one.name: one.prompt for one in settings.prompts}
    for name, prompt in _library(job, locations).items():
        if name in prompts:
            raise ConfigurationError(
                f'{_FIELD}: the prompt "{name}" would get the same file as another one: rename one of the two'
            )
        prompts[name] = prompt
    if not prompts or len(prompts) > _MOST_PROMPTS:
        raise ConfigurationError(
            f"training.validation has {len(prompts)} prompts with those of promptsFrom; 1 to {_MOST_PROMPTS} are meant"
        )
    return prompts


def _picture(training: Training, settings: Validation, name: str, prompt: str, size: str) -> ImageRequest:
    family = family_of(training.model)
    least, usual = family.grid.edge, family.flavors[flavor_of(training.model)]
    width, height = (max(int(edge) // least, 1) * least for edge in size.split("x"))
    guidance = usual.guidance if settings.guidance is None else settings.guidance
    twice = usual.is_guided_twice or settings.negative_prompt is not None
    return ImageRequest(
        name=name,
        prompt=prompt,
        negative=settings.negative_prompt or "",
        file=f"{name}-{size}.png",
        width=width,
        height=height,
        steps=settings.inference_steps or usual.steps,
        guidance=1.0 if twice else guidance,
        scale=max(guidance - family.unguided + 1.0, 1.0) if twice else 1.0,  # below, pipelines make one pass as well
        seed=training.seed if settings.seed is None else settings.seed,
        frames=settings.frames if settings.frames > 1 else None,
    )


def _library(job: Job, locations: Locations) -> dict[str, str]:
    """Name -> prompt of promptsFrom. A name that is no file's gets hyphens."""
    location = job.training.validation and job.training.validation.prompts_from
    if not location:
        return {}
    files, name = locations.file_at(location, _FIELD)
    try:
        body = files.read(name, 0, _LIBRARY_BYTES + 1)
        raw: Any = json.loads(body) if len(body) <= _LIBRARY_BYTES else None
    except FileNotFoundError as error:
        missing = f"{_FIELD}: {files.where} has no {name}"
        if location.path is None:
            raise ConfigurationError(f"{missing}: correct the field") from error
        raise NotThereError.of(missing, "mount its volume with pod.volumes, or correct the field") from error
    except ValueError as error:
        raise ConfigurationError(f"{_FIELD}: {name} in {files.where} is no JSON ({error}): correct the file") from error
    if not isinstance(raw, dict):
        raise ConfigurationError(
            f"{_FIELD}: {name} in {files.where} is no JSON object of at most {_LIBRARY_BYTES // 2**20} MiB: give each "
            'prompt a name, as in {"boat": "a boat on a lake"}'
        )
    found: dict[str, str] = {}
    keys: dict[str, str] = {}
    for key, value in raw.items():
        prompt = value.get("prompt") if isinstance(value, dict) else value
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", key).strip("-.")[:_LONGEST_NAME]
        if not isinstance(prompt, str):
            raise ConfigurationError(f'{_FIELD}: "{key}" in {name} has no text: write its prompt as one')
        if not plain:
            raise ConfigurationError(
                f'{_FIELD}: "{key}" in {name} has none of a-z, A-Z and 0-9, by which its files are named: give it such a name'
            )
        if (other := keys.setdefault(plain.lower(), key)) != key:
            raise ConfigurationError(
                f'{_FIELD}: "{key}" and "{other}" in {name} would both be drawn into files called {plain}: name one anew'
            )
        found[plain] = prompt
    return found
