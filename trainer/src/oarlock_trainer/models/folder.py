"""Whether a folder is a model of a family that this pod can read: asked before anything heavy is loaded.

The libraries would say it late, one file at a time, and in words about repositories of a model hub.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from oarlock_trainer.models.family import MODEL_INDEX, TRANSFORMER, Reference
from oarlock_trainer.runtime.errors import ConfigurationError, NotThereError, StorageError, failed_reading, readable
from oarlock_trainer.runtime.walking import walk_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oarlock_trainer.models.family import Family, Flavor

_CONFIG = "config.json"
_VOCABULARIES = ("tokenizer.json", "vocab.json", "spiece.model")
_NOTHING = (None, False, [None, None])
"""How a pipeline's index says that a part or a setting is not there."""


def check(model: Path, family: Family, *, field: str) -> None:
    """Raise ConfigurationError where `model`, which the job's `field` names, is no complete model of the family."""
    with readable(field, model):
        _check_parts(model, family, field, family.networks)


def check_beside_transformer(model: Path, family: Family, *, field: str) -> None:
    """The same for a folder of which all but the transformer's weights is taken, which may be missing."""
    with readable(field, model):
        _check_parts(model, family, field, [name for name in family.networks if name != TRANSFORMER])


def is_sketch(model: Path, family: Family) -> bool:
    """Whether a folder has a transformer's configuration and no weights at all: what somebody brings to plan with."""
    return has_configuration(model) and not any(_weights(model / name) for name in family.networks)


def has_configuration(model: Path) -> bool:
    """Whether a transformer's configuration can be read; what stands in the way is for `check` to say."""
    return os.access(model / TRANSFORMER / _CONFIG, os.R_OK)


def check_sketch(model: Path, family: Family, *, field: str) -> None:
    """Raise ConfigurationError where such a folder's configuration is of another model."""
    with readable(field, model):
        told = list(_wrong_pipeline(model, family)) if (model / MODEL_INDEX).is_file() else []
        if wrong := [*told, *_wrong_configuration(model, family, TRANSFORMER)]:
            _refuse(model, family, field, wrong)


def check_transformer(model: Path, family: Family, *, field: str) -> None:
    """The same for a folder of which only the transformer is taken."""
    with readable(field, model):
        _check_folder(model, field)
        if wrong := list(_wrong_networks(model, family, [TRANSFORMER])):
            _refuse(model, family, field, wrong)
        _open_all(model / TRANSFORMER, field)


def check_file(folder: Path, name: str, *, field: str) -> None:
    """The same for a folder of which one file is taken."""
    with readable(field, folder):
        _check_folder(folder, field)
        if not (folder / name).is_file():
            raise ConfigurationError(
                f"{field}: {folder} has no {name}, but {_contents(folder)}: name the folder that has it"
            )
        _open_all(folder, field)


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """Turn what the libraries say of files that they cannot load into ConfigurationError, and a lost mount into its own."""
    from safetensors import SafetensorError  # noqa: PLC0415 - torch comes with it

    try:
        with readable("training.model", folder):
            yield
    except (OSError, ValueError, SafetensorError) as error:
        if failed_reading(error):
            raise StorageError(f"loading {folder}: {error}") from error
        raise ConfigurationError(
            f"training.model: {folder} cannot be loaded: compare its files with those of the original ({error})"
        ) from error


def _check_folder(model: Path, field: str) -> None:
    if model.is_dir():
        return
    there = next(folder for folder in model.parents if folder.is_dir())
    raise NotThereError.of(
        f"{field}: {model} is no folder here, {there} holds {_contents(there)}",
        f"mount it with pod.volumes, or correct {field}",
    )


def _check_parts(model: Path, family: Family, field: str, networks: Iterable[str]) -> None:
    _check_folder(model, field)
    if not (model / MODEL_INDEX).is_file():
        _refuse(model, family, field, [f"{MODEL_INDEX} is missing"])
    wrong = [
        *_wrong_pipeline(model, family),
        *_wrong_networks(model, family, networks),
        *_wrong_tokenizers(model, family),
    ]
    if wrong:
        _refuse(model, family, field, wrong)
    _open_all(model, field)  # also what only the export copies, days later


def _wrong_pipeline(model: Path, family: Family) -> Iterator[str]:
    """Whether it is another flavor's or model's: the pipeline's name, or what stands beside it, may be all that tells."""
    index = _read(model / MODEL_INDEX)
    kind = index.get("_class_name")
    if family.pipelines and kind not in family.pipelines:
        yield (
            f"{MODEL_INDEX} names {kind or 'no class'}, and not {family.pipelines[0]}: set model.flavor to what the folder "
            "is, or name the folder of another model"
        )
    for name, other in family.foreign.items():
        if index.get(name) not in _NOTHING:
            yield f"{MODEL_INDEX} has {name}: it is {other}, which is not trained here"


def _wrong_networks(model: Path, family: Family, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        folder = model / name
        if not folder.is_dir():
            yield f"{name} is missing"
            continue
        yield from _wrong_configuration(model, family, name)
        if not _weights(folder):
            yield f"{name} has no weights (*.safetensors)"
        for index in sorted(folder.glob("*.index.json")):
            listed = set((_read(index).get("weight_map") or {}).values())
            yield from (f"{name}/{part} is missing" for part in sorted(listed) if not (folder / part).is_file())


def _wrong_configuration(model: Path, family: Family, name: str) -> Iterator[str]:
    path, expected = model / name / _CONFIG, family.transformer.name
    if not path.is_file():
        yield f"{name}/{_CONFIG} is missing"
    elif name == TRANSFORMER and (kind := (config := _read(path)).get("_class_name")) != expected:
        yield f"{name} is of {f'the class {kind}' if kind else 'no class'}, {family.name}'s is {expected}"
    elif name == TRANSFORMER:
        yield from _wrong_inputs(config, family)


def _wrong_inputs(config: dict[str, Any], family: Family) -> Iterator[str]:
    """Whether it is another flavor's: of one class some are given a reference beside the noise, and some are not."""
    try:
        shape = family.architecture(config)
    except (KeyError, TypeError, ValueError):
        return  # whoever reads all of it says what is wrong
    try:
        found = family.beside(shape)
    except ValueError as error:
        yield f"{TRANSFORMER} is of no flavor that is trained here: {error}"
        return
    wanted = family.beside(family.published)
    if found is wanted:
        return
    flavors = " or ".join(name for name, one in family.flavors.items() if _is_given(one, found))
    yield f"{TRANSFORMER} is given {_GIVEN[found]} beside the noise, not {_GIVEN[wanted]}: set model.flavor to {flavors}"


_GIVEN = {None: "nothing", Reference.BESIDE: "a reference", Reference.HOLES: "a reference with holes"}


def _is_given(flavor: Flavor, beside: Reference | None) -> bool:
    """Whether a flavor's models have just that beside the noise."""
    return flavor.reference is beside or (beside is None and flavor.reference is Reference.BEHIND)


def _weights(folder: Path) -> list[Path]:
    return [*folder.glob("*.safetensors"), *folder.glob("*.bin")]


def _wrong_tokenizers(model: Path, family: Family) -> Iterator[str]:
    for name in family.tokenizers:
        if not any((model / name / vocabulary).is_file() for vocabulary in _VOCABULARIES):
            yield f"{name} is missing" if not (model / name).is_dir() else f"{name} has no vocabulary"


def _refuse(model: Path, family: Family, field: str, wrong: list[str]) -> NoReturn:
    hint = "" if (model / MODEL_INDEX).is_file() or not (near := _near(model)) else f"; {near} may be meant"
    raise ConfigurationError(
        f"{field}: {model} is no {family.name} model in the layout of diffusers: {', '.join(wrong)}. {field} must be a "
        f"folder with {MODEL_INDEX}, {', '.join((*family.networks, *family.tokenizers))}{hint}"
    )


def _near(model: Path) -> Path | None:
    """A model one level up or down, or in a folder of the hub's cache (snapshots/REVISION)."""
    near = [
        model.parent / MODEL_INDEX,
        *sorted(model.glob(f"*/{MODEL_INDEX}")),
        *sorted(model.glob(f"snapshots/*/{MODEL_INDEX}")),
    ]
    return next((path.parent for path in near if path.is_file()), None)


def _open_all(folder: Path, field: str) -> None:
    for inside, subfolders, names in walk_links(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for path in (inside / name for name in names if not name.startswith(".")):
            try:
                path.open("rb").close()
            except FileNotFoundError as error:
                raise ConfigurationError(
                    f"{field}: {path} leads to {path.resolve()}, which is not there: mount the folder that "
                    "both lie in, or copy the model as plain files"
                ) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(
            f"training.model: {path} is no JSON ({error}): compare it with the original"
        ) from error
    return found if isinstance(found, dict) else {}


def _contents(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    shown = ", ".join(names[:8]) or "nothing"
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
