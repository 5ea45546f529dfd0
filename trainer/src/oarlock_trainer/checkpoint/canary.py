"""The canary: before a GPU is busy, every node writes a small checkpoint with the others, and reads what another wrote.

A pod can only tell that it may write (agent/preflight/storage.py). That all nodes write to the same place, that each finds
what another has just written, and that rank 0's rename is seen everywhere is what a checkpoint stands on, and shows only
together. It is made of a checkpoint's own parts: the writer's file for each node, the manifest, the marker, the rename.

    write     one rank of each node writes its file below one temporary folder
    look      each node looks for the first nodes' files, and reads the next node's to the last byte
    commit    rank 0 writes manifest and marker and renames the folder; all read them under the new name

Who does not see what most nodes see ends with 84, and the others as its victims: so the one node is avoided. Where no most
nodes agree, all end with 84. It is the new owner's, who has removed what an earlier one left unfinished: nobody else writes
into the output, and what a kill leaves of it goes in the same way.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.layout import CHECKPOINTS
from oarlock_trainer.agent.preflight.storage import find_mount
from oarlock_trainer.checkpoint.format import MANIFEST, MARKER, FileFacts, digest, marker_of
from oarlock_trainer.checkpoint.shard_process import write
from oarlock_trainer.durable import TEMPORARY, sync_folder, write_bytes
from oarlock_trainer.errors import PeerLostError, StorageError, storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oarlock_trainer.engine.process_group import Ranks
    from oarlock_trainer.job import Job

BYTES = 1 << 20
"""Of each node: enough for several of a file system's blocks, too few to be noticed."""
MOUNTS = Path("/proc/self/mountinfo")
WATCHED = 8
"""Nodes whose files all others look for: a gang of thousands would otherwise ask the server millions of times."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the node of one rank wrote."""

    rank: int
    node: str
    file: FileFacts


@dataclass(frozen=True, slots=True)
class View:
    """What the node of one rank sees: the watched files that it finds, and what is wrong with what it read."""

    rank: int
    node: str
    found: frozenset[str] = frozenset()
    complaint: str = ""


def check(job: Job, ranks: Ranks) -> None:
    """Write and read the canary where the job wants its storage checked. Collective.

    Raises StorageError on nodes that do not see the others' files, PeerLostError on the others.
    """
    if not job.file.storage_check or job.file.nodes == 1:
        return
    folder = job.output / CHECKPOINTS / f"{TEMPORARY}canary-{job.file.job_uid[:8]}-a{job.file.attempt}"
    committed = folder.with_name(f"{folder.name}-committed")
    speaks = job.place.local_rank == 0
    told = ranks.all_or_none(lambda: _write(job, folder) if speaks else None)
    written = [each for each in ranks.gather(told) if each is not None]
    _judge(job, folder, ranks.gather(_look(job, folder, written) if speaks else None))
    ranks.decide(lambda: _commit(folder, committed, written))
    _judge(job, folder, ranks.gather(_read_back(job, committed) if speaks else None))
    if job.place.is_leader:
        shutil.rmtree(committed, ignore_errors=True)


def judge(views: Sequence[View], *, rank: int, where: str) -> None:
    """What the node of `rank` makes of all nodes' views. Pure. Raises as `check` does."""
    common, _ = Counter(view.found for view in views).most_common(1)[0]
    lost = [view for view in views if view.found != common] or [view for view in views if view.complaint]
    if not lost:
        return
    # In a large gang most nodes are not watched. If all that unites them is that they find nothing, they share nothing.
    agreeing = len(views) - len(lost) if common or not any(view.found for view in views) else 0
    if agreeing <= len(lost):
        said = next((f" ({view.complaint})" for view in views if view.complaint), "")
        raise StorageError(
            f"output: {_names(views)} do not find one another's files in {where}{said}: the storage is not shared, or each "
            "node keeps a copy of its own for too long. Take a claim with ReadWriteMany from a class for shared storage, or "
            "an NFS export."
        )
    own = next((view for view in lost if view.rank == rank), None)
    if own is None:
        raise PeerLostError(f"output: {_names(lost)} does not find the other nodes' files in {where}")
    said = f" ({own.complaint})" if own.complaint else ""
    raise StorageError(
        f"output: {_names([own])} does not find what the other nodes wrote into {where}{said}. The other {agreeing} nodes "
        "find one another's files: is this one mounting something else? Compare `findmnt` on the nodes, and mount it anew."
    )


def _judge(job: Job, folder: Path, views: Sequence[View | None]) -> None:
    where = f"{folder.parent} ({find_mount(folder, MOUNTS)})"
    # All ranks of a node end as the one that speaks for it.
    rank = job.place.rank - job.place.local_rank
    judge([view for view in views if view is not None], rank=rank, where=where)


def _write(job: Job, folder: Path) -> Written:
    name = f"rank-{job.place.rank:05}.state"
    content = os.urandom(BYTES)  # nothing that an earlier attempt left, or a cache holds, can pass for it
    with storage(f"writing a canary into {folder}"):
        sha256 = write(memoryview(content), folder / name)
        sync_folder(folder)
    return Written(job.place.rank, job.node, FileFacts(name, BYTES, sha256))


def _look(job: Job, folder: Path, written: Sequence[Written]) -> View:
    """By name: a listing may be older than the files."""
    found = frozenset(each.file.name for each in written[:WATCHED] if _is_seen(folder / each.file.name))
    place = [each.rank for each in written].index(job.place.rank)
    return View(job.place.rank, job.node, found, _complaint(folder, written[(place + 1) % len(written)]))


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
        return f"{path}, written by {_name(written)}: {error.strerror}"
    return "" if same else f"{path} has other bytes than {_name(written)} wrote"


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
        if (committed / MARKER).read_text() != marker_of((committed / MANIFEST).read_bytes()):
            complaint = f"{committed / MARKER} does not fit {MANIFEST}"
    except OSError as error:
        complaint = f"{committed}, as rank 0 renamed it: {error.strerror}"
    return View(job.place.rank, job.node, complaint=complaint)


def _names(nodes: Iterable[View]) -> str:
    return ", ".join(_name(node) for node in nodes)[:512]


def _name(who: View | Written) -> str:
    return f"node {who.node}" if who.node else f"the node of rank {who.rank}"
