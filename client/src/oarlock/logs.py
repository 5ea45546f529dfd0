"""What a job's pods print: of all ranks, in the order of time; followed through pods and attempts until the job ends.

Without `follow` nothing is waited for. With it each pod has a thread that reads its log, and goes on where it was when the
connection breaks. What could not be read is said by a line of the kind NOTE: nothing is left out silently.
"""

from __future__ import annotations

import heapq
import queue
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from oarlock.cluster import Cluster, Lines, segment
from oarlock.errors import NoClusterError, NotFoundError, NotNowError, OarlockError, RefusedError
from oarlock.rows import job_row
from oarlock_api.contract.history import HISTORY, LOGS, attempt_folder
from oarlock_api.contract.names import Label
from oarlock_api.pod_patch import TRAINER_CONTAINER

if TYPE_CHECKING:
    from oarlock.job import Job

LINE, NOTE = "line", "note"
LOOK_SECONDS = 1.0
"""Between two looks for new pods."""
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line. `time` is RFC 3339 by the node's clock; `kind`: `line`, or `note` for what this reader says itself."""

    text: str
    kind: str = LINE
    time: str = ""
    attempt: int | None = None
    rank: int | None = None
    pod: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lines. `rank` is a pod's number, as in its name; `grep` a regular expression."""

    rank: int | None = None
    attempt: int | None = None
    previous: bool = False
    since: timedelta | None = None
    grep: str | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the job."""

    name: str
    uid: str
    attempt: int
    rank: int
    started: bool
    ended: bool
    waits: str


def read(job: Job, cluster: Cluster, wanted: Wanted, *, follow: bool) -> Iterator[LogLine]:
    """The lines. Raises NotFoundError, NotNowError where there is nothing to read and nothing is to be waited for."""
    try:
        pattern = re.compile(wanted.grep) if wanted.grep is not None else None
    except re.error as error:
        raise RefusedError(f"{wanted.grep!r} is no regular expression: {error}") from error
    source = _Follower(job, cluster, wanted).lines() if follow else _now(job, cluster, wanted)
    return (line for line in source if line.kind == NOTE or pattern is None or pattern.search(line.text))


def _now(job: Job, cluster: Cluster, wanted: Wanted) -> Iterator[LogLine]:
    manifest = job.manifest
    pods = _pods(job, cluster)
    newest = max([job_row(manifest).attempt or 0, *(pod.attempt for pod in pods)])
    attempt = wanted.attempt or (newest - 1 if wanted.previous else newest)
    chosen = [pod for pod in pods if pod.attempt == attempt and wanted.rank in (None, pod.rank)]
    if not chosen:
        raise NotNowError(_nothing(manifest, attempt=attempt, newest=newest, rank=wanted.rank))
    for pod in chosen:
        if not pod.started:
            yield LogLine(kind=NOTE, text=f"{pod.name} has not started: {pod.waits}", attempt=attempt, rank=pod.rank)
    streams = [_log(job, cluster, pod, wanted) for pod in chosen if pod.started]
    yield from heapq.merge(*streams, key=lambda line: instant(line.time))


def _log(job: Job, cluster: Cluster, pod: Pod, wanted: Wanted) -> Iterator[LogLine]:
    try:
        with cluster.lines(_path(job, pod), **_query(wanted)) as lines:
            for line in lines:
                yield _line(pod, line)
    except (NotFoundError, RefusedError, NoClusterError) as error:
        yield LogLine(
            kind=NOTE, text=f"{pod.name} can not be read to its end: {error}", attempt=pod.attempt, rank=pod.rank
        )


class _Follower:
    """Follows all pods until the job has ended. One thread for each pod; `lines` runs in the caller's."""

    def __init__(self, job: Job, cluster: Cluster, wanted: Wanted) -> None:
        self._job, self._cluster, self._wanted = job, cluster, wanted
        self._lines: queue.SimpleQueue[LogLine | None] = queue.SimpleQueue()
        self._readers: dict[str, threading.Thread] = {}
        self._streams: set[Lines] = set()
        self._over = threading.Event()
        self._waits = ""
        self._attempt = 0

    def lines(self) -> Iterator[LogLine]:
        try:
            there = False
            while True:
                try:
                    manifest = self._job.manifest
                    pods = _pods(self._job, self._cluster)
                except NotFoundError:
                    if not there:
                        raise
                    yield from self._rest()
                    yield LogLine(kind=NOTE, text=f"{self._job.name} was deleted")
                    return
                there = True
                yield from self._start(pods)
                yield from self._told_why_nothing_comes(manifest, pods)
                done = job_row(manifest).finished or self._is_past(manifest)
                if done:
                    yield from self._rest()
                    return
                yield from self._arrived(LOOK_SECONDS)
        finally:
            self._over.set()
            for stream in list(self._streams):
                with suppress(Exception):  # it may just have ended by itself
                    stream.end()

    def _start(self, pods: list[Pod]) -> Iterator[LogLine]:
        """A reader for each pod that has none."""
        for pod in pods:
            if pod.uid in self._readers or not pod.started or not self._is_wanted(pod):
                continue
            if pod.attempt > self._attempt:
                missed = range(self._attempt + 1, pod.attempt) if self._attempt else ()
                for attempt in missed:
                    yield LogLine(kind=NOTE, attempt=attempt, text=f"attempt {attempt} came and went unread")
                yield LogLine(kind=NOTE, attempt=pod.attempt, text=f"attempt {pod.attempt} prints")
                self._attempt = pod.attempt
            reader = threading.Thread(target=self._read, args=(pod,), daemon=True)
            self._readers[pod.uid] = reader
            reader.start()

    def _told_why_nothing_comes(self, manifest: Json, pods: list[Pod]) -> Iterator[LogLine]:
        row = job_row(manifest)
        lacking = [pod for pod in pods if not pod.started and not pod.ended and self._is_wanted(pod)]
        running = any(reader.is_alive() for reader in self._readers.values())
        why = ""
        if lacking:
            why = f"waiting for {lacking[0].name}: {lacking[0].waits}"
        elif not running and not row.finished:
            why = f"waiting for pods: {self._job.name} is {row.phase}" + (f" ({row.message})" if row.message else "")
        if why and why != self._waits:
            yield LogLine(kind=NOTE, text=why)
        self._waits = why

    def _is_wanted(self, pod: Pod) -> bool:
        return self._wanted.rank in (None, pod.rank) and self._wanted.attempt in (None, pod.attempt)

    def _is_past(self, manifest: Json) -> bool:
        """Whether the one attempt that is wanted is over."""
        return self._wanted.attempt is not None and (job_row(manifest).attempt or 0) > self._wanted.attempt

    def _rest(self) -> Iterator[LogLine]:
        """What the readers still bring."""
        while any(reader.is_alive() for reader in self._readers.values()):
            yield from self._arrived(LOOK_SECONDS)
        while not self._lines.empty():
            if line := self._lines.get():
                yield line

    def _arrived(self, seconds: float) -> Iterator[LogLine]:
        """What comes until nothing has come for so long, or a reader has ended."""
        with suppress(queue.Empty):
            while (line := self._lines.get(timeout=seconds)) is not None:
                yield line

    def _read(self, pod: Pod) -> None:
        """Read a pod's log to its end, over broken connections. Runs in a thread."""
        last, same = "", 0
        query = _query(self._wanted)
        try:
            while not self._over.is_set():
                again, broken = same, ""
                if last:
                    query = {**_query(Wanted()), "sinceTime": f"{last[:19]}Z"}
                try:
                    with self._cluster.lines(_path(self._job, pod), follow="true", **query) as lines:
                        self._streams.add(lines)
                        for raw in lines:
                            line = _line(pod, raw)
                            if last and instant(line.time) < instant(last):
                                continue
                            if line.time == last:
                                if again:
                                    again -= 1
                                    continue
                                same += 1
                            else:
                                last, same, again = line.time or last, 1, 0
                            self._lines.put(line)
                        self._streams.discard(lines)
                except OarlockError as error:
                    broken = str(error)
                if self._is_over(pod, last, broken):
                    return
                self._over.wait(LOOK_SECONDS)
        finally:
            self._lines.put(None)

    def _is_over(self, pod: Pod, last: str, broken: str) -> bool:
        """Whether nothing more comes from a pod whose log has ended, or whose connection broke."""
        with suppress(NoClusterError):
            now = next((one for one in _pods(self._job, self._cluster) if one.uid == pod.uid), None)
            if now is None and broken:
                self._lines.put(
                    LogLine(
                        kind=NOTE,
                        attempt=pod.attempt,
                        rank=pod.rank,
                        pod=pod.name,
                        text=f"{pod.name} is gone; what it printed after {last or 'its start'} could not be read here: "
                        "the job's output has it, where history is on",
                    )
                )
            return now is None or (now.ended and not broken)
        return False


def _pods(job: Job, cluster: Cluster) -> list[Pod]:
    """The job's pods, by attempt and rank."""
    path = f"/api/v1/namespaces/{segment(job.namespace)}/pods"
    pods = [_pod(raw) for raw in cluster.items(path, labelSelector=f"{Label.JOB}={job.name}")]
    return sorted(pods, key=lambda pod: (pod.attempt, pod.rank))


def _pod(raw: Json) -> Pod:
    metadata, status = raw["metadata"], raw.get("status") or {}
    labels = metadata.get("labels") or {}
    containers = status.get("containerStatuses") or []
    state = next((one.get("state") or {} for one in containers if one.get("name") == TRAINER_CONTAINER), {})
    waiting = state.get("waiting") or {}
    unplaced: Json = next((one for one in status.get("conditions") or [] if one.get("status") == "False"), {})
    waits = (
        waiting.get("message") or waiting.get("reason") or unplaced.get("message") or status.get("phase") or "Pending"
    )
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        attempt=_number(labels.get(Label.ATTEMPT)),
        rank=_number(labels.get(Label.RANK)),
        started="running" in state or "terminated" in state,
        ended="terminated" in state or status.get("phase") in {"Succeeded", "Failed"},
        waits=" ".join(str(waits).split()),
    )


def _nothing(manifest: Json, *, attempt: int, newest: int, rank: int | None) -> str:
    metadata, row = manifest["metadata"], job_row(manifest)
    name = metadata["name"]
    if attempt < 1:
        return f"{name} has no attempt {attempt}: " + (
            "it has not started; `oarlock logs -f` waits" if not newest else f"its newest is {newest}"
        )
    who = f"rank {rank} of attempt {attempt}" if rank is not None else f"attempt {attempt}"
    folder = f"{HISTORY}/{LOGS}/{attempt_folder(attempt, metadata['uid'])}"
    return (
        f"{who} of {name} has no pods now ({row.phase}, newest attempt {newest}): "
        f"what they printed lies in its output directory, in {folder}; where that is mounted, "
        "`oarlock logs --path <output>/<directory>` reads it"
    )


def _path(job: Job, pod: Pod) -> str:
    return f"/api/v1/namespaces/{segment(job.namespace)}/pods/{segment(pod.name)}/log"


def _query(wanted: Wanted) -> dict[str, str]:
    query = {"timestamps": "true", "container": TRAINER_CONTAINER}
    if wanted.since is not None:
        query["sinceSeconds"] = str(max(1, int(wanted.since.total_seconds())))
    return query


def _line(pod: Pod, raw: bytes) -> LogLine:
    time, _, text = raw.decode(errors="replace").partition(" ")
    return LogLine(text=text.rstrip("\r"), time=time, attempt=pod.attempt, rank=pod.rank, pod=pod.name)


def instant(time: str) -> tuple[str, str]:
    """A time of the kubelet as what can be compared: its fraction may have any number of digits."""
    second, _, fraction = time.removesuffix("Z").partition(".")
    return second, fraction.ljust(9, "0")


def _number(label: object) -> int:
    return int(label) if isinstance(label, str) and label.isdecimal() else 0
