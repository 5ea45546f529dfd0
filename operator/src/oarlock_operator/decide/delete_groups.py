"""Delete groups: the group of an attempt goes once the attempt is over and nothing of it runs any more.

Not sooner: what a gang system does to pods that still save, and whose group is gone, is nobody's promise.
"""

from __future__ import annotations

from oarlock_api.history import RecoveryStage
from oarlock_operator.decide.draft import Draft
from oarlock_operator.model.observation import Group, Observation
from oarlock_operator.model.plan import DeleteGroup


def delete_groups(o: Observation, draft: Draft) -> None:
    """Delete the groups of attempts that are over; never decides the pass."""
    for group in due(o, draft):
        draft.act(DeleteGroup(group.name, group.uid, group.api))


def due(o: Observation, draft: Draft) -> list[Group]:
    """The groups that are to go, and can."""
    status = draft.status
    over = status.completion_time is not None or status.recovery.stage == RecoveryStage.SUSPENDED
    running = {pod.attempt for pod in o.pods if not pod.stopped}
    return [
        group
        for group in o.groups
        if (over or group.attempt < status.attempt)
        and group.attempt not in running
        and group.ours
        and not group.deleting
    ]
