"""What the watch saw of pods that ended: kept for a while, because the API forgets a deleted pod's last words at once.

A hint, never the truth: after a restart of the operator it is empty, and decisions still come to the same end.
Bounded in number; single-threaded.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from oarlock_api.contract.names import Label

LIMIT = 4096


class Sightings:
    """Pods that were seen ended or deleted, newest last, by uid."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._pods: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def note(self, pod: dict[str, Any], *, deleted: bool) -> bool:
        """Remember the last state of a pod that ended or is gone. Whether that is news."""
        uid = pod["metadata"]["uid"]
        if not deleted and not _ended(pod):
            return False
        news = uid not in self._pods
        self._pods[uid] = _essence(pod)
        self._pods.move_to_end(uid)
        while len(self._pods) > self._limit:
            self._pods.popitem(last=False)
        return news

    def departed(self, job_uid: str, *, alive: set[str]) -> list[dict[str, Any]]:
        """Pods of a job that were seen and are not there any more."""
        return [
            pod
            for uid, pod in self._pods.items()
            if uid not in alive and (pod["metadata"].get("labels") or {}).get(Label.JOB_UID) == job_uid
        ]

    def forget(self, namespace: str, job: str) -> None:
        """Drop what is known of a job that is over or gone, by whatever uid."""
        known = {
            uid
            for uid, pod in self._pods.items()
            if (pod["metadata"].get("namespace"), (pod["metadata"].get("labels") or {}).get(Label.JOB))
            == (namespace, job)
        }
        for uid in known:
            del self._pods[uid]


def _essence(pod: dict[str, Any]) -> dict[str, Any]:
    """What an observation reads of a pod: a tenth of it."""
    metadata = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    return {
        "metadata": metadata,
        "spec": {"nodeName": (pod.get("spec") or {}).get("nodeName")},
        "status": pod.get("status") or {},
    }


def _ended(pod: dict[str, Any]) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any("terminated" in (status.get("state") or {}) for status in statuses)
