"""The planner's part of what `oarlock-trainer plan` prints: memory, choices and time of a step, as a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.training import Task
from oarlock_trainer.models.families import family_of, masks_text
from oarlock_trainer.plan import communication, compiling, gpus
from oarlock_trainer.plan.memory import GB, host_bytes
from oarlock_trainer.plan.memory_state import in_memory
from oarlock_trainer.plan.parameters import read_architecture
from oarlock_trainer.plan.planner import Gpus, Plan, choose
from oarlock_trainer.plan.work import DDP, work_of
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from oarlock_api.spec import TrainingJobSpec
    from oarlock_api.training import Training


def named(*, gpu: str | None, fabric: str | None) -> tuple[gpus.Gpu, communication.Interconnect | None]:
    """The types that somebody named; None: the GPU is assumed, and the fabric depends on the job.

    Raises ConfigurationError where a name is not known.
    """
    kind = gpus.gpu(gpu or gpus.ASSUMED)
    return kind, communication.fabric(fabric, gpu=kind) if fabric else None


def forecast(
    spec: TrainingJobSpec,
    training: Training,
    tokens: Collection[int],
    *,
    text_tokens: int,
    frames: int = 1,
    gpu: str | None,
    fabric: str | None,
) -> str:
    """Several lines; none where nothing is trained, one where it is not on GPUs. Types that nobody named (None) are assumed.

    `training` has the paths of this machine; the model need not be on it. `tokens` of the image have samples of the buckets,
    each number once; the largest has so many `frames`. Raises ConfigurationError where the job does not fit into the GPUs.
    """
    if training.task is not Task.TRAIN:
        return ""
    if not spec.gpus_per_node:
        return "\nGPUs          none (gpusPerNode: 0): nothing is chosen, and neither memory nor time is computed\n"
    kind, ties = named(gpu=gpu, fabric=fabric)
    family = family_of(training.model)
    if ties is None:
        ties = communication.assumed_fabric(nodes=spec.nodes, gpus_per_node=spec.gpus_per_node, gpu=kind)
    model = Path(training.model.path or "")
    work = work_of(
        training,
        read_architecture(model, family) if model.is_dir() else family.published,
        ranks=spec.nodes * spec.gpus_per_node,
        ranks_per_node=spec.gpus_per_node,
        image_tokens=max(tokens),
        frames=frames,
        text_tokens=text_tokens,
    )
    assumed = " and ".join(name for name, value in (("--gpu", gpu), ("--fabric", fabric)) if value is None)
    where = f"\nGPUs          {spec.nodes} x {spec.gpus_per_node} {kind.name}, {ties.name}"
    where += f" (assumed; {assumed} name others)\n" if assumed else "\n"
    try:
        plan = choose(work, training, Gpus(memory=kind.memory, kind=kind, fabric=ties))
    except ConfigurationError as refused:
        if gpu:
            raise
        raise ConfigurationError(f"{refused}\n{kind.name} is assumed: --gpu names another") from refused
    shapes, masked = len(tokens), masks_text(training)
    settings = compiling.settled(training.compile, shapes=shapes, masked=masked)
    words = compiling.words(settings, shapes=shapes, masked=masked, kinds=len(plan.work.shape.kinds))
    compiles = [f"compile       {words}"] if words else []
    return where + "".join(f"{line}\n" for line in [*describe(plan), *compiles, *in_memory(plan.work, spec)])


def describe(plan: Plan) -> Iterator[str]:
    """The plan in lines: memory by component, what was chosen, what a step should take."""
    yield "memory        of one GPU in GB (1e9 bytes): a model, not measured"
    for one in plan.memory.components:
        yield f"  {one.name:<12}{one.bytes / GB:>7.1f}   {one.arithmetic}"
    of = f"of {plan.gpus.memory / GB:.1f} that can be used" if plan.gpus.memory else "the GPU's own is not known"
    yield f"  {'total':<12}{plan.memory.total / GB:>7.1f}   {of}"
    if size := host_bytes(plan.work):
        yield f"  {'node':<12}{size / GB:>7.1f}   in the node's own memory, for each GPU"
    yield f"chosen        {_choices(plan)}"
    if plan.speed:
        yield f"step          {_step(plan)}: a model, not measured"
        yield (
            f"              at best {plan.speed.compute:.2f} s of arithmetic, {plan.speed.exposed:.2f} waiting for others, "
            f"{plan.speed.update:.2f} updating"
        )
    if plan.proposal:
        batch = plan.proposal.work.batch
        yield f"proposal      {batch.settings}, the same {batch}:"
        yield f"              {_choices(plan.proposal)}, {_step(plan.proposal)}"


def _choices(plan: Plan) -> str:
    blocks = plan.work.shape.blocks
    stage = "DDP" if plan.zero_stage == DDP else f"ZeRO stage {plan.zero_stage}"
    recomputed = f"{plan.recomputed} of {blocks} blocks recomputed" if plan.recomputed else "no block recomputed"
    exchange = "" if plan.zero_stage == DDP else f", exchanges of {plan.bucket_elements / 1e6:.0f} M elements"
    lean = ", of others what is pointwise" if plan.work.lean else ""
    return f"{stage}, {recomputed}{lean}{exchange}"


def _step(plan: Plan) -> str:
    speed = plan.speed
    if speed is None:
        return "its time is not known"
    fast, slow, pictures = speed.seconds, speed.slow_seconds, plan.work.batch.effective
    return (
        f"{fast:.2f} to {slow:.2f} s, {pictures / fast:.1f} to {pictures / slow:.1f} pictures/s, "
        f"MFU {speed.utilization(fast) * 100:.0f} to {speed.utilization(slow) * 100:.0f} %"
    )
