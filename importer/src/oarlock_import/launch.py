"""Nodes, GPUs, engine and compilation, from accelerate's file and the options that stand in for it.

accelerate's file outranks SimpleTuner's own options, and flags for `accelerate launch` outrank the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_import import values
from oarlock_import.deepspeed import flat
from oarlock_import.options import Options
from oarlock_import.rows import table
from oarlock_import.tables.launch import ACCELERATE, DEEPSPEED, DYNAMO

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_import.draft import Draft

_PRECISIONS = {"bf16": "BF16", "fp8": "FP8"}
_STRATEGIES = {"no": "DDP", "multi_gpu": "DDP", "multi_cpu": "DDP", "deepspeed": "DeepSpeed"}
_OF_DYNAMO = {row.key for row in DYNAMO}
_OF_DEEPSPEED = {"zero_stage", "offload_optimizer_device", "offload_param_device", "gradient_clipping"} | {
    row.key for row in DEEPSPEED if row.key.startswith(("zero3_", "deepspeed_", "offload_"))
}
_SAME = {"dynamo_fullgraph": "dynamo_use_fullgraph", "dynamo_dynamic": "dynamo_use_dynamic"}
_WEIGHTS_SHARDED = 3
"""ZeRO's stage in which no rank has the whole weights."""
_HANDED_ON = ("num_processes", "num_machines", "main_process_port")


@dataclass(frozen=True, slots=True)
class Launch:
    """What the launch decides for the rest."""

    accelerate: Options
    deepspeed: Options | None
    """DeepSpeed's configuration, flat; None where DeepSpeed is not used."""


def read_launch(options: Options, file: Any, *, source: str, find: Callable[[str], str]) -> Launch:
    """Put accelerate's settings together.

    `file` is the content of its configuration file, named `source` in the report, or None; `find` gives the text of a
    file that it names.
    """
    if file is not None and not isinstance(file, dict):
        options.report.refused(source, "content", "is no configuration of accelerate")
        file = {}
    given = dict(file or {})
    dynamo = {key: given.pop(key) for key in sorted(_OF_DYNAMO) if key in given}
    deepspeed: dict[str, Any] = {}
    for key, into in (("dynamo_config", dynamo), ("deepspeed_config", deepspeed)):
        try:
            value = given.pop(key, None)
            into.update(_group(value) if into is dynamo else _deepspeed(value, find))
        except (OSError, ValueError) as error:
            options.report.refused(source, key, str(error))
    for key in (*_HANDED_ON, *sorted(_OF_DYNAMO | set(_SAME))):
        _hand_on(options, key, file=file is not None, at=dynamo if key.startswith("dynamo") else given)
    if "deepspeed_config" in options:
        try:
            deepspeed = _deepspeed(options.value("deepspeed_config"), find) | deepspeed
        except (OSError, ValueError) as error:
            options.refused("deepspeed_config", str(error))
        options.mapped("deepspeed_config", words="handed to accelerate, see there")
    uses_deepspeed = bool(deepspeed) or str(given.get("distributed_type", "")).lower() == "deepspeed"
    flags = _flags(options)
    uses_deepspeed = uses_deepspeed or values.asks_for_nothing(flags.pop("use_deepspeed", False), (True,))
    for flag, value in flags.items():
        at = dynamo if flag in _OF_DYNAMO else deepspeed if flag in _OF_DEEPSPEED else given
        at[flag] = value
    given |= {"dynamo_config": dynamo} if dynamo else {}
    given |= {"deepspeed_config": deepspeed} if uses_deepspeed else {}
    accelerate = Options(source, given, rows=table(*ACCELERATE), report=options.report)
    below = f"{source}[deepspeed_config]"
    return Launch(
        accelerate=accelerate,
        deepspeed=Options(below, deepspeed, rows=table(*DEEPSPEED), report=options.report) if uses_deepspeed else None,
    )


def place(launch: Launch, options: Options, draft: Draft) -> None:
    """Write nodes, GPUs, strategy, precision and compilation."""
    _size(launch.accelerate, draft)
    _strategy(launch, options, draft)
    _precision(launch.accelerate, options, draft)
    _compilation(launch.accelerate, draft)


def refuse_sharded_and_compiled(launch: Launch, draft: Draft) -> None:
    """Refuse torch.compile together with ZeRO stage 3, in whose words both were asked for."""
    if draft.get("training.engine.zeroStage") == _WEIGHTS_SHARDED and draft.get("training.compile.mode") != "None":
        why = "nothing is compiled with zero_stage 3, which gathers weights by hooks: write NO, or zero_stage 1 or 2"
        launch.accelerate.report.refused(f"{launch.accelerate.source}[dynamo_config]", "dynamo_backend", why)


def _group(value: Any) -> dict[str, Any]:
    """Keys of a group, which may be empty.

    Raises ValueError where it is something else.
    """
    if value in (None, "", {}):
        return {}
    if not isinstance(value, dict):
        raise ValueError("is no group of keys")  # noqa: TRY004 - told to a person like any other wrong value
    return value


def _deepspeed(value: Any, find: Callable[[str], str]) -> dict[str, Any]:
    """DeepSpeed's configuration, flat, from its content or from the file that it names.

    Raises ValueError where it is none, OSError where the file is not found.
    """
    content = values.as_json(value)
    if isinstance(content, str) and content:
        content = json.loads(find(content))
    group = _group(content)
    file = group.get("deepspeed_config_file")
    rest = flat({name: below for name, below in group.items() if name != "deepspeed_config_file"})
    return flat(_group(json.loads(find(str(file))))) | rest if file else rest


def _hand_on(options: Options, key: str, *, file: bool, at: dict[str, Any]) -> None:
    """Move one of SimpleTuner's options to where accelerate would get it."""
    if key not in options:
        return
    if file:
        options.ignored(key, "accelerate's configuration file outranks it")
        return
    at[_SAME.get(key, key)] = options.value(key)
    options.mapped(key, words="handed to accelerate, see there")


def _flags(options: Options) -> dict[str, Any]:
    """Flags for `accelerate launch`, as its own keys."""
    if "accelerate_extra_args" not in options:
        return {}
    try:
        found = values.arguments(options.value("accelerate_extra_args") or "")
    except ValueError as error:
        options.refused("accelerate_extra_args", str(error))
        return {}
    options.mapped("accelerate_extra_args", words=f"handed to accelerate: {', '.join(found) or 'nothing'}")
    return found


def _size(accelerate: Options, draft: Draft) -> None:
    nodes, processes = accelerate.value("num_machines"), accelerate.value("num_processes")
    accelerate.carry(draft, "num_machines")
    if nodes < 1 or processes < 1 or processes % nodes:
        accelerate.refused(
            "num_processes", f"{processes} processes cannot be spread evenly over {nodes} machines; correct one of them"
        )
    elif accelerate.value("use_cpu"):
        draft.put("gpusPerNode", 0)
        accelerate.mapped("use_cpu", words="-> gpusPerNode: 0")
        accelerate.ignored("num_processes", "on the CPU one process runs on each node")
    else:
        share = processes // nodes
        accelerate.carry(draft, "num_processes", to="gpusPerNode", value=share)
    accelerate.ignored("use_cpu", "the job trains on GPUs")


def _strategy(launch: Launch, options: Options, draft: Draft) -> None:
    kind = str(launch.accelerate.value("distributed_type") or "").lower()
    if kind and kind not in _STRATEGIES:
        launch.accelerate.refused("distributed_type", f"{kind} is not here: use DEEPSPEED or MULTI_GPU")
    lora = options.value("model_type") == "lora"
    if launch.deepspeed is not None and lora:
        launch.accelerate.refused("deepspeed_config", "SimpleTuner itself refuses LoRA with DeepSpeed; remove it")
    strategy = "DeepSpeed" if launch.deepspeed is not None else "DDP"
    draft.put("training.engine.strategy", strategy)
    for key in ("distributed_type", "deepspeed_config"):
        if key in launch.accelerate:
            launch.accelerate.mapped(key, words=f"training.engine.strategy: {strategy}, and see its keys")


def _precision(accelerate: Options, options: Options, draft: Draft) -> None:
    """Write the word of accelerate, else SimpleTuner's."""
    chosen = accelerate if "mixed_precision" in accelerate else options
    word = str(chosen.value("mixed_precision")).lower()
    if word in _PRECISIONS:
        chosen.carry(draft, "mixed_precision", value=_PRECISIONS[word])
    else:
        chosen.refused("mixed_precision", f"{word} is not here: training is in bf16 or fp8")
    options.ignored("mixed_precision", "accelerate's configuration file outranks it")


def _compilation(accelerate: Options, draft: Draft) -> None:
    given = accelerate.value("dynamo_config") or {}
    source = f"{accelerate.source}[dynamo_config]"
    dynamo = Options(source, given, rows=table(*DYNAMO), report=accelerate.report)
    backend, mode = str(dynamo.value("dynamo_backend")).lower(), str(dynamo.value("dynamo_mode")).lower()
    if backend not in ("no", "inductor"):
        dynamo.refused("dynamo_backend", f"{backend} is not here: use inductor or no")
    elif backend == "no":
        draft.put("training.compile.mode", "None")
        dynamo.mapped("dynamo_backend", words="-> training.compile.mode: None")
        dynamo.ignored("dynamo_mode", "nothing is compiled")
    elif mode in ("default", "max-autotune", "max-autotune-no-cudagraphs"):
        ours = "Default" if mode == "default" else "MaxAutotune"
        draft.put("training.compile.mode", ours)
        dynamo.mapped("dynamo_backend", words=f"-> training.compile.mode: {ours}")
        dynamo.mapped("dynamo_mode", words=f"-> training.compile.mode: {ours}")
    else:
        dynamo.refused("dynamo_mode", f"{mode} is not here: use default or max-autotune")
    dynamo.carry(draft, "dynamo_use_dynamic")
    dynamo.carry(draft, "dynamo_use_fullgraph")
    dynamo.settle(draft)
    if "dynamo_config" in accelerate:
        accelerate.mapped("dynamo_config", words="see its keys")
