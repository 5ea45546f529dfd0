"""Dissolve: the group of an attempt goes once the attempt is over and nothing of it runs any more.

Not sooner: what a gang system does to pods that still save, and whose group is gone, is nobody's promise.
"""

from __future__ import annotations

from oarlock_api.history import RecoveryStage
from oarlock_operator.decide.draft import Draft
from oarlock_operator.observation import Observation
from oarlock_operator.plan import DeleteGroup


def dissolve(o: Observation, draft: Draft) -> None:
    """Delete the groups of attempts that are over; never decides the pass."""
    status = draft.status
    over = status.completion_time is not None or status.recovery.stage == RecoveryStage.SUSPENDED
    running = {pod.attempt for pod in o.pods if not pod.stopped}
    for group in o.groups:
        ended = (over or group.attempt < status.attempt) and group.attempt not in running
        if ended and group.ours and not group.deleting:
            draft.act(DeleteGroup(group.name, group.uid, group.api))
