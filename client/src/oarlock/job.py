"""One job, and what can be asked of it and done to it. The command line's verbs are these methods."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.checked_name import checked_name
from oarlock.cluster import Cluster, jobs_path
from oarlock.errors import (
    ForbiddenError,
    JobFailedError,
    JobNotRunningError,
    NoClusterError,
    NotFoundError,
    NotNowError,
    OarlockError,
    RefusedError,
    WaitTimeoutError,
)
from oarlock.parts import objects, part
from oarlock.patience import is_hiccup, patient
from oarlock.rows import EventRow, FaultRow, JobRow, event_rows, fault_rows, job_row
from oarlock_api.contract.history import METRICS
from oarlock_api.contract.requests import REQUEST_ANNOTATION, RequestState, in_words

if TYPE_CHECKING:
    from oarlock.logs import LogLine
    from oarlock.rank_stacks import RankStacks
    from oarlock.story import Story
    from oarlock_api.status import TrainingJobStatus

LOOK_SECONDS = 1.0
"""Between two looks at a job that is waited for."""
CLOCKS_APART = 300
"""Seconds by which a node's clock may differ from this machine's."""
MOST_CONFLICTS = 10
"""Tries to delete a job that changes between each look and its deletion."""
GOES_ON = "it goes on by itself"
MAY_COME = "it may still come: after a save or a drill, the next one waits a minute"
STAYS_RESIZED = (
    "it saves and stays suspended, of its old size: resize it again, or `oarlock resume {name}` has it go on"
)
STAYS_STOPPED = "it saves and stays suspended: stop it again, or `oarlock resume {name}` has it go on"
"""What becomes of a job when nobody waits for it any more, by a timeout or by Ctrl-C."""
Sleep = Callable[[float], None]


class Job:
    """A job by its name, whether or not it is there. Every call asks the cluster anew."""

    def __init__(
        self, cluster: Cluster, name: str, namespace: str | None = None, *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Made by Client.job. Raises RefusedError where no object can have that name.

        `metadata` becomes part of every change: annotations to leave there, or the uid without which it is another job.
        """
        self.name = name
        self.namespace = namespace or cluster.namespace
        self._cluster = cluster
        self._path = jobs_path(self.namespace, name)
        self._metadata = dict(metadata or {})

    def __repr__(self) -> str:
        return f"Job({self.namespace}/{self.name})"

    @property
    def manifest(self) -> dict[str, Any]:
        """The whole object, as `kubectl get -o json` has it. Raises NotFoundError."""
        found: dict[str, Any] = self._cluster.get(self._path)
        return found

    @property
    def row(self) -> JobRow:
        """The job in one line: phase, step, loss, seconds per step. Raises NotFoundError."""
        return job_row(self.manifest)

    @property
    def status(self) -> TrainingJobStatus:
        """The status as a model; what another release wrote and this one cannot read is left out. Raises NotFoundError."""
        from oarlock.typed import read_status  # noqa: PLC0415 - the models take 0.1 s to import

        return read_status(self.manifest.get("status") or {})

    def events(self) -> list[EventRow]:
        """Events of the job and its pods, the oldest first; the API server keeps them for an hour."""
        return event_rows(
            self._cluster.items(f"/api/v1/namespaces/{checked_name(self.namespace, 'namespace')}/events"), job=self.name
        )

    def faults(self) -> list[FaultRow]:
        """What spoke against which GPU and which node, the oldest first."""
        return fault_rows(self.manifest)

    def why(self, path: str | Path | None = None) -> Story:
        """Why it does not train, or trained anew. `path`: its output directory, where that is mounted here.

        Raises NotFoundError where nothing of the job is there, or no output at `path`.
        """
        from oarlock.why import story_of_job  # noqa: PLC0415 - as above

        return story_of_job(self._cluster, self.name, namespace=self.namespace, path=path)

    def report(self, path: str | Path | None = None, *, file: str | Path | None = None) -> str:
        """The job as one page of HTML. `path`: its output directory, where it is mounted here: for curve and pictures.

        `file`: where the caller will put it; below `path`, it links to pictures, else they are within it. Raises as `why`.
        """
        from oarlock.reporting import report_of_job  # noqa: PLC0415 - as above

        return report_of_job(self._cluster, self.name, namespace=self.namespace, path=path, file=file)

    def metrics(self, path: str | Path | None = None) -> list[dict[str, Any]]:
        """Rows of figures, as for pandas.DataFrame: step, loss, secondsPerStep of the whole run in at most 64 points.

        Where `path` is the job's output directory: all lines of metrics.jsonl, also of steps that were done twice, by
        a later attempt or a later round of the same one: the later line counts.

        Raises NotFoundError where there is no metrics.jsonl below `path`.
        """
        if path is None:
            status = part(self.manifest, "status")
            points = objects(status, "curve") or [part(status, "progress")]
            names = ("step", "loss", "secondsPerStep")
            return [{name: point.get(name) for name in names} for point in points if point.get("step") is not None]
        file = Path(path) / METRICS
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError as error:
            raise NotFoundError(
                f"{file} cannot be read ({error.strerror}): name the job's own output directory"
            ) from error
        return list(_objects(lines))

    def logs(
        self,
        *,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        incarnation: int | None = None,
        previous: bool = False,
        since: timedelta | None = None,
        tail: int | None = None,
        grep: str | None = None,
    ) -> Iterator[LogLine]:
        """What the pods print, line by line; with `follow`, through all attempts until the job ends.

        `incarnation`: of pods that were made anew within an attempt; the first ones have 1. `tail`: of each pod only so
        many of its last lines, and what follows.
        """
        from oarlock.live_logs import read  # noqa: PLC0415
        from oarlock.logs import Wanted  # noqa: PLC0415

        wanted = Wanted(
            rank=rank,
            attempt=attempt,
            incarnation=incarnation,
            previous=previous,
            since=since,
            tail=tail,
            grep=grep,
        )
        return read(self, self._cluster, wanted, follow=follow)

    def wait(
        self,
        timeout: float | None = None,
        *,
        on_change: Callable[[JobRow], None] | None = None,
        sleep: Sleep = time.sleep,
    ) -> JobRow:
        """Wait until the job has succeeded.

        Raises JobFailedError, JobNotRunningError (suspended or deleted), WaitTimeoutError after `timeout` seconds,
        NotFoundError where it was not there at the beginning.
        """
        last = None

        def over(row: JobRow) -> bool:
            nonlocal last
            if on_change and row != last:
                on_change(row)
            last = row
            return row.phase in {"Succeeded", "Failed"} or _is_suspended(row)

        row = job_row(self._until(over, timeout=timeout, what="its end", after=GOES_ON, sleep=sleep))
        if row.phase == "Failed":
            raise JobFailedError(
                f"{self.name} has failed: {row.message or row.reason}; `oarlock why {self.name}` says more"
            )
        if row.phase == "Suspended":
            raise JobNotRunningError(f"{self.name} is suspended: `oarlock resume {self.name}` has it go on")
        return row

    def suspend(self) -> None:
        """Have the pods save and leave; a resumed job goes on from there. Raises NotNowError where it has ended."""
        self._unfinished()
        self._change({"suspend": True})

    def resume(self) -> None:
        """Have a suspended job go on. Raises NotNowError where it has ended."""
        self._unfinished()
        self._change({"suspend": False})

    def resize(
        self, nodes: int, *, gpus_per_node: int | None = None, timeout: float | None = None, sleep: Sleep = time.sleep
    ) -> None:
        """Save, leave, and go on with another number of nodes, or of GPUs on each.

        A job that was suspended stays so; one whose new size is refused goes on with its old one. Raises RefusedError then,
        NotNowError where it has ended, also while it saved, and WaitTimeoutError.
        """
        before = self._unfinished()
        was_suspended = job_row(before).suspended
        size: dict[str, Any] = {"nodes": nodes, **({} if gpus_per_node is None else {"gpusPerNode": gpus_per_node})}
        if not was_suspended:
            self._change({"suspend": True})
        left = self._left(before, timeout=timeout, after=STAYS_RESIZED, sleep=sleep)
        if job_row(left).finished:
            raise self._has_ended()
        if was_suspended:
            self._change(size)
            return
        try:
            patient(lambda: self._change({**size, "suspend": False}), sleep=sleep)
        except (RefusedError, ForbiddenError, NoClusterError) as error:
            how = STAYS_RESIZED.format(name=self.name)
            if not is_hiccup(error):
                with suppress(OarlockError):
                    patient(lambda: self._change({"suspend": False}), sleep=sleep)
                    how = "it goes on with its old size"
            error.args = (f"{error}; {how}",)
            raise

    def stop(self, *, timeout: float | None = None, sleep: Sleep = time.sleep) -> int | None:
        """Save, end, and delete the job; its output stays. Returns the newest checkpoint's step.

        Raises WaitTimeoutError, and NotNowError where somebody resumes it meanwhile: then it is not deleted. Raises
        JobNotRunningError or NotFoundError where somebody else deletes it meanwhile.
        """
        job = self.manifest
        if self._metadata.get("uid", _uid(job)) != _uid(job):
            raise NotFoundError(f"the {self.name} that was meant is gone, and another job has its name now")
        if not job_row(job).finished:
            self._change({"suspend": True})
        for again in reversed(range(MOST_CONFLICTS)):
            job = self._left(job, timeout=timeout, after=STAYS_STOPPED, sleep=sleep)
            try:
                self._delete(job, "uid", "resourceVersion")
                break
            except RefusedError as error:
                # A conflict: it has changed since that look, by its operator or by somebody who wants it to go on.
                if error.status != HTTPStatus.CONFLICT or not again:
                    raise
        return job_row(job).checkpoint_step

    def delete(self) -> None:
        """Delete the job and its pods; its output stays. Raises NotFoundError."""
        self._delete(self.manifest, "uid")

    def save(self, *, timeout: float | None = 600, sleep: Sleep = time.sleep) -> dict[str, Any]:
        """Have a job that trains write a checkpoint now, while it goes on.

        Returns status.request, with `step` and `seconds`. Raises NotNowError, WaitTimeoutError.
        """
        return self._ask("save", timeout=timeout, sleep=sleep)

    def drill(self, *, timeout: float | None = 600, sleep: Sleep = time.sleep) -> dict[str, Any]:
        """Have it save as if its pods were told to go, and measure the seconds that this takes. As `save` otherwise."""
        return self._ask("drill", timeout=timeout, sleep=sleep)

    def stacks(self, *, timeout: float | None = 120, sleep: Sleep = time.sleep) -> list[RankStacks]:
        """Have all ranks write their Python stacks, into the history and their pods' logs, and read them there.

        Ranks that are stuck answer, too. Raises NotNowError, WaitTimeoutError, and as `logs` where those can't be read.
        """
        from oarlock.rank_stacks import of_request  # noqa: PLC0415

        began = time.monotonic()
        answer = self._ask("stacks", timeout=timeout, sleep=sleep)
        since = timedelta(seconds=time.monotonic() - began + CLOCKS_APART)
        return of_request(answer["id"], self.logs(attempt=answer.get("attempt"), since=since, grep=answer["id"]))

    def _ask(self, verb: str, *, timeout: float | None, sleep: Sleep) -> dict[str, Any]:
        name, asked = uuid.uuid4().hex[:12], in_words(verb)
        annotations = {**self._metadata.get("annotations", {}), REQUEST_ANNOTATION: f"{verb} {name}"}
        self._cluster.merge(self._path, {"metadata": {**self._metadata, "annotations": annotations}})
        answer: dict[str, Any] = {}
        taken = False

        def answered(manifest: dict[str, Any]) -> bool:
            nonlocal answer, taken
            answer = (manifest.get("status") or {}).get("request") or {}
            taken = taken or answer.get("id") == name
            return taken and (answer.get("id") != name or answer.get("state") != "Asked")

        self._look(answered, timeout=timeout, what=f"the answer to the {asked}", after=MAY_COME, sleep=sleep)
        if answer.get("id") != name:
            raise NotNowError(
                f"what came of the {asked} is not told: {self.name} was asked for {answer.get('verb')} meanwhile"
            )
        if answer.get("state") != "Done":
            how = "was refused" if answer.get("state") == RequestState.REFUSED else "failed"
            raise NotNowError(f"{self.name}: the {asked} {how}: {answer.get('message') or 'no reason is told'}")
        return answer

    def _change(self, spec: dict[str, Any]) -> None:
        self._cluster.merge(self._path, {"spec": spec, **({"metadata": self._metadata} if self._metadata else {})})

    def _delete(self, job: dict[str, Any], *same: str) -> None:
        """Delete this very object: as long as these fields of its metadata are what they are."""
        metadata = job.get("metadata") or {}
        self._cluster.delete(self._path, {name: metadata[name] for name in same if metadata.get(name)})

    def _unfinished(self) -> dict[str, Any]:
        """The object. Raises NotNowError where the job has ended."""
        job = self.manifest
        if job_row(job).finished:
            raise self._has_ended()
        return job

    def _has_ended(self) -> NotNowError:
        return NotNowError(
            f"{self.name} has ended: delete it and submit it anew, and it goes on from its newest checkpoint"
        )

    def _left(self, job: dict[str, Any], *, timeout: float | None, after: str, sleep: Sleep) -> dict[str, Any]:
        """The object, once nothing of a suspended job runs any more, or it has ended before it could be suspended."""

        def over(row: JobRow) -> bool:
            if not row.suspended and not row.finished:
                raise NotNowError(f"somebody has resumed {self.name} while its pods' leaving was waited for")
            return _is_suspended(row) or row.finished is not None

        return self._until(over, timeout=timeout, what="its pods' leaving", after=after, sleep=sleep, of=job)

    def _until(self, over: Callable[[JobRow], bool], **waiting: Any) -> dict[str, Any]:
        return self._look(lambda job: over(job_row(job)), **waiting)

    def _look(
        self,
        over: Callable[[dict[str, Any]], bool],
        *,
        timeout: float | None,
        what: str,
        after: str,
        sleep: Sleep,
        of: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The object as soon as a condition on it holds. `after` says what it does when the time is over; `of`: if seen."""
        deadline = None if timeout is None else time.monotonic() + timeout
        seen, phase = _uid(of) if of else "", job_row(of or {}).phase
        while True:
            try:
                manifest = patient(lambda: self.manifest, sleep=sleep, deadline=deadline) if seen else self.manifest
            except NotFoundError as error:
                if not seen:
                    raise
                raise JobNotRunningError(f"{self.name} was deleted while {what} was waited for") from error
            except OarlockError as error:
                if not seen or not is_hiccup(error) or deadline is None or time.monotonic() < deadline:
                    raise
                raise self._timeout(phase, timeout, what, after) from error
            if seen and _uid(manifest) != seen:
                raise JobNotRunningError(f"{self.name} was deleted, and another job has its name now")
            seen, phase = _uid(manifest), job_row(manifest).phase
            if over(manifest):
                return manifest
            if deadline is not None and time.monotonic() >= deadline:
                raise self._timeout(phase, timeout, what, after)
            sleep(LOOK_SECONDS)

    def _timeout(self, phase: str, timeout: float | None, what: str, after: str) -> WaitTimeoutError:
        then = after.format(name=self.name)
        return WaitTimeoutError(f"{self.name} is {phase} after {timeout:g} s: {what} did not come; {then}")


def _uid(job: dict[str, Any]) -> str:
    return str((job.get("metadata") or {}).get("uid"))


def _is_suspended(row: JobRow) -> bool:
    """Whether it is and shall be so: after a resume the phase is the old one for a moment."""
    return row.phase == "Suspended" and row.suspended


def _objects(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue  # the last line of a job that runs may be half written
        if isinstance(found, dict):
            yield found
