"""What rank 0's pod is told of the attempts before its own, so that its agent writes it into the job's history.

The status has all of it, but goes with the job; and an attempt whose node died has told nothing itself. Pure.
"""

from __future__ import annotations

import re
from typing import Any

from oarlock_api.contract.history import OperatorNotes, StoryLine, StoryType
from oarlock_api.history import Attempt
from oarlock_api.status import TrainingJobStatus

_OF_ATTEMPT = (
    *(
        "startTime",
        "endTime",
        "notInPlace",
        "nodeNames",
        "replacedNodeNames",
        "resumedFromStep",
        "lostSteps",
        "gpuSeconds",
        "stageMilliseconds",
    ),
)


def notes(status: TrainingJobStatus, *, uid: str, image: str) -> OperatorNotes:
    """Of each attempt before the current one that the status still has, the oldest first."""
    before = [one for one in status.attempts if one.number < status.attempt]
    begun = {one.number: one for one in status.attempts}
    faulty = _attempt_of_last_fault(before, status)
    decisions = (_decision(one, begun.get(one.number + 1), status, uid, with_fault=one is faulty) for one in before)
    return OperatorNotes(image=image, decisions=tuple(decisions))


def _attempt_of_last_fault(before: list[Attempt], status: TrainingJobStatus) -> Attempt | None:
    """The last attempt that had begun by then, unless it went on and ended for something else."""
    if status.last_fault is None:
        return None
    at = status.last_fault.time
    faulty = next((one for one in reversed(before) if one.start_time and one.start_time <= at), None)
    of_round = next((one for one in status.rounds if one.ended_time == at), None)
    return None if faulty and of_round and of_round.reason != faulty.end_reason else faulty


def _decision(
    attempt: Attempt, following: Attempt | None, status: TrainingJobStatus, uid: str, *, with_fault: bool
) -> StoryLine:
    told = attempt.to_manifest()
    data: dict[str, Any] = {name: value for name in _OF_ATTEMPT if (value := told.get(name))}
    of_it = re.compile(rf"in attempt {attempt.number}\b")
    avoided = {one.name: one.reason for one in status.avoided_nodes if one.reason and of_it.search(one.reason)}
    cordoned = {one.name: one.reason or "" for one in status.cordoned_nodes if one.attempt == attempt.number}
    fault = status.last_fault if with_fault else None
    data |= {"avoidedNodes": avoided} if avoided else {}
    data |= {"cordonedNodes": cordoned} if cordoned else {}
    data |= {"fault": fault.to_manifest()} if fault else {}
    begun = following.to_manifest() if following else {}
    return StoryLine(
        time=told.get("endTime") or begun.get("startTime") or told.get("startTime") or "",
        type=StoryType.DECISION,
        attempt=attempt.number,
        job=uid,
        reason=attempt.end_reason or (following.reason if following else None) or "",
        message=fault.evidence[0] if fault and fault.evidence else "",
        data=data,
    )
