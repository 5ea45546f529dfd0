"""Chooses how a job is fitted into its GPUs, before any weights are read, and refuses what cannot fit.

Chosen is what the job leaves open: ZeRO's stage with strategy Auto; with activation checkpointing Auto the number of
recomputed blocks, and whether the others, compiled, are lean; the size of an exchange. batchSize and
gradientAccumulation are the user's: another pair with the same effective batch is proposed where the model says that it
is faster, and never taken. Nor is stage 3, which costs a job its validation pictures.

The same job on the same GPUs always gets the same plan, on every rank: nothing is measured or drawn here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from oarlock_trainer.plan import refusal
from oarlock_trainer.plan.communication import assumed_fabric
from oarlock_trainer.plan.gpus import gpu_of_device, usable_bytes
from oarlock_trainer.plan.memory import need
from oarlock_trainer.plan.recomputation import allowed, fewest, variants
from oarlock_trainer.plan.speed import expect
from oarlock_trainer.plan.work import same_effective_batch, stages, text_homes, work_of
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oarlock_api.training import Training
    from oarlock_trainer.models.architecture import Architecture
    from oarlock_trainer.plan.communication import Interconnect
    from oarlock_trainer.plan.gpus import Gpu
    from oarlock_trainer.plan.memory import Memory
    from oarlock_trainer.plan.speed import Speed
    from oarlock_trainer.plan.work import Workload

_WORTH_PROPOSING = 0.95
"""Of the step's time: less is within what the model cannot know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """Where a job is to run. All None on the CPU, where nothing is refused.

    `memory` is what can be used of each GPU, in bytes.
    """

    memory: int | None
    kind: Gpu | None
    fabric: Interconnect | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was chosen, and what it should cost. `recomputed` blocks, from the first one on."""

    work: Workload
    gpus: Gpus
    recomputed: int
    memory: Memory
    speed: Speed | None
    """None where the type of GPU is not known."""
    proposal: Plan | None = None
    """The same effective batch in other micro-batches, where that should be faster."""

    @property
    def zero_stage(self) -> int:
        """ZeRO's stage, 0 for DDP."""
        return self.work.stage

    @property
    def bucket_elements(self) -> int:
        """Elements of one exchange of gradients."""
        return self.work.bucket_elements

    def settled(self, training: Training) -> Training:
        """`training` with what was left open in it filled in as planned; DDP has neither stages nor this kind of bucket."""
        if not self.zero_stage:
            return training
        chosen = {"zero_stage": self.zero_stage, "bucket_elements": self.bucket_elements}
        return training.model_copy(update={"engine": training.engine.model_copy(update=chosen)})

    def words(self) -> str:
        """The plan in a line, for the log."""
        spread = f"ZeRO stage {self.zero_stage}" if self.zero_stage else "DDP"
        lean = ", of others what is pointwise" if self.work.lean else ""
        memory = f", {self.memory.total / 1e9:.1f} GB a GPU by the model" if self.gpus.memory else ""
        return (
            f"plan: {spread} on {self.work.ranks} ranks, effective batch {self.work.batch.effective}, "
            f"{self.recomputed} of {self.work.shape.blocks} blocks recomputed{lean}{memory}"
        )

    def status(self) -> dict[str, int]:
        """The plan as status.resolved.plan has it; memoryBytes are those of one GPU at its peak, by the model."""
        return {
            "effectiveBatch": self.work.batch.effective,
            "zeroStage": self.zero_stage,
            "memoryBytes": self.memory.total,
        }


def plan_for(
    training: Training,
    shape: Architecture,
    *,
    world_size: int,
    local_world_size: int,
    gpu_memory_bytes: int | None,
    gpu_name: str = "",
    image_tokens: int | None = None,
    frames: int = 1,
    text_tokens: int | None = None,
) -> Plan:
    """The plan of a run on the GPUs that it found: the whole memory of the smallest (None on the CPU), and their name.

    `image_tokens` and `frames` are those of the largest bucket. Raises ConfigurationError with the arithmetic where nothing
    fits.
    """
    work = work_of(
        training,
        shape,
        ranks=world_size,
        ranks_per_node=local_world_size,
        image_tokens=image_tokens,
        frames=frames,
        text_tokens=text_tokens,
    )
    kind = gpu_of_device(gpu_name)
    fabric = assumed_fabric(nodes=work.nodes, gpus_per_node=local_world_size, gpu=kind) if kind else None
    memory = None if gpu_memory_bytes is None else usable_bytes(gpu_memory_bytes)
    return choose(work, training, Gpus(memory=memory, kind=kind, fabric=fabric))


def choose(work: Workload, training: Training, gpus: Gpus) -> Plan:
    """The fastest plan of `work` that fits, by the model, with what `training` leaves open.

    Raises ConfigurationError with the arithmetic, and what would fit, where none does.
    """
    plan = _fastest(_fitted(work, training, gpus))
    if plan is None:
        last = replace(work, stage=stages(work, training)[-1])
        raise ConfigurationError(refusal.words(last, training, limit=gpus.memory or 0))
    if plan.speed is None:
        return plan
    others = (found for other in same_effective_batch(work) for found in _fitted(other, training, gpus))
    other = _fastest(others)
    if other and other.speed and other.speed.seconds < plan.speed.seconds * _WORTH_PROPOSING:
        return replace(plan, proposal=other)
    return plan


def with_recomputed(plan: Plan, number: int) -> Plan:
    """The same plan with another number of recomputed blocks, and without a proposal."""
    return _plan(plan.work, plan.gpus, number)


def _fitted(work: Workload, training: Training, gpus: Gpus) -> Iterator[Plan]:
    """A plan for each stage that fits, as the compiler would and lean, each with the fewest recomputed blocks."""
    choices = allowed(training.activation_checkpointing, blocks=work.shape.blocks)
    open_to = [one for variant in variants(work, training.activation_checkpointing) for one in text_homes(variant)]
    for stage, variant in product(stages(work, training), open_to):
        staged = replace(variant, stage=stage)
        recomputed = fewest(staged, choices, limit=gpus.memory)
        if recomputed is not None:
            yield _plan(staged, gpus, recomputed)


def _plan(work: Workload, gpus: Gpus, recomputed: int) -> Plan:
    speed = (
        expect(work, recomputed=recomputed, gpu=gpus.kind, fabric=gpus.fabric) if gpus.kind and gpus.fabric else None
    )
    return Plan(
        work=work,
        gpus=gpus,
        recomputed=recomputed,
        memory=need(work, recomputed=recomputed),
        speed=speed,
    )


def _fastest(plans: Iterable[Plan]) -> Plan | None:
    """The fastest by the model, or the one that recomputes least where there is none; the first of equals."""
    return min(plans, key=lambda one: one.speed.seconds if one.speed else one.recomputed, default=None)
