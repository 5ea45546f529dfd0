"""What is left of a job's logs in its output directory: read there, without a cluster, for jobs whose pods are gone.

The lines are those of `oarlock.logs`, merged by the pods' clocks. What is lost - by a crash, or because a log grew too
long - is said by a line of the kind NOTE. Of each rank one piece of the log is in memory, never the whole.
"""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock.errors import NotFoundError, NotNowError, RefusedError
from oarlock.logs import LINE, NOTE, LogLine, Wanted, instant
from oarlock.readable_log import is_found
from oarlock_api.contract.beneath import Beneath
from oarlock_api.contract.history import HISTORY, LOGS, AttemptLogs, find_logs
from oarlock_api.contract.layout import PRIVATE
from oarlock_api.contract.log_lines import LogStream, begun_incarnation, read_log

if TYPE_CHECKING:
    import os


def read(output: str | os.PathLike[str] | Beneath, wanted: Wanted, *, now: datetime | None = None) -> Iterator[LogLine]:
    """The lines of one attempt, by default of the newest. `output` is the job's output directory.

    Raises NotFoundError where that is none, NotNowError where it has no such logs, RefusedError for a bad pattern.
    """
    folder = output if isinstance(output, Beneath) else Beneath(Path(output))
    try:
        pattern = re.compile(wanted.grep) if wanted.grep is not None else None
    except re.error as error:
        raise RefusedError(f"{wanted.grep!r} is no regular expression: {error}") from error
    if not (folder / PRIVATE).is_dir():
        raise NotFoundError(
            f"{folder} is no output of a job: it has no {PRIVATE}/. Give <output>/<directory>, such as /mnt/nfs/flux-full"
        )
    try:
        kept = [logs for logs in find_logs(folder) if logs.files]
    except OSError as error:
        raise NotFoundError(f"the logs of {folder} cannot be read: {error}") from error
    logs = _chosen(kept, wanted, folder)
    since = (now or datetime.now(UTC)) - wanted.since if wanted.since is not None else None
    first = instant(since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")) if since else ("", "")
    lines = _lines(kept, logs, wanted)
    return (
        wanted.cut(line)
        for line in lines
        if line.kind == NOTE or (instant(line.time) >= first and (pattern is None or is_found(pattern, line)))
    )


def _chosen(kept: Sequence[AttemptLogs], wanted: Wanted, folder: Beneath) -> AttemptLogs:
    """The attempt that is wanted; of several jobs' of one number that which was written last."""
    where = folder / HISTORY / LOGS
    if not kept:
        raise NotNowError(
            f"{where} has no logs: nothing has started there, or without an agent (oarlock-trainer train), "
            "output.history.logSize is 0, or the release is older"
        )
    if wanted.attempt is not None:
        found = [logs for logs in kept if logs.attempt == wanted.attempt]
    else:
        found = list(kept[: len(kept) - int(wanted.previous)])
    if not found:
        there = ", ".join(str(logs.attempt) for logs in kept)
        raise NotNowError(f"{where} has no such attempt: it keeps {there}, the newest last")
    if wanted.rank is not None and wanted.rank not in found[-1].files:
        there = ", ".join(map(str, found[-1].files)) or "none"
        raise NotNowError(f"{where} has no pod {wanted.rank} of attempt {found[-1].attempt}: it has {there}")
    return found[-1]


def _lines(kept: Sequence[AttemptLogs], logs: AttemptLogs, wanted: Wanted) -> Iterator[LogLine]:
    if others := [one.job for one in kept if one.attempt == logs.attempt and one.job != logs.job]:
        text = f"of job {logs.job}, the newest; an attempt {logs.attempt} is kept of {', '.join(others)}, too"
        yield LogLine(kind=NOTE, attempt=logs.attempt, text=text)
    files = {each: paths for each, paths in sorted(logs.files.items()) if wanted.takes(each)}
    streams = [
        _last(_of_incarnation(_of_rank(logs.attempt, each, paths), wanted, each), wanted.tail)
        for each, paths in files.items()
    ]
    yield from heapq.merge(*streams, key=lambda line: instant(line.time))


def _last(lines: Iterator[LogLine], most: int | None) -> Iterator[LogLine]:
    """So many of a pod's last lines, with the notes between them; None: all."""
    if most is None:
        yield from lines
        return
    kept: deque[LogLine] = deque()
    found = 0
    for line in lines:
        kept.append(line)
        found += line.kind == LINE
        while found > most:
            found -= kept.popleft().kind == LINE
    yield from kept


def _of_incarnation(lines: Iterator[LogLine], wanted: Wanted, rank: int) -> Iterator[LogLine]:
    """A pod's lines, of all its incarnations or of the wanted one."""
    last = 1
    for line in lines:
        last = line.incarnation
        if wanted.incarnation in (None, last):
            yield line
    if wanted.incarnation is not None and wanted.incarnation > last:
        yield LogLine(kind=NOTE, rank=rank, text=f"pod {rank} has incarnations up to {last} alone")


def _of_rank(attempt: int, rank: int, files: Sequence[Beneath]) -> Iterator[LogLine]:
    """A pod's lines. One without a time has that of the line before it, so that it stays where it was."""
    time, incarnation = "", 1
    try:
        for line in read_log(files):
            time, incarnation = line.time or time, begun_incarnation(line) or incarnation
            kind = NOTE if line.stream == LogStream.NOTE else LINE
            text = line.text.rstrip("\r") if kind == LINE else f"pod {rank}: {line.text}"
            yield LogLine(text=text, kind=kind, time=time, attempt=attempt, rank=rank, incarnation=incarnation)
    except OSError as error:
        text = f"pod {rank} can not be read to its end: {error}"
        yield LogLine(kind=NOTE, time=time, attempt=attempt, rank=rank, text=text)
