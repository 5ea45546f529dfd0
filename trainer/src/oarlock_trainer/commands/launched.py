"""A rank of the built-in trainer that accelerate's launcher, or torchrun, has started: `oarlock-trainer train` under it.

    accelerate launch --config_file FILE -m oarlock_trainer train -f job.yaml

One such command on every machine runs a job of several machines without a cluster. The launcher says who this rank is and
where rank 0 listens; what is trained, and how, the job alone says. accelerate's configuration reaches a rank as ACCELERATE_*
variables: a choice of another engine, precision or batch than the job's is an error.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from oarlock_api.contract.environment import Variable
from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.agent.ranks import accelerate_config, rank_environment
from oarlock_trainer.ranks import rank_host
from oarlock_trainer.runtime.assignment import AssignmentError, read_assignment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from oarlock_trainer.runtime.assignment import Assignment


class _Choice(NamedTuple):
    """A variable of accelerate's: its key in accelerate's file, the job's field, and the values that choose nothing."""

    key: str
    field: str
    unsaid: tuple[str, ...] = ("no", "none", "false", "auto")


_CHOICES = {
    "ACCELERATE_MIXED_PRECISION": _Choice("mixed_precision", "training.precision"),
    "ACCELERATE_DYNAMO_BACKEND": _Choice("dynamo_backend", "training.compile.mode"),
    "ACCELERATE_USE_DEEPSPEED": _Choice("distributed_type: DEEPSPEED", "training.engine.strategy"),
    "ACCELERATE_USE_FSDP": _Choice("distributed_type: FSDP", "training.engine.strategy"),
    "ACCELERATE_USE_MEGATRON_LM": _Choice("distributed_type: MEGATRON_LM", "training.engine.strategy"),
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": _Choice("zero_stage", "training.engine.zeroStage"),
    "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": _Choice(
        "offload_optimizer_device", "training.engine.offloadOptimizer"
    ),
    "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": _Choice("offload_param_device", "training.engine"),
    "ACCELERATE_DEEPSPEED_CONFIG_FILE": _Choice("deepspeed_config_file", "training.engine"),
    # Its launcher says 1 where the file says nothing.
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": _Choice(
        "gradient_accumulation_steps", "training.gradientAccumulation", ("1", "auto", "none")
    ),
    "ACCELERATE_GRADIENT_CLIPPING": _Choice("gradient_clipping", "training.gradientClipping.max"),
}


def is_launched(environment: Mapping[str, str]) -> bool:
    """Whether this process is one of a launcher's ranks."""
    return "TORCHELASTIC_RUN_ID" in environment and "RANK" in environment


def run(job: Path, program: str) -> int:
    """Be the rank that the launcher has started; returns the program's exit code, or 85 where job and launcher disagree."""
    os.environ.update({Variable.CONFIG: str(job.absolute()), Variable.MACHINE_RANK: os.environ["GROUP_RANK"]})
    try:
        assignment = read_assignment(os.environ)
        check(assignment, os.environ)
    except AssignmentError as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.CONFIGURATION
    os.environ.update(rank_environment.shared(accelerate_config.plan_launch(assignment), os.environ))
    if program == rank_host.PROGRAM:
        rank_host.load(rank_host.WARM)()
    return rank_host.run(rank_host.load(program))


def check(assignment: Assignment, environment: Mapping[str, str]) -> None:
    """Raise ConfigurationError where the launcher was told something else than the job says."""
    started = (environment["WORLD_SIZE"], environment["LOCAL_WORLD_SIZE"])
    if started != (str(assignment.world_size), str(assignment.ranks_per_node)):
        raise AssignmentError(
            f"the launcher started {started[0]} processes, {started[1]} on this machine; the job's nodes x gpusPerNode make "
            f"{assignment.world_size}, {assignment.ranks_per_node} on each: set num_processes to {assignment.world_size} and "
            f"num_machines to {assignment.job.nodes}, or change the job"
        )
    if wrong := "; ".join(_contradictions(assignment, environment)):
        raise AssignmentError(f"accelerate was told otherwise than the job, which decides: {wrong}")


def _contradictions(assignment: Assignment, environment: Mapping[str, str]) -> Iterator[str]:
    of_job = accelerate_config.environment(accelerate_config.plan_launch(assignment))
    for variable, choice in _CHOICES.items():
        told, meant = environment.get(variable, "none").lower(), of_job.get(variable, "none").lower()
        if told not in choice.unsaid and _number(told) != _number(meant):
            yield f"{choice.key} ({variable}={told}) where {choice.field} makes it {meant}: remove one, or make them equal"


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
