"""The training program of one rank: from its start to its exit code, and the loop in between."""

from __future__ import annotations

import math
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING

import torch

from oarlock_api.contract.status import PodPhase
from oarlock_api.training import Task
from oarlock_trainer import channel, denied, last_words
from oarlock_trainer.checkpoint.export import Export
from oarlock_trainer.checkpoint.format import inspect
from oarlock_trainer.data.draws import Purpose, generator
from oarlock_trainer.engine import process_group
from oarlock_trainer.engine.learning_rate import learning_rate
from oarlock_trainer.errors import LeftOnRequest, PeerLostError, StorageError, TrainingEnd, lost_a_peer, lost_storage
from oarlock_trainer.evaluation import evaluate
from oarlock_trainer.job import read_job
from oarlock_trainer.metrics import StepFacts
from oarlock_trainer.models.flux.lora import without_adapters
from oarlock_trainer.models.flux.loss import flow_matching_loss
from oarlock_trainer.plan.flops import model_flops_utilization, training_flops
from oarlock_trainer.saves import Saves
from oarlock_trainer.session import Claim, Session, assemble, claim
from oarlock_trainer.stop import StopRequest

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from oarlock_trainer.checkpoint.format import Checkpoint
    from oarlock_trainer.data.batches import StepBatch
    from oarlock_trainer.job import Job
    from oarlock_trainer.models.flux.loss import MicroBatch

_BAD_LOSSES = 10
"""So many losses in a row that are not finite, and the weights are beyond recovery: DeepSpeed skips such updates."""


def main() -> int:
    """Run this rank; returns the exit code of the contract."""
    try:
        run(read_job(os.environ))
    except TrainingEnd as end:
        return _ended(int(end.code), str(end))
    except Exception as error:  # noqa: BLE001 - the process ends here, and says why
        if lost_a_peer(error):
            sys.stderr.write(f"{error}\n")
            return _ended(int(PeerLostError.code), last_words.of_lost_peer(str(error)))
        traceback.print_exc()
        if isinstance(error, PermissionError) and error.filename:
            return _ended(int(StorageError.code), denied.explain(error, writing=True))
        if lost_storage(error):
            return _ended(int(StorageError.code), f"the storage failed: {error}")
        return _ended(1, f"{type(error).__name__}: {error}")
    return 0


def run(job: Job) -> None:
    """Train one attempt to its end."""
    stop = StopRequest()
    claimed = claim(job, go_on=stop.leave_if_requested)
    if job.training.task is Task.PREPROCESS:
        _finish(claimed, step=0)
        return
    session = assemble(claimed)
    saved = loop(session, stop)
    channel.send(channel.Event.PHASE, name=PodPhase.EXPORTING)
    _export(session, claimed.ranks.decide(lambda: inspect(saved)) if saved else claimed.resumed)
    _finish(claimed, step=session.total)


def loop(session: Session, stop: StopRequest) -> Path | None:
    """Every optimizer step from `session.first` to `session.total`; returns the last checkpoint, if any was to be made.

    Raises LeftOnRequest, after saving, where a rank was asked to leave.
    """
    settings, ranks = session.job.training, session.ranks
    channel.send(channel.Event.PHASE, name=PodPhase.TRAINING)
    bad_losses = 0
    saves = Saves(session)
    for step in range(session.first, session.total):
        began = time.monotonic()
        batch = session.prefetch.take()
        waited = time.monotonic() - began
        rate = learning_rate(settings.optimizer, step, session.total)
        _seed(session, step)
        loss = _optimizer_step(session, batch, rate)
        done = step + 1
        due = stop.take_saving() or (ranks.place.is_leader and session.interval.is_due(done, time.monotonic()))
        # One small exchange a step carries all that ranks must agree on: the mean loss, who was asked to leave, whether a
        # checkpoint is due by rank 0's clock, or asked for by anybody, and who is done with the last one's next stage. It
        # waits for the step, as DeepSpeed's overflow check did.
        total_loss, leaving, saving, ready = ranks.sum(
            [float(loss), float(stop.requested), float(due), float(session.writer.ready())]
        )
        mean_loss = total_loss / ranks.place.world_size
        if step == session.first:
            ranks.bound_waiting(max(process_group.STEP_TIMEOUT, 2.0 * session.job.file.hang_seconds))
        if session.metrics:
            session.metrics.step(
                StepFacts(
                    step=done,
                    total=session.total,
                    epoch=batch.epoch,
                    loss=mean_loss,
                    learning_rate=rate,
                    gradient_norm=session.engine.gradient_norm(),
                    seconds=(seconds := time.monotonic() - began),
                    data_seconds=waited,
                    images=session.batch.effective,
                    mfu=_mfu(session, batch, seconds),
                )
            )
        else:
            channel.send(channel.Event.STEP, step=done, total=session.total)
        bad_losses = 0 if math.isfinite(mean_loss) else bad_losses + 1
        if bad_losses >= _BAD_LOSSES:
            raise RuntimeError(f"the loss was not finite for {bad_losses} steps: lower optimizer.learningRate")
        if ready == ranks.place.world_size:
            saves.told(session.writer.advance())
        last = bool(leaving) or done == session.total
        if saving or last:
            saves.begin(done)
            if last:
                saves.finish(done)
            if not leaving:
                _evaluate(session, done, batch.micro_batches[-1])
        if leaving:
            session.prefetch.close()  # publishes what was encoded on the way
            raise LeftOnRequest(f"saved step {done} and left on request")
    session.prefetch.close()
    return saves.newest


def _seed(session: Session, step: int) -> None:
    """Let this step's dropout depend on the step and the rank alone, so that a resumed run draws the same."""
    if session.adapters and session.adapters.dropout:
        drawn = generator(session.job.training.seed, Purpose.DROPOUT, step, session.ranks.place.rank)
        torch.manual_seed(int(drawn.integers(2**63)))


def _optimizer_step(session: Session, batch: StepBatch, rate: float) -> Tensor:
    """Forward, backward, update; returns this rank's mean loss, still on its device."""
    engine, losses = session.engine, []
    for micro_batch in batch.micro_batches:
        loss = flow_matching_loss(
            engine.model,
            micro_batch.to(session.ranks.device),
            has_guidance=session.shape.has_guidance,
            measure=session.job.training.objective.loss,
            base=without_adapters(engine.weights) if batch.regularizes else None,
        )
        engine.backward(loss)
        session.writer.before_update()
        engine.step(rate)
        losses.append(loss.detach())
    return torch.stack(losses).mean()


def _mfu(session: Session, batch: StepBatch, seconds: float) -> float | None:
    """Share of the GPUs' peak; None on the CPU and on GPUs that are not known."""
    if session.peak is None:
        return None
    each = training_flops(
        blocks=session.shape.blocks,
        width=session.shape.width,
        tokens=batch.tokens,
        frozen=session.adapters is not None,
        regularizes=batch.regularizes,
    )
    return model_flops_utilization(
        flops=session.batch.effective * each,
        seconds=seconds,
        devices=session.ranks.place.world_size,
        peak=session.peak,
    )


def _evaluate(session: Session, step: int, spare: MicroBatch) -> None:
    losses = evaluate(session, spare)
    if losses and session.metrics:
        session.metrics.evaluation(step, losses)


def _export(session: Session, last: Checkpoint | None) -> None:
    """Write the model from the last checkpoint, each rank its share."""
    if last is None:
        raise StorageError(f"the last checkpoint in {session.job.output} is not there as it was written")
    ranks, place = session.ranks, session.ranks.place
    exporting = Export(last, session.model, session.job.output, adapters=session.adapters)
    ranks.decide(exporting.begin)
    ranks.all_or_none(lambda: exporting.write_share(place.rank, place.world_size))
    path = ranks.decide(exporting.complete)
    if place.is_leader:
        channel.send(channel.Event.MODEL, path=str(path))


def _finish(claimed: Claim, *, step: int) -> None:
    """Say that the job is done, when rank 0 has done all."""
    claimed.ranks.decide(lambda: claimed.fence.finish(step))
    channel.send(channel.Event.PHASE, name=PodPhase.DONE)
    process_group.leave()


def _ended(code: int, summary: str) -> int:
    channel.send(channel.Event.FAILURE, code=code, summary=summary)
    sys.stderr.write(f"{summary}\n")
    sys.stderr.flush()
    return code
