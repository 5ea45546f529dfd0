"""The training program of one rank: from its start to its exit code, and the loop in between."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

import torch

from oarlock_api.contract.layout import MODEL
from oarlock_api.contract.status import PodPhase, StepPart
from oarlock_api.engine import Strategy
from oarlock_api.training import Task
from oarlock_trainer.checkpoint.export import Export, mark_of, remove_unfinished
from oarlock_trainer.checkpoint.format import inspect
from oarlock_trainer.data.prefetch import data_come
from oarlock_trainer.engine import process_group
from oarlock_trainer.engine.around import judged
from oarlock_trainer.engine.host_copy import HostCopy
from oarlock_trainer.engine.initialize import strategy
from oarlock_trainer.engine.learning_rate import learning_rate
from oarlock_trainer.loop import loss_curve
from oarlock_trainer.loop.evaluation import evaluate
from oarlock_trainer.loop.profiler import Profiler
from oarlock_trainer.loop.publish import publish
from oarlock_trainer.loop.rank_pace import RankPace
from oarlock_trainer.loop.saves import TOLD, Saves
from oarlock_trainer.loop.session import Session, assemble
from oarlock_trainer.loop.setup import Setup, set_up
from oarlock_trainer.loop.step_clock import StepClock, watch_of
from oarlock_trainer.loop.step_guard import StepGuard
from oarlock_trainer.loop.step_report import report
from oarlock_trainer.loop.validation_task import judge, of_evaluation
from oarlock_trainer.models.adapters.lora import without_adapters
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.models.objective import noise_bins
from oarlock_trainer.models.objective.loss import sample_losses, weighted
from oarlock_trainer.runtime import channel, error_summary, permission_error
from oarlock_trainer.runtime.draws import Purpose, generator
from oarlock_trainer.runtime.errors import (
    LeftOnRequest,
    PeerLostError,
    StorageError,
    TrainingEnd,
    lost_a_peer,
    lost_storage,
)
from oarlock_trainer.runtime.job import read_job
from oarlock_trainer.runtime.start_clock import StartClock, StartPart
from oarlock_trainer.runtime.stop import StopRequest
from oarlock_trainer.tracking.trackers import Trackers, runs_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from oarlock_trainer.checkpoint.format import Checkpoint
    from oarlock_trainer.data.batches import StepBatch
    from oarlock_trainer.models.objective.loss import MicroBatch
    from oarlock_trainer.runtime.job import Job


def main() -> int:
    """Run this rank; returns the exit code of the contract."""
    try:
        run(read_job(os.environ), os.environ)
    except TrainingEnd as end:
        return _ended(int(end.code), str(end) if channel.AGENT_FD in os.environ else end.outside_of_pods)
    except Exception as error:  # noqa: BLE001 - the process ends here, and says why
        if lost_a_peer(error):
            sys.stderr.write(f"{error}\n")
            return _ended(int(PeerLostError.code), error_summary.of_lost_peer(str(error)))
        traceback.print_exc()
        if isinstance(error, PermissionError) and error.filename:
            return _ended(int(StorageError.code), permission_error.explain(error, writing=True))
        if lost_storage(error):
            return _ended(int(StorageError.code), f"the storage failed: {error}")
        return _ended(1, f"{type(error).__name__}: {error}")
    return 0


def run(job: Job, environment: Mapping[str, str]) -> None:
    """Train one attempt to its end. `environment`: where the secrets of stores, hubs and trackers are."""
    stop, started = StopRequest(), StartClock()
    if job.training.task is Task.EVALUATE:
        job = of_evaluation(job)
    tracked = runs_of(job, environment) if job.rank_info.is_leader else []
    setup = set_up(job, environment, go_on=stop.leave_if_requested, clock=started)
    if job.training.task is Task.PREPROCESS:
        _finish(setup, step=0)
        return
    if job.training.task is Task.EVALUATE:
        _finish(setup, step=judge(setup, stop))
        return
    session = assemble(setup, started)
    started.lap(StartPart.REST)
    if session.metrics:
        session.metrics.started(session.first, started)
    with Trackers(tracked, first=session.first) as trackers:
        if session.metrics:
            session.metrics.trackers = trackers
        with StepClock(watch_of(session.ranks.device), around_update=_around_update(session)) as clock:
            saved = loop(session, stop, clock)
        if session.memory:
            session.memory.close()
        channel.send(channel.Event.PHASE, name=PodPhase.EXPORTING)
        _export(session, setup.ranks.decide(lambda: inspect(saved)) if saved else setup.resumed, stop)
    setup.ranks.decide(lambda: loss_curve.write(job.output))
    _finish(setup, step=session.total)


def loop(session: Session, stop: StopRequest, clock: StepClock) -> Path | None:
    """Every optimizer step from `session.first` to `session.total`; returns the last checkpoint, if any was to be made.

    Raises LeftOnRequest, after saving, where a rank was asked to leave.
    """
    settings, ranks = session.job.training, session.ranks
    channel.send(channel.Event.PHASE, name=PodPhase.TRAINING)
    guard, saves, profiler = StepGuard(), Saves(session), Profiler(settings.profile, session)
    pace = RankPace(ranks.rank_info)
    _validate(session, session.first, stop)  # what a fault kept from being made
    clock.skip()
    all_have_data = False  # the first batch may take minutes
    for step in range(session.first, session.total):
        profiler.begin(step)
        if not all_have_data and not data_come(session.prefetch, ranks, leaving=lambda: stop.requested):
            saves.have(step)
            profiler.end(step, last=True)
            raise _left(session, step)
        batch = session.prefetch.take()
        clock.lap(StepPart.DATA)
        rate = learning_rate(settings.optimizer, step, session.total)
        losses = _gradients(session, batch, step, rate, clock)
        done = step + 1
        due, drill = saves.due(done, stop)
        # One small exchange a step carries all that ranks must agree on: losses, who was asked to leave, whether a
        # checkpoint is due by rank 0's clock, or asked for by anybody, or as at an eviction, who has the next step's data,
        # who is done with the last checkpoint's next stage or with memory, and how long each rank's last forward passes
        # took. It waits for the forward pass alone, while a GPU computes gradients: after the update the next step begins
        # at once.
        leaving, saving, drilling, having_data, total_loss, *rest = ranks.sum(
            [
                *map(float, (stop.requested, due, drill, session.prefetch.ready)),
                *losses.read(),
                *saves.told(done),
                *pace.told(),
            ]
        )
        all_have_data, mean_loss = having_data == ranks.rank_info.world_size, total_loss / ranks.rank_info.world_size
        by_noise, of_saves = noise_bins.means(rest[: 2 * noise_bins.BINS]), rest[2 * noise_bins.BINS :][:TOLD]
        clock.lap(StepPart.COMMUNICATION)
        session.engine.step(rate)
        clock.updated()
        if step == session.first:
            ranks.bound_waiting(max(process_group.STEP_TIMEOUT, 2.0 * session.job.file.recovery.hang_seconds))
        split = pace.take(rest[2 * noise_bins.BINS + TOLD :], clock.split())
        report(session, batch, split, step=done, loss=mean_loss, by_noise=by_noise, rate=rate, lag=pace.lag)
        guard.check(loss=mean_loss, skipped=session.engine.skipped)
        clock.lap(StepPart.REST)
        last = bool(leaving) or done == session.total
        saves.go_on(of_saves, done, seconds=split.seconds, last=last)
        if saving or last:
            saves.begin(done, drill=bool(drilling) and not last)
            if last:
                saves.finish(done)
        profiler.end(done, last=last)  # what is asked to leave saves first: a trace takes minutes
        clock.lap(StepPart.CHECKPOINT)
        if not leaving:
            if saving or last:
                session.before_update()  # so that it is written while pictures are looked at
                _evaluate(session, done, batch.micro_batches[-1], stop)
            _validate(session, done, stop)
            clock.skip()
        if leaving:
            raise _left(session, done)
    session.prefetch.close()
    saves.finish_copy(stop.leave_if_requested)
    return saves.newest


def _left(session: Session, step: int) -> LeftOnRequest:
    """What a rank that was asked to leave ends with, once the state after `step` steps is saved."""
    session.prefetch.leave()
    saved = f"saved step {step} and left on request"
    return LeftOnRequest(saved if step != session.saved else "left on request: there was nothing to save")


def _seed(session: Session, step: int, number: int) -> None:
    """Let the dropout of this rank's micro-batch `number` depend on its place alone, so that a resumed run draws the same.

    With effectiveBatch that is its place in the step, whoever computes it. Else a rank draws on through the step.
    """
    training, rank_info = session.job.training, session.ranks.rank_info
    if session.adapters and session.adapters.dropout and (number == 0 or training.effective_batch):
        place = rank_info.rank + number * rank_info.world_size
        torch.manual_seed(int(generator(training.seed, Purpose.DROPOUT, step, place).integers(2**63)))


def _gradients(session: Session, batch: StepBatch, step: int, rate: float, clock: StepClock) -> HostCopy:
    """Forward and backward passes of an optimizer step, all but its update.

    Returns this rank's part of the step's mean loss, which is the mean of all ranks', and behind it its losses by noise level
    (see `noise_bins.sums`).
    """
    engine, objective = session.engine, session.job.training.objective
    losses: list[Tensor] = []
    by_noise: list[Tensor] = []
    for number, (micro_batch, weight) in enumerate(zip(batch.micro_batches, batch.weights, strict=True), start=1):
        _seed(session, step, number - 1)
        if losses:
            engine.step(rate)  # counts the micro-batch before
            clock.updated()
        there = micro_batch.to(session.ranks.device)
        each = sample_losses(
            engine.model,
            there,
            velocity=code_of(session.job.training.model).velocity,
            has_guidance=session.shape.has_guidance,
            measure=objective.loss,
            base=without_adapters(engine.weights) if batch.regularizes else None,
        )
        loss = weighted(each, there.sigmas, objective.weighting) * weight
        losses.append(loss.detach())
        if weight:
            by_noise.append(noise_bins.sums(each, there.sigmas))
        if number == len(batch.micro_batches):
            told = HostCopy(torch.cat([torch.stack(losses).mean()[None], torch.stack(by_noise).sum(dim=0)]))
        clock.lap(StepPart.FORWARD)
        clock.backward_of(loss)
        engine.backward(loss)
        clock.lap(StepPart.COMMUNICATION)
    session.before_update()
    clock.lap(StepPart.CHECKPOINT)
    return told


def _around_update(session: Session) -> StepPart:
    """What the engine's step does beside the update: with a sharded optimizer it exchanges, else it clips."""
    sharded = strategy(session.job.training) is Strategy.DEEPSPEED and session.ranks.rank_info.world_size > 1
    return StepPart.COMMUNICATION if sharded else StepPart.OPTIMIZER


def _evaluate(session: Session, step: int, spare: MicroBatch, stop: StopRequest) -> None:
    losses = evaluate(
        judged(session.engine),
        session.loader,
        session.job,
        session.ranks,
        has_guidance=session.shape.has_guidance,
        leaving=lambda: stop.requested,
        spare=spare,
    )
    if losses and session.metrics:
        session.metrics.evaluation(step, losses)


def _validate(session: Session, step: int, stop: StopRequest) -> None:
    """Make the pictures that are due after `step` steps and not there yet."""
    settings, validation = session.job.training.validation, session.validation
    due = step and settings and (step % settings.every_steps == 0 or step == session.total)
    if not due or validation is None:
        return
    session.before_update()  # the weights that are judged may change places with those that are copied
    outcome = validation.make(judged(session.engine), step, leaving=lambda: stop.requested)
    if outcome is None:
        return
    channel.send(channel.Event.PHASE, name=PodPhase.TRAINING)
    if session.metrics:
        session.metrics.validation(step, outcome)


def _export(session: Session, last: Checkpoint | None, stop: StopRequest) -> None:
    """Write the model from the last checkpoint, each rank its share; rank 0 publishes it."""
    if last is None:
        raise StorageError(f"the last checkpoint in {session.job.output} is not there as it was written")
    ranks, rank_info = session.ranks, session.ranks.rank_info
    exporting = Export(
        last,
        session.model,
        session.job.output / MODEL,
        adapters=last.manifest.adapters,
        mark=mark_of(session.fence.owner),
    )

    def begin() -> None:
        session.fence.check()
        remove_unfinished(session.job.output / MODEL)
        exporting.begin()

    def complete() -> Path:
        session.fence.check()  # before the model is anybody's, and before it is published
        return exporting.complete()

    ranks.decide(begin)
    ranks.all_or_none(lambda: exporting.write_share(rank_info.rank, rank_info.world_size))
    path = ranks.decide(complete)
    if rank_info.is_leader:
        channel.send(channel.Event.MODEL, path=str(path))
    if session.job.training.publish:
        ranks.bound_waiting(process_group.PREPROCESS_TIMEOUT)
        go_on = stop.leave_if_requested

        def send() -> None:
            if rank_info.is_leader:
                publish(session.job, session.locations, session.hub, path, go_on=go_on)

        ranks.shares(send, go_on)


def _finish(setup: Setup, *, step: int) -> None:
    """Say that the job is done, when rank 0 has done all."""
    setup.ranks.decide(lambda: setup.fence.finish(step))
    channel.send(channel.Event.PHASE, name=PodPhase.DONE)
    process_group.leave()


def _ended(code: int, summary: str) -> int:
    channel.send(channel.Event.FAILURE, code=code, summary=summary)
    sys.stderr.write(f"{summary}\n")
    sys.stderr.flush()
    return code
