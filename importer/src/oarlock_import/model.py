"""The base model and its adapters."""

from __future__ import annotations

import posixpath
import shlex
from typing import TYPE_CHECKING

from oarlock_api.weights import ModelFlavor
from oarlock_import import lycoris
from oarlock_import.family import words_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_api.weights import ModelFlavor
    from oarlock_import.draft import Draft
    from oarlock_import.family import Words
    from oarlock_import.options import Options
    from oarlock_import.places import Places

_STANDARD = ("lora_rank", "lora_alpha", "lora_dropout", "flux_lora_target")
_LYCORIS = ("lycoris_config", "init_lokr_norm")
_OF_LORA = (*_STANDARD, *_LYCORIS, "lora_type", "init_lora", "disable_assistant_lora")


def place(
    options: Options, draft: Draft, *, places: Places, find: Callable[[str], str], has_folder: Callable[[str], bool]
) -> None:
    """Write model, method and adapters; `find` gives the text of a file, `has_folder` tells whether one is here."""
    if "model_family" not in options:
        options.refused(
            "model_family",
            "is missing: write flux (in config.env FLUX=true or MODEL_FAMILY=flux), flux2, z-image, sd3, qwen_image or "
            "wan",
        )
    options.carry(draft, "model_family")
    _of_the_family(options, words_of(options))
    flavor = _base(options, draft, places, has_folder)
    if options.value("model_type") == "lora":
        _lora(options, draft, places=places, flavor=flavor, find=find)
        return
    precision = str(options.value("base_model_precision"))
    if precision != "no_change":
        options.refused("base_model_precision", "SimpleTuner itself trains quantized weights only by LoRA; remove it")
    for key in (*_OF_LORA, "base_model_precision"):
        options.ignored(key, "model_type is full")


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
        published = words.repositories.get(known or flavor, "") if flavor else ""
        repository = published if name is None or known else name
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


def _lora(
    options: Options, draft: Draft, *, places: Places, flavor: ModelFlavor | None, find: Callable[[str], str]
) -> None:
    if options.value("lora_type") == "lycoris":
        options.mapped("lora_type", words="-> training.lora.algorithm, see lycoris_config")
        lycoris.place(options, draft, find=find)
        if "init_lokr_norm" in options:
            options.refused("init_lokr_norm", "factors begin as LyCORIS begins them; remove it")
        for key in _STANDARD:
            options.ignored(key, "lycoris_config decides")
    else:
        _standard(options, draft)
        for key in _LYCORIS:
            options.ignored(key, "lora_type is standard")
    options.carry(draft, "base_model_precision")
    init = options.value("init_lora")
    if init is not None and init.startswith((".", "/")):
        draft.put("training.initFrom.path", places.path(init))
        options.mapped("init_lora", words="-> training.initFrom.path")
    elif init is not None:
        options.refused("init_lora", "repositories of the hub are not read here: download it, and write its path")
    if flavor in words_of(options).assisted and not options.value("disable_assistant_lora"):
        options.refused(
            "disable_assistant_lora",
            f"SimpleTuner trains {str(flavor).lower()} over an assistant adapter, which is not here; set it",
        )
    options.ignored("disable_assistant_lora", "there is no assistant adapter here")


def _standard(options: Options, draft: Draft) -> None:
    options.mapped("lora_type", words="-> training.lora.algorithm: LoRA")
    options.carry(draft, "lora_rank")
    if "lora_alpha" in options:
        options.carry(draft, "lora_alpha")
    else:
        draft.put("training.lora.alpha", options.value("lora_rank"))
        options.mapped("lora_alpha", words="-> training.lora.alpha: the rank")
    options.carry(draft, "lora_dropout")
    target, words = str(options.value("flux_lora_target")).lower(), words_of(options)
    presets = words.family.presets.names
    if words.targets:
        draft.put("training.lora.targets", list(presets[words.targets]))
        told = f"SimpleTuner's own of {words.family.name} -> training.lora.targets: {', '.join(presets[words.targets])}"
        options.report.mapped(options.source, "lora_rank", words=told)
        options.ignored("flux_lora_target", "belongs to another model family")
    elif target in presets:
        options.carry(draft, "flux_lora_target", value=list(presets[target]))
    else:
        options.refused("flux_lora_target", f"{target} is not here: use one of {', '.join(presets)}")
