"""The optimizers of training.optimizer.name, over whatever the engine gives them: whole parameters or one flat shard.

Master weights are the engine's and float32; so are all moments but those of AdamW8Bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.optim import AdamW, Optimizer

from oarlock_api.optimization import OptimizerName
from oarlock_trainer.engine.adamw_8bit import make_adamw_8bit
from oarlock_trainer.engine.lion import Lion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from oarlock_api.optimization import Optimizer as Settings

_ADAM_BETAS = (0.9, 0.999)
_LION_BETAS = (0.9, 0.99)
_EPS = 1e-8


def make_optimizer(parameters: Iterable[Tensor], settings: Settings) -> Optimizer:
    """An optimizer of these parameters, all on one device, at the schedule's peak until the engine sets the rate."""
    parameters = list(parameters)
    first, second = settings.betas or (_LION_BETAS if settings.name is OptimizerName.LION else _ADAM_BETAS)
    betas, rate, decay = (first, second), settings.learning_rate, settings.weight_decay
    if settings.name is OptimizerName.LION:
        return Lion(parameters, lr=rate, betas=betas, weight_decay=decay)
    eps = float(settings.options.get("eps", _EPS))
    if settings.name is OptimizerName.ADAMW_8BIT:
        return make_adamw_8bit(parameters, lr=rate, betas=betas, eps=eps, weight_decay=decay)
    fused = parameters[0].device.type == "cuda"  # one kernel, and no temporaries as large as the shard
    return AdamW(parameters, lr=rate, betas=betas, eps=eps, weight_decay=decay, fused=fused, foreach=not fused)


def make_offloaded(parameters: Iterable[Tensor], settings: Settings) -> Optimizer:
    """AdamW for a shard in the node's memory: DeepSpeed's, whose operator must be there. Others are refused before."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam  # noqa: PLC0415 - its import reads the environment

    first, second = settings.betas or _ADAM_BETAS
    optimizer: Optimizer = DeepSpeedCPUAdam(
        list(parameters),
        lr=settings.learning_rate,
        betas=(first, second),
        eps=float(settings.options.get("eps", _EPS)),
        weight_decay=settings.weight_decay,
    )
    return optimizer
