"""The job in accelerate's words: as its configuration file, and as the environment that its launcher would set.

Bring-your-own images pass the file to `accelerate launch --config_file`; the built-in trainer's ranks are started
without a launcher and get the same values as ACCELERATE_* variables. Names are those of accelerate 1.15
(commands/config/config_args.py and utils/launch.py).
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.wire import number
from oarlock_trainer.runtime.assignment import AssignmentError, setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from oarlock_trainer.runtime.assignment import Assignment

log = logging.getLogger(__name__)

_OPEN_STAGE = "# zero_stage: the planner may take 2 instead; status.resolved.plan.zeroStage has the stage that runs\n"
FILE_NAME = "accelerate.yaml"
_PRECISION = {"BF16": "bf16", "FP8": "fp8"}
_DYNAMO_MODE = {"Default": "default", "MaxAutotune": "max-autotune"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How accelerate sees the job. `zero_stage` is None without DeepSpeed, `dynamo_mode` None without compilation."""

    assignment: Assignment
    mixed_precision: str
    zero_stage: int | None
    is_stage_open: bool
    """Whether the ranks' planner may still take stage 2 instead: they say so themselves once it is known."""
    offload_optimizer: str
    gradient_accumulation: int
    gradient_clipping: float | None
    dynamo_mode: str | None
    dynamo_full_graph: bool
    dynamo_dynamic: bool

    @property
    def distributed_type(self) -> str:
        """One of accelerate's DistributedType."""
        if self.zero_stage is not None:
            return "DEEPSPEED"
        # On the CPU as well: for MULTI_CPU `accelerate launch` starts one process per node and leaves the rest to MPI.
        return "NO" if self.assignment.world_size == 1 else "MULTI_GPU"


def plan_launch(assignment: Assignment) -> Launch:
    """Translate spec.training; what it leaves out has the API's default. The ranks validate all of it.

    Raises ConfigurationError for a value that can't be translated.
    """
    training = assignment.job.whole_training
    return Launch(
        assignment=assignment,
        mixed_precision=_PRECISION.get(setting(training, "precision") or "BF16", "no"),
        zero_stage=_zero_stage(training),
        is_stage_open=_is_stage_open(training, assignment.world_size),
        offload_optimizer="cpu" if setting(training, "engine", "offloadOptimizer") == "CPU" else "none",
        gradient_accumulation=_accumulation(training, assignment.world_size),
        gradient_clipping=_gradient_clipping(training),
        dynamo_mode=_DYNAMO_MODE.get(setting(training, "compile", "mode") or "None"),
        dynamo_full_graph=bool(setting(training, "compile", "fullGraph")),
        dynamo_dynamic=bool(setting(training, "compile", "dynamic")),
    )


def plain_launch(assignment: Assignment) -> Launch:
    """The gang alone: a trainer of the job's own decides by itself on precision, engine and compiler."""
    return Launch(
        assignment=assignment,
        mixed_precision="no",
        zero_stage=None,
        is_stage_open=False,
        offload_optimizer="none",
        gradient_accumulation=1,
        gradient_clipping=None,
        dynamo_mode=None,
        dynamo_full_graph=False,
        dynamo_dynamic=False,
    )


def _zero_stage(training: dict[str, Any]) -> int | None:
    strategy = setting(training, "engine", "strategy") or "Auto"
    if strategy == "Auto":
        strategy = "DDP" if setting(training, "method") == "LoRA" else "DeepSpeed"
    return (setting(training, "engine", "zeroStage") or 1) if strategy == "DeepSpeed" else None


def _accumulation(training: dict[str, Any], ranks: int) -> int:
    """Passes of each rank in a step, as runtime.dealing has it."""
    effective: int | None = setting(training, "effectiveBatch")
    if effective is None:
        return setting(training, "gradientAccumulation") or 1
    return -(-effective // ((setting(training, "batchSize") or 1) * ranks))


def _is_stage_open(training: dict[str, Any], ranks: int) -> bool:
    """The planner's own condition: only then is there a choice."""
    overlaps = setting(training, "engine", "overlapCommunication") is not False
    accumulates = _accumulation(training, ranks) > 1
    auto = (setting(training, "engine", "strategy") or "Auto") == "Auto"
    return auto and _zero_stage(training) is not None and (accumulates or not overlaps)


def _gradient_clipping(training: dict[str, Any]) -> float | None:
    method = setting(training, "gradientClipping", "method") or "Norm"
    highest = setting(training, "gradientClipping", "max")
    if highest is not None and number(highest) is None:
        raise AssignmentError(f"training.gradientClipping.max is {highest!r}, not a number")
    return (1.0 if highest is None else float(highest)) if method == "Norm" else None


def render(launch: Launch) -> str:
    """Write the configuration file's text (YAML)."""
    fields: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": launch.distributed_type,
        "machine_rank": launch.assignment.place,
        "main_process_ip": launch.assignment.master_address,
        "main_process_port": launch.assignment.master_port,
        "main_training_function": "main",
        "mixed_precision": launch.mixed_precision,
        "num_machines": launch.assignment.nodes,
        "num_processes": launch.assignment.world_size,
        "rdzv_backend": "static",
        "use_cpu": launch.assignment.on_cpu,
    }
    if launch.zero_stage is not None:
        fields["deepspeed_config"] = _deepspeed(launch) | {"deepspeed_multinode_launcher": "standard"}
    if launch.dynamo_mode is not None:
        fields["dynamo_config"] = {f"dynamo_{name}": value for name, value in _dynamo(launch).items()}
    return (_OPEN_STAGE if launch.is_stage_open else "") + "".join(_yaml(fields))


def _yaml(fields: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Lines of a mapping of scalars and mappings, which is all that the file has: an image need not have a library."""
    for name, value in sorted(fields.items()):
        if isinstance(value, dict):
            yield f"{indent}{name}:\n"
            yield from _yaml(value, f"{indent}  ")
        else:
            # JSON's scalars are YAML's, but for numbers like 1e-05, which YAML 1.1 takes for texts without a dot.
            text = json.dumps(value)
            bare = isinstance(value, float) and "." not in text
            yield f"{indent}{name}: {text.replace('e', '.0e') if bare else text}\n"


def write(launch: Launch, folder: Path) -> None:
    """Write the file into a folder. Where that fails it is logged: only `accelerate launch` would read it."""
    path = folder / FILE_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(launch))
    except OSError as error:
        log.info("%s is not written (%s): only `accelerate launch` would read it", path, error.strerror)


def environment(launch: Launch) -> dict[str, str]:
    """Give what `accelerate launch` would set for this job, the same on every rank."""
    variables = {"ACCELERATE_MIXED_PRECISION": launch.mixed_precision}
    dynamo = _dynamo(launch) if launch.dynamo_mode is not None else {"backend": "NO"}
    variables |= {f"ACCELERATE_DYNAMO_{name.upper()}": str(value) for name, value in dynamo.items()}
    if launch.assignment.on_cpu:
        variables["ACCELERATE_USE_CPU"] = "True"
    if launch.zero_stage is not None:
        deepspeed = _deepspeed(launch)
        variables["ACCELERATE_USE_DEEPSPEED"] = "true"
        variables["ACCELERATE_CONFIG_DS_FIELDS"] = str([*deepspeed, "mixed_precision"]).lower()
        variables |= {_deepspeed_variable(name): str(value).lower() for name, value in deepspeed.items()}
        if launch.is_stage_open:
            del variables[_deepspeed_variable("zero_stage")]
    return variables


def _dynamo(launch: Launch) -> dict[str, Any]:
    return {
        "backend": "INDUCTOR",
        "mode": launch.dynamo_mode,
        "use_fullgraph": launch.dynamo_full_graph,
        "use_dynamic": launch.dynamo_dynamic,
        "use_regional_compilation": True,  # per block: the whole model would take minutes for the same speed
    }


def _deepspeed(launch: Launch) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "zero_stage": launch.zero_stage,
        "gradient_accumulation_steps": launch.gradient_accumulation,
        "offload_optimizer_device": launch.offload_optimizer,
        "offload_param_device": "none",
        "zero3_init_flag": False,
        "zero3_save_16bit_model": False,
    }
    if launch.gradient_clipping is not None:
        fields["gradient_clipping"] = launch.gradient_clipping
    return fields


def _deepspeed_variable(field: str) -> str:
    """Name of accelerate's variable for a field of deepspeed_config: its launcher is not regular here."""
    if field in {"gradient_accumulation_steps", "gradient_clipping"}:
        return f"ACCELERATE_{field.upper()}"
    return f"ACCELERATE_DEEPSPEED_{field.removesuffix('_flag').upper()}"
