"""The canary: before a GPU is busy, every node writes a small checkpoint with the others, and reads what another wrote.

A pod can only tell that it may write (preflight/storage.py). That all nodes write to the same place, that each finds
what another has just written, and that rank 0's rename is seen everywhere is what a checkpoint stands on, and shows only
together. It is made of a checkpoint's own parts: the writer's file for each node, the manifest, the marker, the rename.

    write     one rank of each node writes its file below one temporary folder
    look      each node looks for the first nodes' files, and reads the next node's to the last byte; what one of them
              reads otherwise is read by all
    commit    rank 0 writes manifest and marker and renames the folder; all read them under the new name

Who is to blame where they do not is canary_verdict's. It is the new owner's, who has removed what an earlier one left
unfinished: nobody else writes into the output, and what a kill leaves of it goes in the same way.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from oarlock_api.contract.layout import CHECKPOINTS
from oarlock_trainer.checkpoint.canary_verdict import Failed, View, Written, judge, judge_writing, name, weigh
from oarlock_trainer.checkpoint.format import MANIFEST, MARKER, FileFacts, digest, marker_of
from oarlock_trainer.checkpoint.shard_process import write
from oarlock_trainer.preflight.storage import find_mount
from oarlock_trainer.runtime.atomic_write import TEMPORARY, sync_folder, write_bytes
from oarlock_trainer.runtime.errors import FULL, StorageError, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.runtime.job import Job

BYTES = 1 << 20
"""Of each node: enough for several of a file system's blocks, too few to be noticed."""
MOUNTS = Path("/proc/self/mountinfo")
WATCHED = 8
"""Nodes whose files all others look for: a gang of thousands would otherwise ask the server millions of times."""
Result = TypeVar("Result")


def check(job: Job, ranks: RankGroup) -> None:
    """Write and read the canary where the job wants its storage checked. Collective.

    Raises StorageError on nodes that cannot write, or do not see the others' files, PeerLostError on the others.
    """
    if not job.file.preflight.storage or job.file.nodes == 1:
        return
    mark = f"{job.file.job_uid[:8]}-a{job.file.attempt}{job.owner.round_mark}"
    folder = job.output / CHECKPOINTS / f"{TEMPORARY}canary-{mark}"
    committed = folder.with_name(f"{folder.name}-committed")
    speaks = job.rank_info.local_rank == 0
    nodes = job.rank_info.nodes
    rank = job.rank_info.rank - job.rank_info.local_rank  # all ranks of a node end as the one that speaks for it
    where = f"{folder.parent} ({find_mount(folder, MOUNTS)})"
    told = [each for each in ranks.gather(_tried(job, lambda: _write(job, folder)) if speaks else None) if each]
    judge_writing([each for each in told if isinstance(each, Failed)], nodes=nodes, rank=rank)
    written = [each for each in told if isinstance(each, Written)]
    views = _spoken(ranks.gather(_look(job, folder, written) if speaks else None))
    disputed = _disputed(views, written)
    if disputed:
        readings = _spoken(ranks.gather(_readings(folder, disputed) if speaks else None))
        views = weigh(views, disputed, readings)
    judge(views, rank=rank, where=where)
    failed = ranks.decide(lambda: _tried(job, lambda: _commit(folder, committed, written)))
    judge_writing([failed] if failed else [], nodes=nodes, rank=rank)
    judge(_spoken(ranks.gather(_read_back(job, committed) if speaks else None)), rank=rank, where=where)
    if job.rank_info.is_leader:
        shutil.rmtree(committed, ignore_errors=True)


def _tried(job: Job, work: Callable[[], Result]) -> Result | Failed:
    """What some writing comes to. Nothing is raised: the others would wait."""
    try:
        return work()
    except StorageError as error:
        cause = error.__cause__
        full = isinstance(cause, OSError) and cause.errno in FULL
        return Failed(job.rank_info.rank, job.node, str(error), full=full)


def _spoken(values: Sequence[Result | None]) -> list[Result]:
    """What those ranks say that speak for their nodes."""
    return [value for value in values if value is not None]


def _disputed(views: Sequence[View], written: Sequence[Written]) -> list[Written]:
    """Files that one node reads otherwise, though all find the same ones: who is right shows when all read them."""
    if len({view.found for view in views}) > 1:
        return []
    return [_next(written, view.rank) for view in views if view.complaint][:WATCHED]


def _readings(folder: Path, disputed: Sequence[Written]) -> dict[str, str]:
    return {each.file.name: _complaint(folder, each) for each in disputed}


def _next(written: Sequence[Written], rank: int) -> Written:
    """The file that the node of a rank reads."""
    place = [each.rank for each in written].index(rank)
    return written[(place + 1) % len(written)]


def _write(job: Job, folder: Path) -> Written:
    file = f"rank-{job.rank_info.rank:05}.state"
    content = os.urandom(BYTES)  # nothing that an earlier attempt left, or a cache holds, can pass for it
    with storage(f"writing a canary into {folder}"):
        sha256 = write(memoryview(content), folder / file)
        sync_folder(folder)
    return Written(job.rank_info.rank, job.node, FileFacts(file, BYTES, sha256))


def _look(job: Job, folder: Path, written: Sequence[Written]) -> View:
    """By name: a listing may be older than the files."""
    found = frozenset(each.file.name for each in written[:WATCHED] if _is_seen(folder / each.file.name))
    return View(job.rank_info.rank, job.node, found, _complaint(folder, _next(written, job.rank_info.rank)))


def _is_seen(path: Path) -> bool:
    try:
        path.stat()
    except OSError:  # a stale handle is no file either, and raising here would leave the others waiting
        return False
    return True


def _complaint(folder: Path, written: Written) -> str:
    path = folder / written.file.name
    try:
        same = digest(path) == written.file.sha256
    except OSError as error:
        return f"{path}, written by {name(written)}: {error.strerror}"
    return "" if same else f"{path} has other bytes than {name(written)} wrote"


def _commit(folder: Path, committed: Path, written: Sequence[Written]) -> None:
    body = json.dumps([asdict(each.file) for each in written]).encode()
    with storage(f"committing a canary in {folder}"):
        write_bytes(folder / MANIFEST, body)
        write_bytes(folder / MARKER, marker_of(body).encode())
        folder.rename(committed)
        sync_folder(committed.parent)


def _read_back(job: Job, committed: Path) -> View:
    complaint = ""
    try:
        # As bytes: those of a torn file may be no text.
        if (committed / MARKER).read_bytes() != marker_of((committed / MANIFEST).read_bytes()).encode():
            complaint = f"{committed / MARKER} does not fit {MANIFEST}"
    except OSError as error:
        complaint = f"{committed}, as rank 0 renamed it: {error.strerror}"
    return View(job.rank_info.rank, job.node, complaint=complaint)
