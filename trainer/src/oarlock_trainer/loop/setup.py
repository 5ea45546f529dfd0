"""What both training and preprocessing begin with: the output is this attempt's, and its data are there.

settings -> ranks -> fence and resume point -> model's files -> data: in the order in which it can fail most cheaply
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.engine import Strategy
from oarlock_api.training import Task
from oarlock_api.weights import Lora, Method
from oarlock_trainer.checkpoint.fence import Fence
from oarlock_trainer.checkpoint.format import Checkpoint
from oarlock_trainer.checkpoint.memory.held import FOLDER, RESUME_PLACES, RESUME_STEP, RING, is_wanted
from oarlock_trainer.checkpoint.memory.resume import resume
from oarlock_trainer.checkpoint.reader import copies_of, renew_fence, take_over
from oarlock_trainer.data.batch_fit import batch_of
from oarlock_trainer.data.grouping import make_buckets, make_timeline, steps_of
from oarlock_trainer.engine import deepspeed
from oarlock_trainer.engine.initialize import strategy
from oarlock_trainer.hub.hub import Hub
from oarlock_trainer.loop import publish
from oarlock_trainer.models import folder
from oarlock_trainer.models.adapters import lora
from oarlock_trainer.models.adapters.targets import Adapters
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.source import bring
from oarlock_trainer.plan.parameters import read_architecture
from oarlock_trainer.plan.support import refuse_unsupported
from oarlock_trainer.preflight.collective import check
from oarlock_trainer.preprocess.pipeline import prepare
from oarlock_trainer.runtime.start_clock import StartPart
from oarlock_trainer.storage.locations import locations_of
from oarlock_trainer.validation.image_requests import read_image_requests
from oarlock_trainer.validation.references import prepare_references
from oarlock_trainer.validation.texts import prepare_texts
from oarlock_trainer.validation.validation import Validation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from oarlock_trainer.checkpoint.copies import Copies
    from oarlock_trainer.data.batch_fit import Batch
    from oarlock_trainer.data.grouping import Bucket
    from oarlock_trainer.data.metadata.table import Table
    from oarlock_trainer.data.prepared import Prepared
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.runtime.start_clock import StartClock
    from oarlock_trainer.storage.locations import Locations
    from oarlock_trainer.validation.image_requests import ImageRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The output is ours and the data are there: what both training and preprocessing begin with."""

    job: Job
    locations: Locations
    hub: Hub
    ranks: RankGroup
    fence: Fence
    copies: Copies | None
    resumed: Checkpoint | None
    memory: Path | None
    """Where this node keeps its ranks' newest state; None where it does not."""
    ring: bool
    """Whether it keeps that of the node before it, too."""
    batch: Batch
    prepared: Prepared
    validation: Validation | None


def model_folder(job: Job) -> Path:
    """The base model's directory."""
    return Path(job.training.model.path or "")


def adapters_of(job: Job) -> Lora | None:
    """What a job's adapters are like; None where it trains the whole model."""
    return job.training.lora or Lora() if job.training.method is Method.LORA else None


def saved_adapters(job: Job, weights: nn.Module | None = None) -> Adapters | None:
    """What a job's checkpoints say of its adapters, which stand in `weights`; None where it trains the whole model."""
    adapters = adapters_of(job)
    if adapters is None:
        return None
    shapes = lora.trained_shapes(weights) if weights is not None else {}
    return Adapters(adapters.rank, adapters.alpha, adapters.algorithm, shapes)


def initial_weights(job: Job) -> Path | None:
    """The directory of training.initFrom."""
    start = job.training.init_from
    return Path(start.path) if start and start.path else None


def check_initial(job: Job) -> None:
    """Raise ConfigurationError where the directory of training.initFrom has not the kind of weights that the job trains."""
    weights, adapters = initial_weights(job), adapters_of(job)
    if weights and adapters:
        folder.check_file(weights, lora.FILE, field="training.initFrom.path")
        lora.check_algorithm(adapters, weights)
    elif weights:
        folder.check_transformer(weights, family_of(job.training.model), field="training.initFrom.path")


def set_up(job: Job, environment: Mapping[str, str], *, go_on: Callable[[], None], clock: StartClock) -> Setup:
    """Join the ranks, take the output over, and make sure that all embeddings are there.

    `environment`: where the keys of stores and hubs are. `go_on` is called while waiting and encoding, and may raise to stop.
    """
    training = job.training
    locations, hub = locations_of(job, environment), Hub(dict(environment))
    refuse_unsupported(training)
    if training.model.path:
        folder.check(model_folder(job), family_of(training.model), field="training.model.path")
    if strategy(training) is Strategy.DEEPSPEED:
        deepspeed.check(training)
    ranks = check.join(job, go_on=go_on)
    clock.lap(StartPart.MEET)
    name = f"{job.file.namespace}/{job.file.job}"
    gone = name if job.file.previous_owner_is_gone else ""
    fence = Fence(job.output, job.owner, job=name, gone=gone, cluster=job.cluster)
    copies = copies_of(job, locations)
    memory, step, world = _memory_of(job, environment)
    resumed = resume(job, ranks, memory, step, world=world) if memory else None
    if resumed:
        renew_fence(job, ranks, fence)
    else:
        resumed = take_over(job, ranks, fence, copies=copies, go_on=go_on)
    if training.task is Task.TRAIN and training.publish and not resumed:  # a restart does not depend on it
        ranks.decide(lambda: publish.check(job, locations, hub, go_on=go_on))
    clock.lap(StartPart.OUTPUT)
    job = bring(job, ranks, locations=locations, hub=hub, initial=not resumed, go_on=go_on)
    if not resumed:
        check_initial(job)
    clock.lap(StartPart.FETCH)
    batch = batch_of(training, ranks=job.rank_info.world_size, ranks_per_node=job.rank_info.local_world_size)

    def cut(table: Table) -> list[Bucket]:
        """The buckets that are trained on, which are enough for a run; none where nothing is trained."""
        if training.task is not Task.TRAIN:
            return []
        buckets = make_buckets(table, training, batch)
        steps_of(make_timeline(buckets, training, effective=batch.effective), training)
        return buckets

    wanted = ranks.decide(lambda: read_image_requests(job, locations))
    prepared = prepare(job, locations, ranks, cut=cut, go_on=go_on)
    validation = _validation(job, locations, ranks, wanted, go_on=go_on) if wanted else None
    clock.lap(StartPart.DATA)
    return Setup(
        job=job,
        locations=locations,
        hub=hub,
        ranks=ranks,
        fence=fence,
        copies=copies,
        resumed=resumed,
        memory=memory,
        ring=environment.get(RING) == "1",
        batch=batch,
        prepared=prepared,
        validation=validation,
    )


def _memory_of(job: Job, environment: Mapping[str, str]) -> tuple[Path | None, int | None, int | None]:
    """Where the state is kept, the step to go on from there, and how many ranks kept that where they were more or fewer."""
    kept, step, places = (environment.get(name) for name in (FOLDER, RESUME_STEP, RESUME_PLACES))
    if not kept or job.training.task is not Task.TRAIN or not is_wanted(job.file.recovery.memory.every_steps):
        return None, None, None
    world = int(places) * job.rank_info.local_world_size if places else None
    return Path(kept), int(step) if step else None, world


def _validation(
    job: Job, locations: Locations, ranks: RankGroup, wanted: Sequence[ImageRequest], *, go_on: Callable[[], None]
) -> Validation:
    """What makes the pictures, with all prompts and references encoded."""
    texts = prepare_texts(job, locations, ranks, wanted, go_on=go_on)
    references = prepare_references(job, locations, ranks, wanted, go_on=go_on)
    architecture = read_architecture(model_folder(job), family_of(job.training.model))
    return Validation(job, ranks, wanted, texts, references, architecture=architecture)
