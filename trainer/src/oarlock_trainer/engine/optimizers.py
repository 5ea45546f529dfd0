"""The optimizers of training.optimizer.name, over whatever the engine gives them: whole parameters or one flat shard.

Master weights are the engine's and float32; so are all moments but those of AdamW8Bit. Prodigy wants whole parameters, and
all of them. AdamWBF16 updates the model's own weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.optim import AdamW, Optimizer

from oarlock_api.optimization import OptimizerName, WeightDecayOn
from oarlock_trainer.engine.adamw_8bit import make_adamw_8bit
from oarlock_trainer.engine.adamw_bf16 import AdamWBF16
from oarlock_trainer.engine.lion import Lion, make_fused_lion, make_offloaded_lion
from oarlock_trainer.engine.prodigy import Prodigy
from oarlock_trainer.engine.schedule_free import make_schedule_free
from oarlock_trainer.engine.sharded import dimensions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from oarlock_api.optimization import Optimizer as Settings

_ADAM_BETAS = (0.9, 0.999)
_LION_BETAS = (0.9, 0.99)
_EPS = 1e-8
_OF_PRODIGY = {
    "d0": "d0",
    "dCoef": "d_coef",
    "biasCorrection": "bias_correction",
    "safeguardWarmup": "safeguard_warmup",
}
"""Options of a job, and what its authors call them."""


def make_optimizer(parameters: Iterable[Tensor], settings: Settings, *, seed: int = 0) -> Optimizer:
    """An optimizer of these parameters, all on one device, at the schedule's peak until the engine sets the rate.

    `seed`: of what it draws, where it draws.
    """
    groups = _groups(parameters, settings)
    betas, rate, decay = betas_of(settings), settings.learning_rate, settings.weight_decay
    if settings.name is OptimizerName.LION:
        if settings.options.get("fused"):
            return make_fused_lion(groups, lr=rate, betas=betas, weight_decay=decay)
        return Lion(groups, lr=rate, betas=betas, weight_decay=decay)
    eps = float(settings.options.get("eps", _EPS))
    if settings.name is OptimizerName.ADAMW_8BIT:
        return make_adamw_8bit(groups, lr=rate, betas=betas, eps=eps, weight_decay=decay)
    if settings.name is not OptimizerName.ADAMW:
        return _with_whole_state(groups, settings, seed=seed)
    fused = groups[0]["params"][0].device.type == "cuda"  # one kernel, and no temporaries as large as the shard
    return AdamW(groups, lr=rate, betas=betas, eps=eps, weight_decay=decay, fused=fused, foreach=not fused)


def _with_whole_state(groups: list[dict[str, Any]], settings: Settings, *, seed: int) -> Optimizer:
    """Those that are refused where a rank has a share of the state."""
    betas, rate, decay = betas_of(settings), settings.learning_rate, settings.weight_decay
    eps = float(settings.options.get("eps", _EPS))
    if settings.name is OptimizerName.ADAMW_SCHEDULE_FREE:
        return make_schedule_free(groups, lr=rate, betas=betas, eps=eps, weight_decay=decay)
    if settings.name is OptimizerName.ADAMW_BF16:
        return AdamWBF16(groups, lr=rate, betas=betas, eps=eps, weight_decay=decay, seed=seed)
    if settings.name is OptimizerName.PRODIGY:
        own = {_OF_PRODIGY[name]: value for name, value in settings.options.items() if name in _OF_PRODIGY}
        return Prodigy(groups, lr=rate, betas=betas, eps=eps, weight_decay=decay, **own)
    raise ValueError(f"no optimizer is made for optimizer.name {settings.name}")


def make_offloaded(parameters: Iterable[Tensor], settings: Settings) -> Optimizer:
    """AdamW or Lion for a shard in the node's memory: DeepSpeed's, whose operator must be there. Others were refused."""
    groups = _groups(parameters, settings)
    betas, rate, decay = betas_of(settings), settings.learning_rate, settings.weight_decay
    if settings.name is OptimizerName.LION:
        return make_offloaded_lion(groups, lr=rate, betas=betas, weight_decay=decay)
    from deepspeed.ops.adam import DeepSpeedCPUAdam  # noqa: PLC0415 - its import reads the environment

    eps = float(settings.options.get("eps", _EPS))
    optimizer: Optimizer = DeepSpeedCPUAdam(groups, lr=rate, betas=betas, eps=eps, weight_decay=decay)
    return optimizer


def _groups(parameters: Iterable[Tensor], settings: Settings) -> list[dict[str, Any]]:
    """The parameters as torch's groups: all in one, or those of one dimension apart, which weight decay leaves alone."""
    parameters = list(parameters)
    if settings.weight_decay_on is WeightDecayOn.ALL:
        return [{"params": parameters}]
    matrices = [one for one in parameters if dimensions(one) > 1]
    vectors = [one for one in parameters if dimensions(one) <= 1]
    groups = ({"params": matrices}, {"params": vectors, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]


def betas_of(settings: Settings) -> tuple[float, float]:
    """What the two moments keep of themselves."""
    first, second = settings.betas or (_LION_BETAS if settings.name is OptimizerName.LION else _ADAM_BETAS)
    return first, second
