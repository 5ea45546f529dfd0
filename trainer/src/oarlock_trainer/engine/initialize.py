"""Which engine a job gets: DeepSpeed for whole models, DDP for adapters, whose optimizer state is too small to shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.engine import Strategy
from oarlock_api.weights import Method
from oarlock_trainer.engine.ema import Averaging

if TYPE_CHECKING:
    from torch import nn

    from oarlock_api.training import Training
    from oarlock_trainer.engine.engine import Engine
    from oarlock_trainer.job import Place


def strategy(training: Training) -> Strategy:
    """The strategy of a job, with Auto decided."""
    if training.engine.strategy is not Strategy.AUTO:
        return training.engine.strategy
    return Strategy.DDP if training.method is Method.LORA else Strategy.DEEPSPEED


def initialize(model: nn.Module, training: Training, place: Place) -> Engine:
    """Spread a model that is on its device over all ranks. The process groups exist already. Collective."""
    engine = _engine(model, training, place)
    if training.ema is None:
        return engine
    return Averaging(engine, training.ema, accumulation=training.gradient_accumulation)


def _engine(model: nn.Module, training: Training, place: Place) -> Engine:
    if strategy(training) is Strategy.DDP:
        from oarlock_trainer.engine.ddp import DdpEngine  # noqa: PLC0415 - only one of the two is needed

        return DdpEngine(model, training, place)
    from oarlock_trainer.engine import deepspeed  # noqa: PLC0415

    return deepspeed.initialize(model, training, place)
