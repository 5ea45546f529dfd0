"""DeepSpeed ZeRO over all ranks, configured by a dict of our own: no "auto", and not prepared by accelerate (decision 0032).

The choices and their reasons: gradients are exchanged while the backward pass runs (overlap_comm, off by default in
stages 1 and 2); buckets must hold the largest tensor (56.6 M elements) several times; the norm is clipped by DeepSpeed
alone, elements by clipping.py. Gradients are exchanged as bfloat16. Stage 2 adds micro-batches up in float32, in a rank's
share, which then is the update's gradient: 4 bytes of an element, where bfloat16 takes 2 and 4 more for the update. Stage 1
adds up in bfloat16, because its other path keeps float32 gradients of the whole model on every rank. What DeepSpeed made
of the dict is looked at once more: it has changed its mind between versions.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING, Any

import torch

from oarlock_api.engine import OffloadOptimizer
from oarlock_api.optimization import ClippingMethod, OptimizerName
from oarlock_trainer.engine import zero_state
from oarlock_trainer.engine.clipping import clip_values
from oarlock_trainer.engine.host_copy import HostCopy
from oarlock_trainer.engine.optimizers import make_offloaded, make_optimizer
from oarlock_trainer.engine.sharded import elements
from oarlock_trainer.runtime.dealing import dealing_of
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from oarlock_api.training import Training
    from oarlock_trainer.engine.engine import TensorSlice
    from oarlock_trainer.runtime.job import RankInfo

GRADIENTS_SHARDED = 2
"""The stage in which every rank has the whole weights, and its share of the gradients."""
WEIGHTS_SHARDED = 3
"""The stage in which no rank has the whole weights."""
_BUCKET_ELEMENTS = 500_000_000
_MAXIMUM_NORM_OFF = 0.0
_CLASSES = {
    1: "DeepSpeedZeroOptimizer",
    GRADIENTS_SHARDED: "DeepSpeedZeroOptimizer",
    WEIGHTS_SHARDED: "DeepSpeedZeroOptimizer_Stage3",
}


def stage_of(training: Training) -> int:
    """The job's ZeRO stage."""
    return training.engine.zero_stage or 1


def configuration(training: Training, *, world_size: int) -> dict[str, Any]:
    """DeepSpeed's configuration."""
    clipping = training.gradient_clipping
    bucket = training.engine.bucket_elements or _BUCKET_ELEMENTS
    passes = dealing_of(training, world_size).passes
    zero: dict[str, Any] = {
        "stage": stage_of(training),
        "overlap_comm": training.engine.overlap_communication,
        "contiguous_gradients": True,
        "reduce_scatter": True,
        "reduce_bucket_size": bucket,
        "allgather_bucket_size": bucket - bucket % 2,  # it insists on even ones
        "round_robin_gradients": False,
    }
    if _offloads(training):
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    return _accumulation_type(training) | {
        "train_micro_batch_size_per_gpu": training.batch_size,
        "gradient_accumulation_steps": passes,
        "train_batch_size": training.batch_size * passes * world_size,
        "gradient_clipping": clipping.max if clipping.method is ClippingMethod.NORM else _MAXIMUM_NORM_OFF,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "steps_per_print": 2**31,
        "wall_clock_breakdown": False,
        # Else it waits for the whole device twice in each micro-batch, for words that are not printed either.
        "timers": {"throughput": {"enabled": False}},
    }


def _accumulation_type(training: Training) -> dict[str, Any]:
    return {"data_types": {"grad_accum_dtype": "fp32"}} if _accumulates_in_float32(training) else {}


def _accumulates_in_float32(training: Training) -> bool:
    """Offloaded gradients are rounded to bfloat16 after each micro-batch, whatever is set."""
    return stage_of(training) == GRADIENTS_SHARDED and not _offloads(training)


class DeepSpeedEngine:
    """The model on all ranks."""

    def __init__(self, engine: Any, rank_info: RankInfo) -> None:
        """`engine` is DeepSpeed's."""
        self._engine = engine
        self._rank = rank_info.rank
        self._norm: tuple[torch.Tensor, HostCopy] | None = None
        engine.optimizer.optimizer.register_step_pre_hook(self._send_norm)

    @property
    def model(self) -> nn.Module:
        """To be called in the forward pass."""
        module: nn.Module = self._engine
        return module

    @property
    def weights(self) -> nn.Module:
        """The trained module itself; whole on every rank with stages 1 and 2 (else see sharded.py)."""
        module: nn.Module = self._engine.module
        return module

    def backward(self, loss: torch.Tensor) -> None:
        """Add a micro-batch's gradients; DeepSpeed divides by the accumulation and averages over ranks."""
        self._engine.backward(loss)

    def step(self, learning_rate: float) -> None:
        """Count a micro-batch; the last one of an optimizer step clips and updates."""
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        self._engine.step()

    def gradient_norm(self) -> float | None:
        """Global norm of the last update before clipping."""
        norm = self._engine.get_global_grad_norm()
        if self._norm is not None and self._norm[0] is norm:
            return self._norm[1].read()[0]
        return None if norm is None else float(norm)

    def _send_norm(self, *_: object) -> None:
        """Before an update: read behind it, the norm would wait for it, and for the weights' exchange."""
        norm = self._engine.optimizer._global_grad_norm  # noqa: SLF001 - told by its engine only after the update
        if torch.is_tensor(norm) and (self._norm is None or self._norm[0] is not norm):
            self._norm = norm, HostCopy(norm.reshape(1))

    @property
    def rate_factor(self) -> float:
        """1: no optimizer that shards has a rate of its own."""
        return 1.0

    @property
    def skipped(self) -> int:
        """Updates that were left out in this process's life, because a gradient was not finite on some rank."""
        return int(self._engine.skipped_steps)

    @property
    def updates(self) -> int:
        """How many updates the optimizer has counted."""
        return zero_state.updates(self._engine.optimizer)

    def parts(self) -> list[TensorSlice]:
        """This rank's partition of the float32 weights and of the optimizer's state."""
        return zero_state.parts(self._engine.optimizer, self.weights, self._rank)

    def refresh(self) -> None:
        """All masters of `parts` were overwritten: round the weights that the model computes with. Collective."""
        zero_state.refresh(self._engine.optimizer)

    def restored(self, updates: int, parts: Sequence[TensorSlice]) -> None:
        """All values of `parts` were overwritten: take them over. Collective."""
        zero_state.restored(self._engine.optimizer, self.weights, self._rank, updates=updates, parts=parts)


def initialize(model: nn.Module, training: Training, rank_info: RankInfo) -> DeepSpeedEngine:
    """Spread a model over all ranks, whole on each, or sharded already. The process groups exist already. Collective.

    Raises ConfigurationError where the job asks for what cannot be had with this model.
    """
    _check_bucket(model, training)
    _settle(rank_info)
    check(training)
    import deepspeed  # noqa: PLC0415 - its import reads the environment
    from deepspeed.runtime.zero.utils import ZERO_SUPPORTED_OPTIMIZERS  # noqa: PLC0415

    make = make_offloaded if _offloads(training) else make_optimizer
    optimizer = make(model.parameters(), training.optimizer)
    if training.gradient_clipping.method is ClippingMethod.VALUE:
        clip_values(optimizer, training.gradient_clipping.max)
    ZERO_SUPPORTED_OPTIMIZERS.append(type(optimizer))  # tested here, with every stage
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        config=configuration(training, world_size=rank_info.world_size),
        dist_init_required=False,
    )
    _assert_as_configured(engine, training, world_size=rank_info.world_size)
    return DeepSpeedEngine(engine, rank_info)


def make_sharder(training: Training, rank_info: RankInfo) -> Callable[[nn.Parameter], None]:
    """What leaves a rank its share of a parameter that is whole on rank 0, as stage 3 has it. Each call is collective."""
    _settle(rank_info)
    import deepspeed  # noqa: PLC0415

    # As in deepspeed.initialize: else the configuration would be checked against one rank.
    deepspeed.init_distributed(
        deepspeed.get_accelerator().communication_backend_name(), dist_init_required=False, verbose=False
    )
    # Given a module, if an empty one, it also has linear layers keep no whole weight for the backward pass.
    zero = deepspeed.zero.Init(
        module=torch.nn.Module(), config_dict_or_path=configuration(training, world_size=rank_info.world_size)
    )
    return lambda parameter: zero._convert_to_zero_parameters([parameter])  # noqa: SLF001 - what it does to a module's


def check(training: Training) -> None:
    """Raise ConfigurationError where this image cannot give what the job asks of DeepSpeed.

    For before weights are read. It may compile for minutes, where the image was made without the operator of DeepSpeed's
    that the job needs; ranks of a node wait for the first of them.
    """
    lion = training.optimizer.name is OptimizerName.LION
    if _offloads(training):
        asked, operator, compiler = "engine.offloadOptimizer: CPU", "CPU_LION" if lion else "CPU_ADAM", "g++"
    elif lion and training.optimizer.options.get("fused"):
        asked, operator, compiler = "optimizer.options.fused: true", "FUSED_LION", "nvcc"
    else:
        return
    from deepspeed.ops import op_builder  # noqa: PLC0415

    builder = {
        "CPU_ADAM": op_builder.CPUAdamBuilder,
        "CPU_LION": op_builder.CPULionBuilder,
        "FUSED_LION": op_builder.FusedLionBuilder,
    }[operator]
    try:
        builder().load(verbose=False)
    except Exception as error:
        raise ConfigurationError(
            f"training.{asked} needs DeepSpeed's operator {operator.lower()}, which this image does not hold and cannot "
            f"compile ({error}): use an image with {compiler} and ninja, or built with DS_BUILD_{operator}=1, or remove "
            f"{asked.partition(':')[0]}"
        ) from error


def skip_operator_probes() -> None:
    """Tell DeepSpeed that none of its own operators can be built.

    It asks when it makes its first process group: that would probe compilers (2 s), and on the CPU compile an operator for
    shared memory (a minute). The one that is used, for offloading, is loaded without asking.
    """
    import deepspeed.ops  # noqa: PLC0415

    vars(deepspeed.ops)["__compatible_ops__"] = {}


def _settle(rank_info: RankInfo) -> None:
    """What DeepSpeed takes from its surroundings."""
    os.environ.setdefault("LOCAL_SIZE", str(rank_info.local_world_size))  # else it counts NUMA nodes on the CPU
    skip_operator_probes()
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # DeepSpeed's own calls of names that torch renamed: nothing that a reader of our log could act on.
    warnings.filterwarnings("ignore", message=".*(all_gather_into|reduce_scatter)_tensor.*", category=FutureWarning)


def _offloads(training: Training) -> bool:
    return training.engine.offload_optimizer is OffloadOptimizer.CPU


def _check_bucket(model: nn.Module, training: Training) -> None:
    """A tensor that no bucket holds is exchanged alone, and nothing else meanwhile."""
    bucket = training.engine.bucket_elements or _BUCKET_ELEMENTS
    largest = max(map(elements, model.parameters()))
    if bucket < largest:
        raise ConfigurationError(
            f"training.engine.bucketElements is {bucket}, and the model's largest tensor has {largest} elements: set at "
            "least a few times that, or remove the field"
        )


def _assert_as_configured(engine: Any, training: Training, *, world_size: int) -> None:
    """Raise RuntimeError where DeepSpeed took another path than the one that it was configured for."""
    wanted = {
        "optimizer": _CLASSES[stage_of(training)],
        "overlap_comm": training.engine.overlap_communication,
        "communication": torch.bfloat16,
        "accumulation": dealing_of(training, world_size).passes,
        "accumulation type": torch.float32 if _accumulates_in_float32(training) else torch.bfloat16,
        "throughput timer": False,
    }
    found = {
        "optimizer": type(engine.optimizer).__name__,
        "overlap_comm": engine.zero_overlap_comm(),
        "communication": engine.communication_data_type,
        "accumulation": engine.gradient_accumulation_steps(),
        "accumulation type": engine.get_data_types()[1],
        "throughput timer": engine.tput_timer.config.enabled,
    }
    if found != wanted:
        raise RuntimeError(f"DeepSpeed made {found} of its configuration, which says {wanted}: it is another version")
