"""A job whose status cannot be read is left as it is, and says so: one condition, once, and nothing else is touched."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from oarlock_api.status import Condition, ConditionStatus, ConditionType
from oarlock_operator.model.observation import Job
from oarlock_operator.model.plan import Event, EventType
from oarlock_operator.model.reasons import Reason


def status_with_condition(raw: dict[str, Any], job: Job, *, now: datetime) -> dict[str, Any] | None:
    """The status as it was found, but Degraded; None where it says so already."""
    status = raw.get("status")
    found: dict[str, Any] = status if isinstance(status, dict) else {}
    listed = found.get("conditions")
    conditions = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    told = Condition(
        type=ConditionType.DEGRADED,
        status=ConditionStatus.TRUE,
        reason=Reason.STATUS_UNREADABLE,
        message=_message(job),
        last_transition_time=now,
        observed_generation=job.generation,
    ).to_manifest()
    parts = ("type", "status", "reason", "message")
    if any(all(each.get(part) == told[part] for part in parts) for each in conditions):
        return None
    others = [each for each in conditions if each.get("type") != ConditionType.DEGRADED]
    return {**found, "conditions": [*others, told]}


def event(job: Job) -> Event:
    """The Event that tells of it."""
    return Event(EventType.WARNING, Reason.STATUS_UNREADABLE, _message(job))


def _message(job: Job) -> str:
    return (
        f"{job.unreadable[:1024]}. Nothing is decided about this job until its status can be read: install the release of "
        "the operator that wrote it, or a later one"
    )
