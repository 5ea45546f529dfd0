"""Adapters: LoRA of PEFT or LyCORIS, what they begin from, and what stands beside them in SimpleTuner."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from oarlock_import import lycoris, values
from oarlock_import.family import words_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_api.weights import ModelFlavor
    from oarlock_import.draft import Draft
    from oarlock_import.options import Options
    from oarlock_import.places import Places

_STANDARD = ("lora_rank", "lora_alpha", "lora_dropout", "flux_lora_target", "peft_lora_target_modules")
_LYCORIS = ("lycoris_config", "init_lokr_norm")
_OF_PEFT = ("lora_init_type", "peft_lora_mode", "slider_lora_target")
"""Options that are refused, and ask for nothing where PEFT makes no adapters."""
REFUSED = (*_OF_PEFT, "init_lora_step", "init_lora_ema", "assistant_lora_path", "quantize_activations", "lora_format")
_OF_INIT = ("init_lora", "disable_assistant_lora", "assistant_lora_strength")
OPTIONS = (*_STANDARD, *_LYCORIS, *_OF_INIT, *REFUSED, "lora_type", "use_dora", "base_model_default_dtype")
"""All that ask for nothing where no adapters are trained."""


def place(
    options: Options, draft: Draft, *, places: Places, flavor: ModelFlavor | None, find: Callable[[str], str]
) -> None:
    """Write training.lora and training.initFrom; `find` gives the text of a file."""
    _dora(options)
    _beside_quantized(options)
    if options.value("model_type") != "lora":
        if str(options.value("base_model_precision")) != "no_change":
            options.refused(
                "base_model_precision", "SimpleTuner itself trains quantized weights only by LoRA; remove it"
            )
        for key in (*OPTIONS, "base_model_precision"):
            options.ignored(key, "model_type is full")
        return
    if options.value("lora_type") == "lycoris":
        options.mapped("lora_type", words="-> training.lora.algorithm, see lycoris_config")
        lycoris.place(options, draft, find=find)
        if "init_lokr_norm" in options:
            options.refused("init_lokr_norm", "factors begin as LyCORIS begins them; remove it")
        for key in (*_STANDARD, *_OF_PEFT):
            options.ignored(key, "lycoris_config decides")
    else:
        _standard(options, draft, find)
        for key in _LYCORIS:
            options.ignored(key, "lora_type is standard")
    options.carry(draft, "base_model_precision")
    init = options.value("init_lora")
    if init is not None and (init.startswith((".", "/")) or init.endswith(".safetensors")):
        draft.put("training.initFrom.path", places.path(init))
        options.mapped("init_lora", words="-> training.initFrom.path")
    elif init is not None:
        options.refused("init_lora", "repositories of the hub are not read here: download it, and write its path")
    _assistant(options, flavor)


def _assistant(options: Options, flavor: ModelFlavor | None) -> None:
    """Some flavours are trained over an adapter that SimpleTuner brings, unless that is off, or of no weight."""
    is_off = options.value("disable_assistant_lora") or options.value("assistant_lora_strength") == 0
    if flavor in words_of(options).assisted and not is_off:
        options.refused(
            "disable_assistant_lora",
            f"SimpleTuner trains {str(flavor).lower()} over an assistant adapter, which is not here; set it",
        )
    for key in ("disable_assistant_lora", "assistant_lora_strength"):
        options.ignored(key, "there is no assistant adapter here")


def _dora(options: Options) -> None:
    """What use_dora comes to: SimpleTuner itself looks at it for PEFT's adapters alone, and not over quanto's weights."""
    if options.value("use_dora") and options.value("model_type") == "lora" and options.value("lora_type") == "standard":
        if "quanto" in str(options.value("base_model_precision")):
            options.ignored("use_dora", "SimpleTuner itself leaves it out over weights that quanto has quantized")
        else:
            options.refused("use_dora", "only plain LoRA here: weights are not taken into direction and length")
    options.ignored("use_dora", "it asks for nothing here")


def _beside_quantized(options: Options) -> None:
    key = "base_model_default_dtype"
    if options.value("base_model_precision") == "no_change":
        options.ignored(key, "no weights are quantized")
    elif options.value(key) != "bf16":
        options.refused(key, "bfloat16 stands beside quantized base weights: write bf16")
    options.ignored(key, "bfloat16, as here")


def _own_targets(options: Options, find: Callable[[str], str]) -> list[str]:
    """Layers that an option names one by one, in itself or in a file; empty where none does."""
    key = "peft_lora_target_modules"
    if key not in options:
        return []
    try:
        given = values.as_json(options.value(key))
        given = json.loads(find(given)) if isinstance(given, str) else given
    except (OSError, ValueError) as error:
        options.refused(key, str(error))
        return []
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        options.refused(key, 'is no list of layers: write one such as ["to_q", "to_k"]')
        return []
    return given


def _standard(options: Options, draft: Draft, find: Callable[[str], str]) -> None:
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
    if own := _own_targets(options, find):
        draft.put("training.lora.targets", own)
        options.mapped("peft_lora_target_modules", words=f"-> training.lora.targets: {', '.join(own)}")
        options.ignored("flux_lora_target", "peft_lora_target_modules names the layers")
    elif words.targets:
        draft.put("training.lora.targets", list(words.targets))
        told = f"SimpleTuner's own of {words.family.name} -> training.lora.targets: {', '.join(words.targets)}"
        options.ignored("flux_lora_target", f"belongs to another model family; {told}")
        options.mapped("flux_lora_target", words=told)
    elif target in presets:
        options.carry(draft, "flux_lora_target", value=list(presets[target]))
    elif target == "controlnet" and not values.asks_for_nothing(options.raw("controlnet") or False, (False,)):
        options.ignored("flux_lora_target", "belongs to controlnet")
    else:
        options.refused("flux_lora_target", f"{target} is not here: use one of {', '.join(presets)}")
