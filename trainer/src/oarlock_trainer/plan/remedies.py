"""Single changes of a job that make it fit into its GPUs.

A change is made in the job itself, which is then read and planned anew: so none is offered that the API does not take, that
this image cannot do, or that does not fit after all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from oarlock_api.engine import CompileMode, Strategy
from oarlock_api.optimization import EmaDevice, OptimizerName
from oarlock_api.training import Training
from oarlock_trainer.plan.memory import need
from oarlock_trainer.plan.recomputation import allowed, fewest
from oarlock_trainer.plan.support import refuse_unsupported
from oarlock_trainer.plan.work import DDP, FROZEN_BYTES, Workload, same_effective_batch, stages, work_of
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_NODES = 64
"""Beyond this, more nodes are no advice."""
_WIDER = ((1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8))
"""Nodes, and GPUs of each, that are proposed to a run on too few to spread anything over."""
_AUTO = {"activationCheckpointing": {"mode": "Auto", "percent": None}}


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to set in words, and the work that it makes with so many recomputed blocks: it fits."""

    words: str
    work: Workload
    recomputed: int


@dataclass(frozen=True, slots=True)
class _Change:
    """What to set in words, as fields of spec.training, and on how many ranks it then runs."""

    words: str
    ranks: int
    fields: dict[str, Any] = field(default_factory=dict)
    ranks_per_node: int | None = None
    """None: as many as now."""


def remedies(work: Workload, training: Training, *, limit: int) -> Iterator[Remedy]:
    """Every change with which `work` needs no more than `limit` bytes of a GPU, the least costly first.

    Where recomputing more blocks helps only together with another change, the two are one remedy.
    """
    freer = _tried(work, training, _Change("activationCheckpointing.mode Auto", work.ranks, _AUTO), limit)
    if freer:
        yield freer
    for change in _changes(work, training, limit):
        found = _tried(work, training, change, limit)
        if not found and not freer:
            words = f"{change.words} and activationCheckpointing.mode Auto"
            found = _tried(work, training, replace(change, words=words, fields=change.fields | _AUTO), limit)
        if found:
            yield found


def _tried(work: Workload, training: Training, change: _Change, limit: int) -> Remedy | None:
    try:
        changed = Training.model_validate(_merged(training.to_manifest(), change.fields))
        refuse_unsupported(changed)
    except (ValidationError, ConfigurationError):  # it would have to change with something else
        return None
    other = work_of(
        changed,
        work.shape,
        ranks=change.ranks,
        ranks_per_node=change.ranks_per_node or work.ranks_per_node,
        image_tokens=work.image_tokens,
        frames=work.frames,
        text_tokens=work.text_tokens,
    )
    other = replace(other, stage=stages(other, changed)[-1])
    recomputed = fewest(other, allowed(changed.activation_checkpointing, blocks=other.shape.blocks), limit=limit)
    return None if recomputed is None else Remedy(change.words, other, recomputed)


def _merged(manifest: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    return manifest | {
        name: _merged(manifest.get(name) or {}, value) if isinstance(value, dict) else value
        for name, value in fields.items()
    }


def _changes(work: Workload, training: Training, limit: int) -> Iterator[_Change]:
    choices = allowed(training.activation_checkpointing, blocks=work.shape.blocks)
    yield from _smaller_batch(work, training, choices, limit)
    if not work.overlap and work.stage != DDP:
        yield _Change("engine.overlapCommunication true", work.ranks, {"engine": {"overlapCommunication": True}})
    if work.ema is EmaDevice.GPU:
        yield _Change("ema.device CPU", work.ranks, {"ema": {"device": EmaDevice.CPU}})
    if not work.compiled:
        yield _Change("compile.mode Default", work.ranks, {"compile": {"mode": CompileMode.DEFAULT}})
    yield from _smaller_base(work) if work.adapters else _smaller_states(work, training, choices, limit)


def _smaller_base(work: Workload) -> Iterator[_Change]:
    for kind, size in FROZEN_BYTES.items():
        if size < work.frozen_bytes:
            yield _Change(f"lora.quantizeBase {kind}", work.ranks, {"lora": {"quantizeBase": kind}})


def _smaller_states(work: Workload, training: Training, choices: range, limit: int) -> Iterator[_Change]:
    """Weights, gradients and optimizer states of a run that trains all parameters, spread further or kept smaller."""
    for stage in range(work.stage + 1, 4):
        words = f"engine.strategy DeepSpeed and engine.zeroStage {stage}"
        yield _Change(words, work.ranks, {"engine": {"strategy": Strategy.DEEPSPEED, "zeroStage": stage}})
    yield from _spread(work, choices, limit) if work.stage == DDP else _more_nodes(work, choices, limit)
    if work.optimizer is OptimizerName.ADAMW:
        for name in (OptimizerName.ADAMW_8BIT, OptimizerName.LION):
            yield _Change(f"optimizer.name {name}", work.ranks, {"optimizer": {"name": name}})
    if work.ranks == 1 and work.optimizer is not OptimizerName.ADAMW_BF16:  # more GPUs spread what it would save
        unspread = {"strategy": Strategy.DDP, "zeroStage": None, "offloadOptimizer": "None"}
        fields = {"optimizer": {"name": OptimizerName.ADAMW_BF16}, "engine": unspread}
        yield _Change(f"optimizer.name {OptimizerName.ADAMW_BF16} and engine.strategy DDP", work.ranks, fields)
    if not work.offload and work.stage != DDP:
        yield _Change("engine.offloadOptimizer CPU (slow)", work.ranks, {"engine": {"offloadOptimizer": "CPU"}})
    unsharded = {"strategy": Strategy.AUTO, "zeroStage": None, "offloadOptimizer": "None"}
    others = [name for name, value in training.engine.to_manifest().items() if unsharded.get(name, value) != value]
    without = f", without {' and '.join(f'engine.{name}' for name in others)}" if others else ""
    yield _Change(f"method LoRA{without}", work.ranks, {"method": "LoRA", "engine": unsharded})


def _smaller_batch(work: Workload, training: Training, choices: range, limit: int) -> Iterator[_Change]:
    """The largest micro-batch that fits with the same effective batch."""
    smaller = [one for one in same_effective_batch(work) if one.samples < work.samples]
    settled = [replace(one, stage=stages(one, training)[-1]) for one in smaller]
    for one in _first_that_fits(settled, choices, limit):
        yield _Change(f"{one.batch.settings} (the same effective batch)", work.ranks, one.batch.fields)


def _more_nodes(work: Workload, choices: range, limit: int) -> Iterator[_Change]:
    """The fewest nodes that fit, where the optimizer's state is spread over them."""
    wider = [
        work.on(nodes * work.ranks_per_node, work.ranks_per_node) for nodes in range(work.nodes + 1, _MOST_NODES + 1)
    ]
    for one in _first_that_fits([one for one in wider if one], choices, limit):
        yield _Change(f"{one.nodes} nodes (effective batch {one.batch.effective})", one.ranks)


def _spread(work: Workload, choices: range, limit: int) -> Iterator[_Change]:
    """The fewest GPUs on which a run fits that spreads nothing yet, once it does; none where its own are enough for that."""
    sizes = [(work.nodes, work.ranks_per_node), *(one for one in _WIDER if one[0] * one[1] > work.ranks)]
    wider = [replace(work, stage=2).on(nodes * gpus, gpus) for nodes, gpus in sizes]
    for one in _first_that_fits([one for one in wider if one], choices, limit):
        if one.ranks > work.ranks:
            size = f"{one.nodes} node{'s' if one.nodes > 1 else ''} of {one.ranks_per_node} GPUs"
            words = f"engine.strategy Auto on {size} (effective batch {one.batch.effective})"
            yield _Change(words, one.ranks, {"engine": {"strategy": Strategy.AUTO}}, one.ranks_per_node)


def _first_that_fits(works: Sequence[Workload], choices: range, limit: int) -> list[Workload]:
    """One, with as many recomputed blocks as the job has it; if none fits so, with as many as there are; or none."""
    as_asked = [one for one in works if need(one, recomputed=choices[-1]).total <= limit]
    return (as_asked or [one for one in works if need(one, recomputed=one.shape.blocks).total <= limit])[:1]
