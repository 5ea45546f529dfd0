"""Going on from the nodes' memory: all ranks do, or none does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock_trainer.checkpoint.format import Checkpoint, CheckpointManifest, digest, parse_manifest
from oarlock_trainer.checkpoint.memory.held import manifest_name
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.heartbeat import Heartbeat, with_heartbeat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job


def resume(job: Job, ranks: RankGroup, folder: Path, step: int | None) -> Checkpoint | None:
    """The state after `step` steps as the ranks of this attempt kept it; None where one of them can't use it. Collective.

    Each rank compares its own part with its hash, and reads no other rank's. `step` None: this rank was told of none.
    """
    told = ranks.gather(None if step is None else _own(job, ranks, folder, step))
    if all(each is None for each in told):
        return None
    whole = [each for each in told if isinstance(each, CheckpointManifest)]
    wrong = next((each for each in told if isinstance(each, str)), "")
    wrong = wrong or ("not all ranks were told to" if len(whole) < len(told) else _difference(whole))
    if not wrong:
        return Checkpoint(folder, whole[0].step, job.file.attempt, _together(whole), in_memory=True)
    if ranks.rank_info.is_leader:
        channel.tell(f"the state in the nodes' memory can't be gone on from, so the newest checkpoint is: {wrong}")
    return None


def _own(job: Job, ranks: RankGroup, folder: Path, step: int) -> CheckpointManifest | str:
    """What this rank's manifest says, or why it can't be used. Nothing is raised: the others would wait."""
    rank = ranks.rank_info.rank
    try:
        manifest = parse_manifest((folder / manifest_name(step, rank)).read_text(encoding="utf-8"))
        of = (manifest.step, manifest.job_uid, manifest.attempt, manifest.world_size)
        if of != (step, job.file.job_uid, job.file.attempt, ranks.rank_info.world_size):
            return f"rank {rank}'s part of step {step} is of another run (step, job, attempt and ranks: {of})"
        for file in with_heartbeat(manifest.files, Heartbeat()):
            if digest(folder / file.name) != file.sha256:
                return f"rank {rank}'s part of step {step} is damaged: {folder / file.name}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"rank {rank}'s part of step {step} can't be read: {error}"
    return manifest


def _difference(manifests: Sequence[CheckpointManifest]) -> str:
    """Why the ranks' parts are no state together; empty where they are."""
    first = _common(manifests[0])
    other = next((rank for rank, each in enumerate(manifests) if _common(each) != first), None)
    return f"the parts of rank 0 and rank {other} are not of one run" if other is not None else ""


def _common(manifest: CheckpointManifest) -> CheckpointManifest:
    return replace(manifest, files=(), runs={}, saved_at="")


def _together(manifests: Sequence[CheckpointManifest]) -> CheckpointManifest:
    return replace(
        manifests[0],
        files=tuple(file for each in manifests for file in each.files),
        runs={file: runs for each in manifests for file, runs in each.runs.items()},
    )
