"""The facts of one job alone: a name is used again after a deletion, and Events of the name outlive who had it by an hour."""

from __future__ import annotations

from dataclasses import replace

from oarlock.clock import when
from oarlock.facts.model import Facts, Object
from oarlock_api.contract.names import KIND, Label
from oarlock_api.contract.wire import text


def own(facts: Facts) -> Facts:
    """Without pods of another job of this name, and without Events about such a job or its pods.

    As they are where the job's object is gone: then nobody says which of them is meant.
    """
    if facts.job is None:
        return facts
    metadata = facts.job["metadata"]
    uid, made = text(metadata.get("uid"), 64), text(metadata.get("creationTimestamp"), 40)
    pods = tuple(pod for pod in facts.pods if _job_uid(pod) in ("", uid))
    uids = {("Pod", text(pod["metadata"].get("name"), 253)): text(pod["metadata"].get("uid"), 64) for pod in facts.pods}
    uids[KIND, facts.name] = uid
    mine = {uid, *(text(pod["metadata"].get("uid"), 64) for pod in pods)}

    def is_own(event: Object) -> bool:
        about = event.get("involvedObject") or {}
        kind, name, who = (text(about.get(key), 253) for key in ("kind", "name", "uid"))
        if kind not in (KIND, "Pod") or who in mine:
            return True
        # Of a pod that is gone only the name is known; it is of this job if it happened since there is the job.
        return (not who or (kind, name) not in uids) and when(event)[:19] >= made[:19]

    return replace(facts, pods=pods, events=tuple(event for event in facts.events if is_own(event)))


def _job_uid(pod: Object) -> str:
    return text((pod["metadata"].get("labels") or {}).get(Label.JOB_UID.value), 64)
