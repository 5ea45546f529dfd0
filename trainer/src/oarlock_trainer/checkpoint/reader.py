"""Taking the output over, and choosing where to resume: once, by rank 0, for all."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from oarlock_api.checkpoint import Resume
from oarlock_api.contract.layout import CHECKPOINTS
from oarlock_api.location import Location
from oarlock_api.training import Task
from oarlock_trainer.checkpoint import canary
from oarlock_trainer.checkpoint.commit import discard
from oarlock_trainer.checkpoint.copies import Copies
from oarlock_trainer.checkpoint.fetch import fetch_newest
from oarlock_trainer.checkpoint.format import Checkpoint, digest, invalid_after, valid_checkpoints
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.atomic_write import TEMPORARY
from oarlock_trainer.runtime.errors import ConfigurationError, storage
from oarlock_trainer.runtime.heartbeat import Heartbeat, with_heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.checkpoint.fence import Fence, Previous
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.locations import Locations


def take_over(
    job: Job, ranks: RankGroup, fence: Fence, *, copies: Copies | None, go_on: Callable[[], None]
) -> Checkpoint | None:
    """Raise the fence and find the newest checkpoint that counts and whose content is whole; None = from the start.

    Every rank verifies its share of the hashes. A damaged one is passed over for the next older one. Where the output has
    none, the newest of `copies` is fetched, where there are any; `go_on` is called meanwhile, and may raise to stop.
    People are told of each that is newer than the chosen one, and why it does not count.
    Raises FencedError, StorageError, PeerLostError where another node's storage is not ours, or ConfigurationError where
    checkpoint.resume asks for one and there is none.
    """
    candidates = ranks.decide(lambda: _take_fence(job, fence))
    canary.check(job, ranks)  # before a node that mounts something else takes good checkpoints for damaged ones
    for candidate in candidates:
        if all(ranks.gather(ranks.all_or_none(partial(_share_is_whole, candidate, ranks)))):
            return candidate
        # It looks valid by its sizes: rotation would keep it, and delete good ones for it.
        ranks.decide(partial(_discard_damaged, candidate))
    if copies and job.training.task is not Task.PREPROCESS:  # which needs none
        own = job.file.job_uid if job.training.checkpoint.resume is Resume.NEVER else ""
        if found := fetch_newest(copies, job.output, ranks, fence, job_uid=own, go_on=go_on):
            return found
    if job.training.checkpoint.resume is Resume.REQUIRED:
        raise ConfigurationError(
            f"checkpoint.resume is Required and {job.output / CHECKPOINTS} holds no valid checkpoint"
            f"{', nor does checkpoint.upload' if copies else ''}: correct output.directory, or set checkpoint.resume: Auto"
        )
    if candidates and ranks.rank_info.is_leader:
        channel.tell(
            f"none of {len(candidates)} checkpoints is whole: training begins at step 0. To have such a job end instead, set "
            "checkpoint.resume: Required"
        )
    return None


def renew_fence(job: Job, ranks: RankGroup, fence: Fence) -> None:
    """Raise the fence for a round that goes on from memory. Costs one small file: no checkpoint is looked at. Collective.

    Raises FencedError and StorageError.
    """

    def renew() -> None:
        with storage(f"taking over the output {job.output}"):
            fence.renew()

    ranks.decide(renew)


def copies_of(job: Job, locations: Locations) -> Copies | None:
    """Where a job's checkpoints are copied to; None where they are not."""
    upload = job.training.checkpoint.upload
    return Copies(locations.files_at(Location(s3=upload), "training.checkpoint.upload")) if upload else None


def resume_words(found: Checkpoint, *, job_uid: str, total: int) -> str:
    """One line for people: what goes on from where, and who made it. An output may still hold an earlier job's work."""
    if found.in_memory:
        return f"resuming from step {found.step} of {total}: the nodes have its state in memory"
    maker = found.manifest.job_uid
    who = (
        f"this job in attempt {found.attempt}" if maker == job_uid else f"job UID {maker}, not by this one ({job_uid})"
    )
    if found.step >= total:
        return f"all {total} steps were done already: exporting checkpoint {found.path}, made by {who}"
    return f"resuming from step {found.step} of {total}: checkpoint {found.path}, made by {who}"


def _take_fence(job: Job, fence: Fence) -> list[Checkpoint]:
    with storage(f"taking over the output {job.output}"):
        job.output.mkdir(parents=True, exist_ok=True)
        previous = fence.previous()
        fence.check_free(previous)
        found = valid_checkpoints(job.output)
        counting = [one for one in found if _counts(one, previous)]
        fence.take(one.path.name for one in counting)
        for path, why in invalid_after(job.output, found[0].step if found else -1):
            channel.tell(f"checkpoint {path} is passed over: {why}")
        _clean(job)
        for one in found[: found.index(counting[0])] if counting else []:
            if one.manifest.job_uid == fence.owner.job_uid:
                _discard(
                    one
                )  # a fenced attempt committed it after it was overtaken; rotation would take it for the newest
    if job.training.checkpoint.resume is Resume.NEVER:
        return [one for one in counting if one.manifest.job_uid == fence.owner.job_uid]
    return counting


def _discard(found: Checkpoint) -> None:
    with storage(f"removing the checkpoint {found.path}, which does not count"):
        discard(found.path)


def _discard_damaged(found: Checkpoint) -> None:
    channel.tell(f"checkpoint {found.path} is damaged, as a file of it has another hash: it is removed")
    _discard(found)


def _counts(found: Checkpoint, previous: Previous) -> bool:
    """Tell whether the last owner's attempt committed a checkpoint, or trusted it."""
    owner = previous.owner
    if owner is None:
        return True
    # Attempts of every job count from 1: the number alone says nothing.
    made_by = (found.manifest.job_uid, found.attempt)
    return made_by == (owner.job_uid, owner.attempt) or found.path.name in previous.trusted


def _clean(job: Job) -> None:
    """Remove what a crash left half-written or half-deleted: whoever wrote it is fenced now."""
    for folder in (job.output, job.output / CHECKPOINTS):
        for path in folder.glob(f"{TEMPORARY}*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _share_is_whole(candidate: Checkpoint, ranks: RankGroup) -> bool:
    rank_info = ranks.rank_info
    share = candidate.manifest.files[rank_info.rank :: rank_info.world_size]
    with storage(f"reading the checkpoint {candidate.path}"):
        try:
            return all(digest(candidate.path / file.name) == file.sha256 for file in with_heartbeat(share, Heartbeat()))
        except PermissionError:
            raise
        except OSError:
            return False
