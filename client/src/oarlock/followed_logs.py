"""A job's logs, followed through pods and attempts until the job ends.

Each pod has a thread that reads its log, and goes on where it was when the connection breaks. What a thread cannot go on
from is raised in the caller's.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from oarlock.cluster import Cluster, Lines
from oarlock.errors import ForbiddenError, NoClusterError, NotFoundError, OarlockError, RefusedError
from oarlock.logs import NOTE, LogLine, Wanted, instant
from oarlock.patience import PATIENCE_SECONDS, is_hiccup
from oarlock.pod_logs import Json, Pod, log_line, log_query, pods_of
from oarlock.rows import job_row

if TYPE_CHECKING:
    from oarlock.job import Job

LOOK_SECONDS = 1.0
"""Between two looks for new pods, and between two tries."""
REST_SECONDS = 60.0
"""For so long pods of an ended job may say nothing before they are left."""
TRIES = 5
"""Of reading an ended pod. A running one is tried until it is gone; after as many tries that is told."""
WAITING_LINES = 10_000
"""So many may wait for a slow caller; then the readers wait, too."""
REMEMBERED = 1000
"""Lines of each pod, for the next connection."""


class Follower:
    """Follows all pods until the job has ended. One thread for each pod; `lines` runs in the caller's."""

    def __init__(
        self,
        job: Job,
        cluster: Cluster,
        wanted: Wanted,
        *,
        look_seconds: float | None = None,
        waiting_lines: int | None = None,
        connection_seconds: float | None = None,
    ) -> None:
        """`look_seconds` and `waiting_lines`: as LOOK_SECONDS and WAITING_LINES, which they are by default.

        `connection_seconds`: after so long each connection is ended, and another goes on where it was. The API server asks
        for the right to a log when a connection begins and not again.
        """
        self._job, self._cluster, self._wanted = job, cluster, wanted
        self._look_seconds = LOOK_SECONDS if look_seconds is None else look_seconds
        self._connection_seconds = connection_seconds
        self._arriving: queue.Queue[LogLine | Exception | None] = queue.Queue(waiting_lines or WAITING_LINES)
        self._readers: dict[str, threading.Thread] = {}
        self._streams: set[Lines] = set()
        self._cut: set[Lines] = set()
        self._over = threading.Event()
        self._waits = ""
        self._uid = ""
        self._attempt = 0
        self._began_with = 0
        self._away_since: float | None = None

    def lines(self) -> Iterator[LogLine]:
        """The lines as they come. Raises OarlockError: at once for a first look that fails."""
        began = time.monotonic()
        try:
            while not self._over.is_set():
                if self._connection_seconds is not None and time.monotonic() - began > self._connection_seconds:
                    began = time.monotonic()
                    self._cut |= self._streams
                    self._end_connections()
                try:
                    manifest = self._job.manifest
                    pods = self._pods(manifest["metadata"]["uid"])
                except NotFoundError:
                    if not self._uid:
                        raise
                    yield from self._rest()
                    yield LogLine(kind=NOTE, text=f"{self._job.name} was deleted")
                    return
                except (NoClusterError, RefusedError) as error:
                    yield from self._away(error)
                    continue
                self._away_since = None
                yield from self._seen(manifest["metadata"]["uid"])
                yield from self._start(pods)
                yield from self._told_why_nothing_comes(manifest, pods)
                if job_row(manifest).finished or self._is_past(manifest):
                    yield from self._rest()
                    return
                yield from self._arrived(self._look_seconds)
        finally:
            self.end()

    def end(self) -> None:
        """Have `lines` end, after what it waits for just now. Any thread may call it."""
        self._over.set()
        self._end_connections()

    def _end_connections(self) -> None:
        for stream in list(self._streams):
            with suppress(Exception):  # it may just have ended by itself
                stream.end()

    def _away(self, error: NoClusterError | RefusedError) -> Iterator[LogLine]:
        """What still comes while the API server does not answer as it should. Raises the error when it lasts."""
        now = time.monotonic()
        lasts = self._away_since is not None and now - self._away_since > PATIENCE_SECONDS
        if not self._uid or not is_hiccup(error) or lasts:
            raise error
        if self._away_since is None:
            self._away_since = now
            yield LogLine(kind=NOTE, text=f"{error}; trying again for {PATIENCE_SECONDS:.0f} seconds")
        yield from self._arrived(LOOK_SECONDS)

    def _seen(self, uid: str) -> Iterator[LogLine]:
        if self._uid and uid != self._uid:
            self._attempt, self._waits = 0, ""
            yield LogLine(kind=NOTE, text=f"{self._job.name} was deleted and made anew: from here on it is the new one")
        self._uid = uid

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
                self._began_with = self._began_with or pod.attempt
            reader = threading.Thread(target=self._read, args=(pod,), daemon=True, name=f"log of {pod.name}")
            self._readers[pod.uid] = reader
            reader.start()

    def _told_why_nothing_comes(self, manifest: Json, pods: list[Pod]) -> Iterator[LogLine]:
        row = job_row(manifest)
        lacking = [pod for pod in pods if not pod.started and not pod.ended and self._is_wanted(pod)]
        running = any(reader.is_alive() for reader in self._readers.values())
        why = ""
        if lacking:
            why = f"waiting for {lacking[0].name}: {lacking[0].waits}"
        elif not running and not row.finished and not self._is_past(manifest):
            why = f"waiting for pods: {self._job.name} is {row.phase}" + (f" ({row.message})" if row.message else "")
        if why and why != self._waits:
            yield LogLine(kind=NOTE, text=why)
        self._waits = why

    def _is_wanted(self, pod: Pod) -> bool:
        return self._wanted.takes(pod.rank) and self._wanted.attempt in (None, pod.attempt)

    def _is_past(self, manifest: Json) -> bool:
        """Whether the one attempt that is wanted is over."""
        return self._wanted.attempt is not None and (job_row(manifest).attempt or 0) > self._wanted.attempt

    def _rest(self) -> Iterator[LogLine]:
        """What the readers still bring; a log that neither ends nor says anything is left."""
        until = time.monotonic() + REST_SECONDS
        while left := sorted(reader.name for reader in self._readers.values() if reader.is_alive()):
            if time.monotonic() > until:
                yield LogLine(kind=NOTE, text=f"not read to its end, for nothing came any more: {', '.join(left)}")
                return
            for line in self._arrived(min(LOOK_SECONDS, REST_SECONDS)):
                yield line
                until = time.monotonic() + REST_SECONDS
        while not self._arriving.empty():
            yield from self._arrived(0)

    def _arrived(self, seconds: float) -> Iterator[LogLine]:
        """What comes for so long, or until a reader has ended. Raises what a reader could not go on from."""
        until = time.monotonic() + seconds
        with suppress(queue.Empty):
            while (item := self._arriving.get(timeout=max(0.0, until - time.monotonic()))) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
                if time.monotonic() > until:
                    return

    def _put(self, item: LogLine | Exception | None) -> None:
        """For the caller's thread; waits while that has enough to do, but not for one that is gone."""
        while not self._over.is_set():
            with suppress(queue.Full):
                self._arriving.put(item, timeout=LOOK_SECONDS)
                return

    def _read(self, pod: Pod) -> None:
        """Read a pod's log to its end, over broken connections. Runs in a thread."""
        try:
            place, failed = _Place(), 0
            while not self._over.is_set():
                broken = ""
                try:
                    for line in self._connection(pod, place):
                        failed = 0
                        self._put(line)
                except ForbiddenError:
                    raise
                except OarlockError as error:
                    broken, failed = str(error), failed + 1
                if not place.is_cut and self._is_over(pod, place, broken, failed):
                    return
                self._over.wait(LOOK_SECONDS)
        except Exception as error:  # noqa: BLE001 - the caller's thread raises it
            self._put(error)
        finally:
            self._put(None)

    def _connection(self, pod: Pod, place: _Place) -> Iterator[LogLine]:
        """The new lines that one connection brings. Raises OarlockError."""
        # Of an attempt that begins while we follow, nothing is old.
        wanted = self._wanted if pod.attempt == self._began_with else replace(self._wanted, tail=None)
        query = {**log_query(Wanted()), "sinceTime": place.since} if place.since else log_query(wanted)
        place.resume()
        with self._cluster.lines(pod.log_path, follow="true", **query) as lines:
            self._streams.add(lines)
            try:
                if self._over.is_set():
                    return  # it was too late for `end` to end this one
                yield from (self._wanted.cut(line) for raw in lines if place.is_new(line := log_line(pod, raw)))
                place.is_cut = lines in self._cut
            finally:
                self._streams.discard(lines)
                self._cut.discard(lines)

    def _is_over(self, pod: Pod, place: _Place, broken: str, failed: int) -> bool:
        """Whether nothing more comes from a pod whose log has ended, or whose connection broke."""
        try:
            now = next((one for one in self._pods(pod.job_uid) if one.uid == pod.uid), None)
        except ForbiddenError:
            raise
        except OarlockError:
            return False
        if not broken:
            return now is None or now.ended
        after = place.last or "its start"
        if now is None:
            self._note(
                pod,
                f"{pod.name} is gone; what it printed after {after} could not be read here: "
                "the job's output has it, where history is on",
            )
            return True
        if failed == TRIES:
            self._note(pod, f"{pod.name} cannot be read after {after}: {broken}")
        return now.ended and failed >= TRIES

    def _note(self, pod: Pod, text: str) -> None:
        self._put(LogLine(kind=NOTE, attempt=pod.attempt, rank=pod.rank, pod=pod.name, text=text))

    def _pods(self, uid: str) -> list[Pod]:
        return pods_of(self._cluster, namespace=self._job.namespace, job=self._job.name, uid=uid, wanted=self._wanted)


class _Place:
    """How far a log was read, so that another connection goes on there, with no line twice.

    Stamps need not rise: a container's two streams overtake each other by microseconds, and clocks step back. So a
    connection's first lines are compared with the last that were read, and none after its first new one.
    """

    def __init__(self) -> None:
        self.last = ""
        self.is_cut = False
        """Whether we have ended the connection: there may be more, whatever has become of the pod."""
        self._read: deque[tuple[str, int]] = deque(maxlen=REMEMBERED)
        self._known: Counter[tuple[str, int]] = Counter()
        self._first = ("", "")

    @property
    def since(self) -> str:
        """The second to ask from; empty where nothing was read."""
        return f"{self.last[:19]}Z" if self.last else ""

    def resume(self) -> None:
        """Another connection begins."""
        self.is_cut = False
        self._known = Counter(self._read)
        self._first = min((instant(stamp) for stamp, _ in self._read), default=("", ""))

    def is_new(self, line: LogLine) -> bool:
        """Whether a line was not read before; then it is now."""
        if not line.time:
            return True
        mark = (line.time, hash(line.text))
        if self._known:
            if self._known[mark]:
                self._known[mark] -= 1
                return False
            if instant(line.time) < self._first:
                return False
            self._known.clear()
        self.last = line.time
        self._read.append(mark)
        return True
