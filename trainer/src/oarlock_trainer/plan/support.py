"""What this image cannot do of what the API knows is refused, so that no setting is ever ignored in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.engine import CompileMode, OffloadOptimizer, Strategy
from oarlock_api.optimization import OptimizerName
from oarlock_api.weights import Method
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_api.training import Training

_OPTIONS = {
    OptimizerName.ADAMW: frozenset({"eps"}),
    OptimizerName.ADAMW_8BIT: frozenset({"eps"}),
    OptimizerName.LION: frozenset({"fused"}),
    OptimizerName.ADAMW_BF16: frozenset({"eps"}),
    OptimizerName.ADAMW_SCHEDULE_FREE: frozenset({"eps"}),
    OptimizerName.PRODIGY: frozenset({"eps", "d0", "dCoef", "biasCorrection", "safeguardWarmup"}),
}
_NUMBERS = {"eps": 1, "d0": 1, "dCoef": 1000}
"""Options that are numbers above 0, and what they must be below."""
_SWITCHES = ("fused", "biasCorrection", "safeguardWarmup")
_ON_CPU = (OptimizerName.ADAMW, OptimizerName.LION)
"""What DeepSpeed updates in the node's memory."""
_WEIGHTS_SHARDED = 3
"""ZeRO's stage in which no rank has the whole weights."""


def refuse_unsupported(training: Training) -> None:
    """Raise ConfigurationError that lists every setting that this image cannot honour."""
    if found := [f"{field}{why}" for field, why in unsupported(training)]:
        raise ConfigurationError(f"this trainer image cannot do what these settings ask for: {', '.join(found)}")


def unsupported(training: Training) -> Iterator[tuple[str, str]]:
    """Every field that this image cannot honour, and the words that follow its name: its value, and why not."""
    yield from _options(training)
    yield from _offloading(training)
    yield from _compiling(training)


def _options(training: Training) -> Iterator[tuple[str, str]]:
    name, options = training.optimizer.name, training.optimizer.options
    field = "spec.training.optimizer.options"
    yield from (
        (f"{field}.{option}", f" ({name} has no such option)") for option in sorted(options.keys() - _OPTIONS[name])
    )
    betas = training.optimizer.betas
    if name is OptimizerName.ADAMW_SCHEDULE_FREE and betas and not betas[0]:
        yield (
            "spec.training.optimizer.betas",
            f": 0.0, {betas[1]} with {name} (no average can be made of what is trained)",
        )
    for option, most in _NUMBERS.items():
        number = options.get(option, most / 2)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < most:
            yield f"{field}.{option}", f": {number} (a number between 0 and {most} is meant)"
    for option in _SWITCHES:
        if not isinstance(options.get(option, False), bool):
            yield f"{field}.{option}", f": {options[option]} (true or false is meant)"
    offloaded = training.engine.offload_optimizer is OffloadOptimizer.CPU
    if options.get("fused") is True and (offloaded or _adapters_or_ddp(training)):
        yield f"{field}.fused", ": true (DeepSpeed's kernel for shards on GPUs: not with offloadOptimizer, LoRA or DDP)"


def _offloading(training: Training) -> Iterator[tuple[str, str]]:
    name = training.optimizer.name
    if training.engine.offload_optimizer is OffloadOptimizer.CPU and name not in _ON_CPU:
        why = f": CPU with optimizer.name: {name} (the CPU has {' and '.join(_ON_CPU)})"
        yield "spec.training.engine.offloadOptimizer", why


def _adapters_or_ddp(training: Training) -> bool:
    return training.method is Method.LORA or training.engine.strategy is Strategy.DDP


def _compiling(training: Training) -> Iterator[tuple[str, str]]:
    if training.engine.zero_stage == _WEIGHTS_SHARDED and training.compile.mode is not CompileMode.NONE:
        yield (
            "spec.training.compile",
            " with engine.zeroStage: 3 (weights are gathered by hooks that a graph cannot hold)",
        )
