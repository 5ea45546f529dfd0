"""DeepSpeed ZeRO over all ranks, configured by a dict of our own: no "auto", nothing from accelerate's YAML.

The choices and their reasons: gradients are exchanged while the backward pass runs (overlap_comm, off by default in
stage 1); buckets must hold the largest tensor (56.6 M elements) several times; clipping is the engine's alone; no
communication or accumulation type is set, which keeps the bf16 path that has been measured.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING, Any

import torch

from oarlock_api.optimization import ClippingMethod
from oarlock_trainer.engine import zero_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from oarlock_api.training import Training
    from oarlock_trainer.engine.engine import Part
    from oarlock_trainer.job import Place

_BUCKET_ELEMENTS = 500_000_000
_MAXIMUM_NORM_OFF = 0.0


def configuration(training: Training, *, world_size: int) -> dict[str, Any]:
    """DeepSpeed's configuration."""
    clipping = training.gradient_clipping
    stage = training.engine.zero_stage or 1
    bucket = training.engine.bucket_elements or _BUCKET_ELEMENTS
    return {
        "train_micro_batch_size_per_gpu": training.batch_size,
        "gradient_accumulation_steps": training.gradient_accumulation,
        "train_batch_size": training.batch_size * training.gradient_accumulation * world_size,
        "gradient_clipping": clipping.max if clipping.method is ClippingMethod.NORM else _MAXIMUM_NORM_OFF,
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": stage,
            "overlap_comm": training.engine.overlap_communication,
            "contiguous_gradients": True,
            "reduce_scatter": True,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
            "round_robin_gradients": False,
        },
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 2**31,
        "wall_clock_breakdown": False,
    }


class Engine:
    """The model on all ranks."""

    def __init__(self, engine: Any, place: Place) -> None:
        """`engine` is DeepSpeed's."""
        self._engine = engine
        self._rank = place.rank

    @property
    def model(self) -> nn.Module:
        """To be called in the forward pass."""
        module: nn.Module = self._engine
        return module

    @property
    def weights(self) -> nn.Module:
        """The trained module itself; whole on every rank with stages 1 and 2."""
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
        return None if norm is None else float(norm)

    @property
    def updates(self) -> int:
        """How many updates the optimizer has counted."""
        return zero_state.updates(self._engine.optimizer)

    def parts(self) -> list[Part]:
        """This rank's partition of the float32 weights and of the optimizer's state."""
        return zero_state.parts(self._engine.optimizer, self.weights, self._rank)

    def restored(self, updates: int, parts: Sequence[Part]) -> None:
        """All values of `parts` were overwritten: take them over. Collective."""
        zero_state.restored(self._engine.optimizer, self.weights, self._rank, updates=updates, parts=parts)


def initialize(model: nn.Module, training: Training, place: Place) -> Engine:
    """Shard the optimizer over all ranks. The process groups exist already."""
    import deepspeed  # noqa: PLC0415 - its import reads the environment

    skip_operator_probes()
    os.environ.setdefault("LOCAL_SIZE", str(place.local_world_size))  # else it counts NUMA nodes on the CPU
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # DeepSpeed's own call of a name that torch renamed: nothing that a reader of our log could act on.
    warnings.filterwarnings("ignore", message=".*all_gather_into_tensor.*", category=FutureWarning)
    settings = training.optimizer
    betas = settings.betas or (0.9, 0.999)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(betas[0], betas[1]),
        weight_decay=settings.weight_decay,
        eps=float(settings.options.get("eps", 1e-8)),
    )
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        config=configuration(training, world_size=place.world_size),
        dist_init_required=False,
    )
    return Engine(engine, place)


def skip_operator_probes() -> None:
    """Tell DeepSpeed that none of its own operators can be built.

    None is used here: AdamW is torch's. Otherwise the first process group would probe compilers (2 s), and on the CPU
    compile one for shared memory (a minute).
    """
    import deepspeed.ops  # noqa: PLC0415

    vars(deepspeed.ops)["__compatible_ops__"] = {}
