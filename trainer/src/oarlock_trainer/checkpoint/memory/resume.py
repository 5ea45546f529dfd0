"""Going on from the nodes' memory: all ranks do, or none does."""

from __future__ import annotations

import hashlib
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


def resume(
    job: Job, ranks: RankGroup, folder: Path, step: int | None, *, world: int | None = None
) -> Checkpoint | None:
    """The state after `step` steps as ranks of this attempt kept it; None where one of them can't use it. Collective.

    `step` None: this rank was told of none. Each rank compares its own part with its hash, and reads no other rank's. Where
    another number of ranks made it (`world`; None: as many as these), all parts lie on each node, whose ranks share them.
    """
    all_are_here = world not in (None, ranks.rank_info.world_size)
    own = None if step is None else _own(job, ranks, folder, step, world or ranks.rank_info.world_size)
    told = ranks.gather(_digest(own) if isinstance(own, tuple) and all_are_here else own)
    if own is None and all(each is None for each in told):
        return None
    whole = [each for each in told if not isinstance(each, str | None)]
    wrong = next((each for each in told if isinstance(each, str)), "")
    wrong = wrong or ("not all ranks were told to" if len(whole) < len(told) else _difference(whole))
    if not wrong and isinstance(own, tuple):
        # A part's file can have another name on each node.
        parts = own if all_are_here else tuple(part for each in whole for part in each)
        return Checkpoint(folder, parts[0].step, job.file.attempt, _together(parts), in_memory=True)
    if ranks.rank_info.is_leader:
        channel.tell(f"the state in the nodes' memory can't be gone on from, so the newest checkpoint is: {wrong}")
    return None


_Parts = tuple[CheckpointManifest, ...]


def _own(job: Job, ranks: RankGroup, folder: Path, step: int, world: int) -> _Parts | str:
    """What the manifests say that this rank goes by, or why it can't. Nothing is raised: the others would wait.

    It compares one part with its hash, or its share of all of them.
    """
    own = ranks.rank_info
    all_are_here = world != own.world_size
    manifests: list[CheckpointManifest] = []
    for rank in range(world) if all_are_here else (own.rank,):
        try:
            manifest = parse_manifest((folder / manifest_name(step, rank, world=world)).read_text(encoding="utf-8"))
            of = (manifest.step, manifest.job_uid, manifest.attempt, manifest.world_size)
            if of != (step, job.file.job_uid, job.file.attempt, world):
                return f"rank {rank}'s part of step {step} is of another run (step, job, attempt and ranks: {of})"
            mine = not all_are_here or rank % own.local_world_size == own.local_rank
            for file in with_heartbeat(manifest.files if mine else (), Heartbeat()):
                if digest(folder / file.name) != file.sha256:
                    return f"rank {rank}'s part of step {step} is damaged: {folder / file.name}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"rank {rank}'s part of step {step} can't be read: {error}"
        if manifests and _common(manifest) != _common(manifests[0]):
            return f"the parts of rank 0 and rank {rank} are not of one run"
        manifests.append(manifest)
    return tuple(manifests)


def _digest(parts: _Parts) -> bytes:
    """The same on all nodes that have the same parts: few bytes, however many ranks made them."""
    hashes = [file.sha256 for part in parts for file in part.files]
    return hashlib.sha256("\n".join([_common(parts[0]).to_json(), *hashes]).encode()).digest()


def _difference(told: Sequence[_Parts | bytes]) -> str:
    """Why what the ranks have is no state together; empty where it is."""
    first = told[0]
    for rank, each in enumerate(told):
        if isinstance(first, bytes) or isinstance(each, bytes):
            if each != first:
                return f"the parts on the nodes of rank 0 and rank {rank} are not the same"
        elif _common(each[0]) != _common(first[0]):
            return f"the parts of rank 0 and rank {rank} are not of one run"
    return ""


def _common(manifest: CheckpointManifest) -> CheckpointManifest:
    return replace(manifest, files=(), runs={}, saved_at="")


def _together(manifests: Sequence[CheckpointManifest]) -> CheckpointManifest:
    return replace(
        manifests[0],
        files=tuple(file for each in manifests for file in each.files),
        runs={file: runs for each in manifests for file, runs in each.runs.items()},
    )
