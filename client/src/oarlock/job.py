"""One job, and what can be asked of it and done to it. The command line's verbs are these methods."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock.cluster import Cluster, jobs_path, segment
from oarlock.errors import JobFailedError, JobNotRunningError, NotFoundError, NotNowError, WaitTimeoutError
from oarlock.rows import EventRow, FaultRow, JobRow, event_rows, fault_rows, job_row, objects, part
from oarlock_api.contract.history import METRICS
from oarlock_api.contract.requests import REQUEST_ANNOTATION

if TYPE_CHECKING:
    from oarlock.logs import LogLine
    from oarlock.story import Story
    from oarlock_api.status import TrainingJobStatus

LOOK_SECONDS = 1.0
"""Between two looks at a job that is waited for."""
Sleep = Callable[[float], None]


class Job:
    """A job by its name, whether or not it is there. Every call asks the cluster anew."""

    def __init__(self, cluster: Cluster, name: str, namespace: str | None = None) -> None:
        """Made by Client.job. Raises NotFoundError where no object can have that name."""
        self.name = name
        self.namespace = namespace or cluster.namespace
        self._cluster = cluster
        self._path = jobs_path(self.namespace, name)

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
        return event_rows(self._cluster.items(f"/api/v1/namespaces/{segment(self.namespace)}/events"), job=self.name)

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

        Where `path` is the job's output directory: all lines of metrics.jsonl, also of steps that were done twice.

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
        previous: bool = False,
        since: timedelta | None = None,
        grep: str | None = None,
    ) -> Iterator[LogLine]:
        """What the pods print, line by line; with `follow`, through all attempts until the job ends."""
        from oarlock.live_logs import read  # noqa: PLC0415
        from oarlock.logs import Wanted  # noqa: PLC0415

        wanted = Wanted(rank=rank, attempt=attempt, previous=previous, since=since, grep=grep)
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
            return row.phase in {"Succeeded", "Failed", "Suspended"}

        row = self._until(over, timeout=timeout, what="its end", sleep=sleep)
        if row.phase == "Failed":
            raise JobFailedError(
                f"{self.name} has failed: {row.message or row.reason}; `oarlock events {self.name}` says more"
            )
        if row.phase == "Suspended":
            raise JobNotRunningError(f"{self.name} is suspended: `oarlock resume {self.name}` has it go on")
        return row

    def suspend(self) -> None:
        """Have the pods save and leave; the job goes on from there when it is resumed."""
        self._change({"suspend": True})

    def resume(self) -> None:
        """Have a suspended job go on."""
        self._change({"suspend": False})

    def resize(
        self, nodes: int, *, gpus_per_node: int | None = None, timeout: float | None = None, sleep: Sleep = time.sleep
    ) -> None:
        """Save, leave, and go on with another number of nodes, or of GPUs on each.

        A job that was suspended stays so. Raises NotNowError where it has ended, WaitTimeoutError.
        """
        row = self.row
        if row.finished:
            raise NotNowError(
                f"{self.name} has ended: delete it and submit it anew, and it goes on from its newest checkpoint"
            )
        size: dict[str, Any] = {"nodes": nodes, **({} if gpus_per_node is None else {"gpusPerNode": gpus_per_node})}
        if row.suspended:
            self._change(size)
            return
        self.suspend()
        self._until(lambda row: row.phase == "Suspended", timeout=timeout, what="its pods' leaving", sleep=sleep)
        self._change({**size, "suspend": False})

    def stop(self, *, timeout: float | None = None, sleep: Sleep = time.sleep) -> int | None:
        """Save, end, and delete the job; its output stays. Returns the newest checkpoint's step. Raises WaitTimeoutError."""
        if not self.row.finished:
            self.suspend()
            self._until(
                lambda row: row.phase == "Suspended" or row.finished is not None,
                timeout=timeout,
                what="its pods' leaving",
                sleep=sleep,
            )
        step = self.row.checkpoint_step
        self.delete()
        return step

    def delete(self) -> None:
        """Delete the job and its pods; its output stays."""
        self._cluster.delete(f"{self._path}?propagationPolicy=Background")

    def save(self, *, timeout: float | None = 600, sleep: Sleep = time.sleep) -> dict[str, Any]:
        """Have a job that trains write a checkpoint now, while it goes on.

        Returns status.request, with `step` and `seconds`. Raises NotNowError, WaitTimeoutError.
        """
        return self._ask("save", timeout=timeout, sleep=sleep)

    def drill(self, *, timeout: float | None = 600, sleep: Sleep = time.sleep) -> dict[str, Any]:
        """Have it save as if its pods were told to go, and measure the seconds that this takes. As `save` otherwise."""
        return self._ask("drill", timeout=timeout, sleep=sleep)

    def _ask(self, verb: str, *, timeout: float | None, sleep: Sleep) -> dict[str, Any]:
        name = uuid.uuid4().hex[:12]
        self._cluster.merge(self._path, {"metadata": {"annotations": {REQUEST_ANNOTATION: f"{verb} {name}"}}})
        answer: dict[str, Any] = {}

        def answered(manifest: dict[str, Any]) -> bool:
            nonlocal answer
            answer = (manifest.get("status") or {}).get("request") or {}
            return answer.get("id") == name and answer.get("state") != "Asked"

        self._look(answered, timeout=timeout, what=f"the answer to {verb}", sleep=sleep)
        if answer.get("state") != "Done":
            raise NotNowError(f"{self.name} did not {verb}: {answer.get('message') or answer.get('state')}")
        return answer

    def _change(self, spec: dict[str, Any]) -> None:
        self._cluster.merge(self._path, {"spec": spec})

    def _until(self, over: Callable[[JobRow], bool], *, timeout: float | None, what: str, sleep: Sleep) -> JobRow:
        return job_row(self._look(lambda job: over(job_row(job)), timeout=timeout, what=what, sleep=sleep))

    def _look(
        self, over: Callable[[dict[str, Any]], bool], *, timeout: float | None, what: str, sleep: Sleep
    ) -> dict[str, Any]:
        """The object as soon as a condition on it holds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        seen = ""
        while True:
            try:
                manifest = self.manifest
            except NotFoundError as error:
                if not seen:
                    raise
                raise JobNotRunningError(f"{self.name} was deleted while {what} was waited for") from error
            uid = str((manifest.get("metadata") or {}).get("uid"))
            if seen and uid != seen:
                raise JobNotRunningError(f"{self.name} was deleted, and another job has its name now")
            seen = uid
            if over(manifest):
                return manifest
            if deadline is not None and time.monotonic() >= deadline:
                phase = job_row(manifest).phase
                raise WaitTimeoutError(
                    f"{self.name} is {phase} after {timeout:g} s: {what} did not come; it goes on by itself"
                )
            sleep(LOOK_SECONDS)


def _objects(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue  # the last line of a job that runs may be half written
        if isinstance(found, dict):
            yield found
