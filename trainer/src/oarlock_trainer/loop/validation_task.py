"""Task Evaluate: the losses on unseen data and the pictures of one model, which is not trained.

The model is the output's newest checkpoint (its moving average, where the job had one), else training.initFrom, else the
base model. Losses are those that the training run itself reported at the checkpoint: the same pictures, noise and order.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from oarlock_api.contract.layout import EVALUATION_REPORT
from oarlock_api.contract.status import PodPhase
from oarlock_api.dataset import EmbedMode, Role
from oarlock_trainer.checkpoint.weights import Weights
from oarlock_trainer.data.batches import Loader
from oarlock_trainer.data.grouping import make_timeline
from oarlock_trainer.engine import process_group
from oarlock_trainer.loop.evaluation import evaluate
from oarlock_trainer.loop.metrics import Metrics
from oarlock_trainer.loop.setup import model_folder
from oarlock_trainer.loop.trained_model import load_model
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.tuning import tune
from oarlock_trainer.plan.parameters import read_architecture
from oarlock_trainer.preprocess.live import LiveEncoding
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.atomic_write import write_json
from oarlock_trainer.runtime.errors import LeftOnRequest, storage
from oarlock_trainer.validation.index import Pictures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from oarlock_trainer.checkpoint.format import Checkpoint
    from oarlock_trainer.loop.setup import Setup
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.runtime.stop import StopRequest
    from oarlock_trainer.validation.validation import ValidationOutcome


def of_evaluation(job: Job) -> Job:
    """The same job without latents of pictures that are not judged. Its table stays as it is: a row's noise hangs on it."""
    data = job.training.data
    datasets = tuple(
        one
        if one.role is Role.EVALUATION
        else one.model_copy(update={"image_embeds": one.image_embeds.model_copy(update={"mode": EmbedMode.ON_THE_FLY})})
        for one in data.datasets
    )
    return replace(
        job, training=job.training.model_copy(update={"data": data.model_copy(update={"datasets": datasets})})
    )


def judge(setup: Setup, stop: StopRequest) -> int:
    """Judge the model, write the report; returns the steps that it was trained for. Collective."""
    job, ranks, training, found = setup.job, setup.ranks, setup.job.training, setup.resumed
    ranks.bound_waiting(max(process_group.STEP_TIMEOUT, 2.0 * job.file.recovery.hang_seconds))
    step = found.step if found else 0
    model = load_model(setup)
    if found:
        _take_over(model, found)
    tune(model, training, device=ranks.device, recomputed=0, scratch=Path(tempfile.gettempdir()))
    model.eval()
    channel.send(channel.Event.PHASE, name=PodPhase.VALIDATING)
    loader = Loader(
        setup.prepared,
        [],
        make_timeline([], training, effective=setup.batch.effective),
        training=training,
        rank_info=job.rank_info,
        encoding=LiveEncoding(job, setup.locations, ranks),
        pin=ranks.device.type == "cuda",
    )
    shape = read_architecture(model_folder(job), family_of(training.model))

    def leaving() -> bool:
        return stop.requested

    losses = evaluate(nullcontext(model), loader, job, ranks, has_guidance=shape.has_guidance, leaving=leaving)
    loader.close()
    outcome = setup.validation.make(nullcontext(model), step, leaving=leaving) if setup.validation else None
    if ranks.sum([float(stop.requested)])[0]:
        raise LeftOnRequest("left on request while judging the model: a restart makes what is missing")
    ranks.decide(lambda: _report(setup, step, losses, outcome))
    return step


@torch.no_grad()
def _take_over(model: nn.Module, found: Checkpoint) -> None:
    """Overwrite what is trained with a checkpoint's weights. Raises ConfigurationError where it is of another model."""
    weights = Weights(found)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.copy_(weights.read(name, parameter.shape))


def _report(setup: Setup, step: int, losses: Mapping[str, float], outcome: ValidationOutcome | None) -> None:
    """Write the losses and what pictures there are. Rank 0 only."""
    job, found = setup.job, setup.resumed
    metrics = Metrics(job.output, job.file.attempt)
    if losses:
        metrics.evaluation(step, losses)
    if outcome:
        metrics.validation(step, outcome)
    metrics.close()
    start = job.training.init_from
    model = found.path if found else start.path if start else job.training.model.path
    path = job.output / EVALUATION_REPORT
    with storage(f"reading the index of pictures in {job.output}"):
        pictures = Pictures(job.output, job_uid=job.file.job_uid).of_step(step) if setup.validation else []
    body = {
        "version": 1,
        "step": step,
        "model": str(model),
        "losses": losses,
        "pictures": pictures,
        "failed": outcome.failed if outcome else [],
        "leftOut": outcome.left_out if outcome else 0,
    }
    setup.fence.check()
    with storage(f"writing {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, body)
    sys.stderr.write(f"judged {model}, {step} steps of training: {path}\n")
