"""The base model: its family, its flavour, and where its parts lie."""

from __future__ import annotations

import posixpath
import shlex
from typing import TYPE_CHECKING

from oarlock_import import adapters
from oarlock_import.family import is_known, words_of
from oarlock_import.tables.model import OF_PARTS, ONLY_THE_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_api.weights import ModelFlavor
    from oarlock_import.draft import Draft
    from oarlock_import.family import Words
    from oarlock_import.options import Options
    from oarlock_import.places import Places

_OF_MODEL = ("model_flavour", "pretrained_model_name_or_path", "revision", *OF_PARTS)


def place(
    options: Options, draft: Draft, *, places: Places, find: Callable[[str], str], has_folder: Callable[[str], bool]
) -> None:
    """Write model, method and adapters; `find` gives the text of a file, `has_folder` tells whether one is here."""
    if "model_family" not in options:
        options.refused(
            "model_family",
            "is missing: write flux (in config.env FLUX=true or MODEL_FAMILY=flux), flux2, z_image, sd3, qwen_image or "
            "wan",
        )
    options.carry(draft, "model_family")
    if not is_known(options):
        for key in (*_OF_MODEL, *adapters.OPTIONS, "base_model_precision"):
            options.ignored(key, "not looked at: the model's family is not here")
        return
    _of_the_family(options, words_of(options))
    flavor = _base(options, draft, places, has_folder)
    _parts(options, flavor)
    adapters.place(options, draft, places=places, flavor=flavor, find=find)


def _base(options: Options, draft: Draft, places: Places, has_folder: Callable[[str], bool]) -> ModelFlavor | None:
    """Where the model lies; returns the flavor. As diffusers does, a folder is taken before a repository of that name."""
    name, words = options.value("pretrained_model_name_or_path"), words_of(options)
    known = words.flavor_of(str(name))
    is_said = "model_flavour" in options
    flavour = str(options.value("model_flavour")).lower() if is_said else words.default
    flavor = known if known and not is_said else words.flavors.get(flavour)
    if flavor is None:
        why = f", as {reason}" if (reason := words.why_not(flavour)) else ""
        options.refused(
            "model_flavour", f"{flavour} of {words.family.name} is not here{why}: use one of {', '.join(words.flavors)}"
        )
    elif is_said:
        options.carry(draft, "model_flavour", value=flavor.value)
    else:
        why = f", because pretrained_model_name_or_path names {posixpath.basename(name)}" if known else ""
        draft.put("training.model.flavor", flavor.value)
        options.mapped(
            "model_flavour",
            words=f"(SimpleTuner's default flavour is {words.default.capitalize()}) -> training.model.flavor: {flavor}{why}",
        )
    if str(name or "").endswith(".safetensors"):
        options.refused(
            "pretrained_model_name_or_path",
            f"one file is not enough: make a folder of it and the model that it was made from, with oarlock-trainer "
            f"import-single-file {shlex.quote(name)} --base FOLDER --output NEW, and name that",
        )
    elif name is None or (name.count("/") == 1 and not name.startswith((".", "/")) and not has_folder(name)):
        repository = words.repositories.get(flavor, "") if name is None and flavor else words.published(name or "")
        draft.put("training.model.hub.repo", repository)
        options.mapped("pretrained_model_name_or_path", words=f"-> training.model.hub.repo: {repository}")
        if "revision" in options:
            options.carry(draft, "revision", to="training.model.hub.revision")
        places.report.task(
            f"if {repository} is gated or private, it needs a token: kubectl create secret generic hub "
            "--from-literal=token=..., then set training.model.hub.tokenSecretRef to {name: hub, key: token}"
        )
    else:
        options.carry(draft, "pretrained_model_name_or_path", to="training.model.path", value=places.path(name))
    options.ignored("revision", "belongs to a repository of the hub")
    return flavor


def _of_the_family(options: Options, words: Words) -> None:
    """Options that mean another thing in this family, or nothing."""
    for key, (value, why) in words.refused.items():
        if (options.raw(key) or value) != value:
            options.refused(key, why)
    for key in words.unread:
        options.ignored(key, "belongs to another model family")
    for key, differs in words.differs.items():
        if key not in options:
            options.report.mapped(options.source, key, words="absent", differs=differs)


def _parts(options: Options, flavor: ModelFlavor | None) -> None:
    """Parts of the model that are named by themselves: those that lie with the rest of it ask for nothing."""
    words = words_of(options)
    whole = str(
        options.value("pretrained_model_name_or_path") or (words.repositories.get(flavor, "") if flavor else "")
    )
    for key in OF_PARTS:
        part = str(options.value(key) or "").lower()
        if part in ("", "none", whole.lower()):
            options.ignored(key, "it lies with the rest of the model")
        elif key == "pretrained_vae_model_name_or_path" and (words.keeps_vae or "sdxl" in part):
            options.ignored(key, "SimpleTuner itself takes the model's own")
        else:
            options.refused(key, ONLY_THE_DIRECTORY)
