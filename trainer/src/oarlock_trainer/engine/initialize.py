"""Which engine a job gets: DeepSpeed for whole models, DDP for adapters, whose optimizer state is too small to shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.engine import Strategy
from oarlock_api.optimization import OptimizerName
from oarlock_api.weights import Method
from oarlock_trainer.engine import deepspeed
from oarlock_trainer.engine.ddp import DdpEngine
from oarlock_trainer.engine.ema import Averaging
from oarlock_trainer.engine.optimizers import betas_of
from oarlock_trainer.engine.schedule_free import ScheduleFree
from oarlock_trainer.runtime.dealing import dealing_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from oarlock_api.training import Training
    from oarlock_trainer.engine.engine import Engine
    from oarlock_trainer.runtime.job import RankInfo


def strategy(training: Training) -> Strategy:
    """The strategy of a job, with Auto decided."""
    if training.engine.strategy is not Strategy.AUTO:
        return training.engine.strategy
    return Strategy.DDP if training.method is Method.LORA else Strategy.DEEPSPEED


def sharder(training: Training, rank_info: RankInfo) -> Callable[[nn.Parameter], None] | None:
    """What cuts each parameter into the ranks' shares as it is loaded; None where every rank has the whole model."""
    if strategy(training) is Strategy.DDP:
        return None
    if deepspeed.stage_of(training) != deepspeed.WEIGHTS_SHARDED:
        return None
    return deepspeed.make_sharder(training, rank_info)


def initialize(model: nn.Module, training: Training, rank_info: RankInfo) -> Engine:
    """Spread a model that is on its device over all ranks. The process groups exist already. Collective."""
    engine = _engine(model, training, rank_info)
    if training.optimizer.name is OptimizerName.ADAMW_SCHEDULE_FREE:
        return ScheduleFree(engine, betas_of(training.optimizer)[0])
    if training.ema is None:
        return engine
    return Averaging(engine, training.ema, accumulation=dealing_of(training, rank_info.world_size).passes)


def _engine(model: nn.Module, training: Training, rank_info: RankInfo) -> Engine:
    if strategy(training) is Strategy.DDP:
        return DdpEngine(model, training, rank_info)
    return deepspeed.initialize(model, training, rank_info)
