"""What a job's pods print: of all ranks, in the order of time.

Without `follow` nothing is waited for; with it see `followed_logs`. What could not be read is said by a line of the kind
NOTE: nothing is left out silently.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from oarlock.cluster import Cluster
from oarlock.errors import NoClusterError, NotFoundError, NotNowError, RefusedError
from oarlock.followed_logs import Follower
from oarlock.log_places import where_kept
from oarlock.logs import NOTE, LogLine, Wanted, instant
from oarlock.pod_logs import Json, Pod, log_line, log_query, pods_of
from oarlock.readable_log import is_found
from oarlock.rows import job_row

if TYPE_CHECKING:
    from oarlock.job import Job


def read(job: Job, cluster: Cluster, wanted: Wanted, *, follow: bool) -> Iterator[LogLine]:
    """The lines. Raises NotFoundError, NotNowError where there is nothing to read and nothing is to be waited for."""
    try:
        pattern = re.compile(wanted.grep) if wanted.grep is not None else None
    except re.error as error:
        raise RefusedError(f"{wanted.grep!r} is no regular expression: {error}") from error
    source = Follower(job, cluster, wanted).lines() if follow else _now(job, cluster, wanted)
    return (line for line in source if line.kind == NOTE or pattern is None or is_found(pattern, line))


def _now(job: Job, cluster: Cluster, wanted: Wanted) -> Iterator[LogLine]:
    manifest = job.manifest
    pods = pods_of(cluster, namespace=job.namespace, job=job.name, uid=manifest["metadata"]["uid"], wanted=wanted)
    newest = max([job_row(manifest).attempt or 0, *(pod.attempt for pod in pods)])
    attempt = wanted.attempt or (newest - 1 if wanted.previous else newest)
    chosen = [pod for pod in pods if pod.attempt == attempt and wanted.takes(pod.rank)]
    if not chosen:
        raise NotNowError(_nothing(manifest, attempt=attempt, newest=newest, wanted=wanted))
    for pod in chosen:
        if not pod.started:
            yield LogLine(kind=NOTE, text=f"{pod.name} has not started: {pod.waits}", attempt=attempt, rank=pod.rank)
        if pod.incarnation > 1 and wanted.incarnation is None:
            kept = where_kept(manifest, attempt=attempt, pod=pod.rank)
            text = f"{pod.name} took the place of a pod that was lost. {kept}"
            yield LogLine(kind=NOTE, text=text, attempt=attempt, rank=pod.rank, incarnation=pod.incarnation)
    streams = [_log(cluster, pod, wanted) for pod in chosen if pod.started]
    yield from heapq.merge(*streams, key=lambda line: instant(line.time))


def _log(cluster: Cluster, pod: Pod, wanted: Wanted) -> Iterator[LogLine]:
    try:
        with cluster.lines(pod.log_path, **log_query(wanted)) as lines:
            for line in lines:
                yield wanted.cut(log_line(pod, line))
    except (NotFoundError, RefusedError, NoClusterError) as error:
        yield LogLine(
            kind=NOTE, text=f"{pod.name} can not be read to its end: {error}", attempt=pod.attempt, rank=pod.rank
        )


def _nothing(manifest: Json, *, attempt: int, newest: int, wanted: Wanted) -> str:
    name, row, rank = manifest["metadata"]["name"], job_row(manifest), wanted.rank
    if attempt < 1:
        why = "it is in its first attempt" if newest else "it has not started; `oarlock logs -f` waits"
        return f"{name} has no such attempt: {why}"
    who = f"pod {rank} of attempt {attempt}" if rank is not None else f"attempt {attempt}"
    who += f", incarnation {wanted.incarnation}," if wanted.incarnation else ""
    kept = where_kept(manifest, attempt=attempt, pod=rank)
    return f"{who} of {name} has no pods now ({row.phase}, newest attempt {newest}). {kept}"
