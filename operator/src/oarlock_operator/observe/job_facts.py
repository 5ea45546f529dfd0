"""A TrainingJob as the API tells it, reduced to facts: what of it cannot be read is told, and never raised."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from oarlock_api.bounds import too_large
from oarlock_api.contract.requests import REQUEST_ANNOTATION
from oarlock_api.rules import ACCEPTED
from oarlock_api.spec import OPERATOR, TrainingJobSpec
from oarlock_api.status import TrainingJobStatus
from oarlock_operator.kube.cluster import Json
from oarlock_operator.kube.decoding import UNREAD
from oarlock_operator.model.observation import Job
from oarlock_operator.observe.other_release import UnreadableStatusError, read_status


def read_job(raw: Json) -> Job:
    """The job's facts. A spec that does not fit the models is told in `problem`, a status in `unreadable`."""
    metadata = raw["metadata"]
    status, unreadable = TrainingJobStatus(), ""
    try:
        status = read_status(raw.get("status"))
    except UnreadableStatusError as error:
        unreadable = str(error)
    spec, problem = _read_spec(raw.get("spec") or {}, accepted=status.attempt > 0)
    return Job(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        spec=spec,
        problem=problem,
        status=status,
        unreadable=unreadable,
        labels=metadata.get("labels") or {},
        deleting="deletionTimestamp" in metadata,
        request=(metadata.get("annotations") or {}).get(REQUEST_ANNOTATION, ""),
        managed_by=_managed_by(raw),
    )


def _read_spec(given: Json, *, accepted: bool) -> tuple[TrainingJobSpec | None, str]:
    """The spec, and what is wrong with it. One that was `accepted` is read if only a rule for new jobs refuses it."""
    if UNREAD in given:
        return None, too_large(given[UNREAD])
    try:
        return TrainingJobSpec.model_validate(given), ""
    except ValidationError as error:
        problem = "; ".join(_said(mistake["loc"], mistake["msg"]) for mistake in error.errors(include_url=False)[:8])
    try:
        return TrainingJobSpec.model_validate(given, context=ACCEPTED) if accepted else None, problem
    except ValidationError:
        return None, problem


def _said(place: Sequence[str | int], message: str) -> str:
    """What is wrong, and where, unless the message begins with that."""
    return message if message.startswith("spec") else f"{'.'.join(('spec', *map(str, place)))}: {message}"


def _managed_by(raw: Json) -> str:
    """Who works on the job, whatever else stands in its spec: another controller's is never judged here."""
    spec = raw.get("spec")
    return str(spec.get("managedBy") or OPERATOR) if isinstance(spec, dict) else OPERATOR
