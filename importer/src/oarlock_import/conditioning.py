"""Masks and references: the entry of dataset_type conditioning that a data set's conditioning_data names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from oarlock_api.weights import SEEING, ModelFamily, takes_reference
from oarlock_import.values import asks_for_nothing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oarlock_import.draft import Draft
    from oarlock_import.options import Options

TYPE = "conditioning"
"""Of the entries that they come from."""
SEEN = "conditioning_image_embeds"
"""Of the entries for what a text encoder sees of them."""
_FIELD = "conditioning.source"


class Locate(Protocol):
    """Where the pictures of an entry lie."""

    def __call__(self, entry: Options, to: str, /) -> dict[str, Any] | None:
        """A location, which becomes field `to`; None where the entry says none, which is reported."""
        ...


def place(
    datasets: Sequence[tuple[Options, Draft]],
    options: Options,
    entries: Mapping[str, Options],
    *,
    model: Mapping[str, Any],
    locate: Locate,
) -> None:
    """Write the conditioning of data sets; `entries` are those of dataset_type conditioning by their id.

    `model` is what was written of the job's model.
    """
    for dataset, draft in datasets:
        entry = _entry(dataset, entries, model)
        if entry is not None and (source := locate(entry, _FIELD)) is not None:
            draft.put("conditioning", {"source": source, "kind": entry.word("conditioning_type")})
            entry.mapped("conditioning_type", words=f"-> conditioning.kind: {entry.word('conditioning_type')}")
            entry.mapped("id", words="-> conditioning of the data sets that name it")
            dataset.mapped("conditioning_data", words=f"-> {_FIELD}")
        elif not names(dataset.raw("conditioning_data")) and model.get("flavor") in SEEING:
            dataset.refused(
                "conditioning_data", f"{model['flavor']} is given a reference of each picture: name an entry"
            )
    named = {name for dataset, _ in datasets for name in names(dataset.raw("conditioning_data"))}
    for name in entries.keys() - named:
        entries[name].refused("id", "no data set has it: name this id in its conditioning_data, or remove the entry")
    chance = options.raw("masked_loss_probability")
    if entries and chance is not None and not asks_for_nothing(chance, (1,)):
        options.refused("masked_loss_probability", "masks count in every step here: set 1, or remove them")


def _entry(dataset: Options, entries: Mapping[str, Options], model: Mapping[str, Any]) -> Options | None:
    """The entry that a data set names; None where there is none, which is reported where one is asked for."""
    named = names(dataset.raw("conditioning_data"))
    if not named:
        return None
    entry = entries.get(named[0])
    if len(named) > 1:
        dataset.refused("conditioning_data", "a data set has one source of masks or references: name one entry")
    elif entry is None:
        dataset.refused("conditioning_data", f"there is no entry {named[0]} of dataset_type {TYPE}")
    elif "conditioning_type" not in entry:
        entry.refused("conditioning_type", "is missing: say mask or reference_strict")
    elif (kind := entry.value("conditioning_type")) == "reference_strict" and not _takes_reference(model):
        entry.refused(
            "conditioning_type",
            "references are for models that are given such: flux with model_flavour kontext, qwen_image with edit-v1, flux2",
        )
    elif kind is not None:
        return entry
    return None


def _takes_reference(model: Mapping[str, Any]) -> bool:
    if "family" not in model:
        return True  # whatever it is, it was refused
    return takes_reference(ModelFamily(model["family"]), model.get("flavor"))


def names(given: Any) -> list[str]:
    """What a data set's conditioning_data names: one id, or a list of such."""
    return [str(name) for name in given] if isinstance(given, list) else [str(given)] if given else []
