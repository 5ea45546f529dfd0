"""Which files of a model's repository a job needs: a published one may be 58 GB, of which diffusers reads 34."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.models.family import MODEL_INDEX, SCHEDULER, TRANSFORMER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oarlock_trainer.models.family import Family

_AT_THE_TOP = (MODEL_INDEX, "LICENSE.md", "LICENSE")
_WEIGHTS = (".safetensors", ".bin")
_INDEX_OF_PARTS = ".index.json"


def of_model(names: Iterable[str], family: Family) -> list[str]:
    """Of a repository's files, those of the model in diffusers' layout: no second copy of any weights."""
    folders = {*family.networks, *family.tokenizers, SCHEDULER}
    found = _by_folder(names, family)
    return [name for name in found if name in _AT_THE_TOP or name.partition("/")[0] in folders]


def of_any_copy(names: Iterable[str], family: Family) -> list[str]:
    """Those that somebody could read as the model's: weights in every format and variant, too."""
    return [
        name
        for name in names
        for folder in [name.partition("/")[0]]
        if name in _AT_THE_TOP
        or folder in {*family.tokenizers, SCHEDULER}
        or (folder in family.networks and name.endswith((".json", *_WEIGHTS)))
    ]


def of_transformer(names: Iterable[str], family: Family) -> list[str]:
    """Those of the transformer alone."""
    return [name for name in of_model(names, family) if name.startswith(f"{TRANSFORMER}/")]


def is_light(name: str) -> bool:
    """Whether a file is read to plan: all but the weights."""
    return not name.endswith(_WEIGHTS)


def _by_folder(names: Iterable[str], family: Family) -> list[str]:
    folders: dict[str, list[str]] = {}
    networks = family.networks
    for name in sorted(names):
        folder, _, _ = name.rpartition("/")
        folders.setdefault(folder, []).append(name)
    return [name for folder, inside in folders.items() for name in (_network(inside) if folder in networks else inside)]


def _network(inside: list[str]) -> list[str]:
    """A network's configuration and one copy of its weights: safetensors if there are any, and no variant (x.fp16.*)."""
    kept = [name for name in inside if name.endswith((".json", *_WEIGHTS))]
    if any(name.endswith(".safetensors") for name in kept):
        kept = [name for name in kept if not name.removesuffix(_INDEX_OF_PARTS).endswith(".bin")]
    plain = [name for name in kept if not _is_variant(name)]
    return plain if any(name.endswith(_WEIGHTS) for name in plain) else kept


def _is_variant(name: str) -> bool:
    base = name.rpartition("/")[2].removesuffix(_INDEX_OF_PARTS)
    for suffix in _WEIGHTS:
        base = base.removesuffix(suffix)
    return "." in base.removesuffix(".json")
