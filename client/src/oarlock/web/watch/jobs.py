"""Jobs as the page keeps them: a row, the curve's losses, and the object as compact JSON, since some have many attempts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock.checked_name import checked_name
from oarlock.cluster import jobs_path
from oarlock.errors import NotFoundError
from oarlock.facts.cluster import trimmed
from oarlock.parts import objects, part
from oarlock.rows import JobRow, job_row
from oarlock.web.watch.feed import Watched
from oarlock_api.contract.wire import number

if TYPE_CHECKING:
    from oarlock.web.ask import Ask


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job in a list. `losses` are those of status.curve, in order."""

    row: JobRow
    losses: tuple[float, ...]
    raw: bytes

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> KnownJob:
        """What is kept of a TrainingJob."""
        told = (number(point.get("loss")) for point in objects(part(job, "status"), "curve"))
        raw = json.dumps(trimmed(job), separators=(",", ":")).encode()
        return cls(job_row(job), tuple(loss for loss in told if loss is not None), raw)

    @property
    def object(self) -> dict[str, Any]:
        """The TrainingJob, without what trimmed takes away."""
        found: dict[str, Any] = json.loads(self.raw)
        return found


def jobs_of(namespace: str | None) -> Watched:
    """The jobs of a namespace, or of all: Ask.watched gives a KnownJob for each."""
    return Watched(jobs_path(namespace), keep=KnownJob.of)


def job_of(namespace: str, name: str) -> Watched:
    """One job, as jobs_of has it."""
    return Watched(jobs_path(namespace), fields=f"metadata.name={checked_name(name, 'job')}", keep=KnownJob.of)


def known_job(ask: Ask) -> KnownJob:
    """The job that the path names, as the caller sees it. Raises NotFoundError where it is not there."""
    namespace, name = ask.name("namespace"), ask.name("name")
    known: KnownJob | None = ask.watched(job_of(namespace, name)).objects.get((namespace, name))
    if known is None:
        raise NotFoundError(f"{namespace} has no job {name}: look at the list of jobs")
    return known
