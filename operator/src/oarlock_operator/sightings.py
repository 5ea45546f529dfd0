"""What the watch saw of pods that ended: kept for a while, because the API forgets a deleted pod's last words at once.

A hint, never the truth: after a restart of the operator it is empty, and decisions still come to the same end.
Bounded in number; single-threaded.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from oarlock_api.contract.names import Label
from oarlock_operator.pod_facts import RawPod

LIMIT = 4096


class Sightings:
    """Pods that were seen ended or deleted, newest last, by uid."""

    def __init__(self, limit: int = LIMIT, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns monotonic seconds."""
        self._limit = limit
        self._clock = clock
        self._pods: OrderedDict[str, RawPod] = OrderedDict()
        self._since: dict[str, float] = {}
        self._rejected: set[str] = set()

    def note(self, pod: RawPod, *, deleted: bool) -> bool:
        """Remember the last state of a pod that ended or is gone. Whether that is news."""
        uid = pod.metadata.uid
        if not deleted and not _ended(pod):
            return False
        news = uid not in self._pods
        self._pods[uid] = pod
        self._pods.move_to_end(uid)
        while len(self._pods) > self._limit:
            forgotten, _ = self._pods.popitem(last=False)
            self._drop(forgotten)
        self._since.setdefault(uid, self._clock())
        return news

    def first_rejection(self, uid: str) -> bool:
        """Whether this pod's report is rejected for the first time since the pod is remembered."""
        if uid in self._rejected:
            return False
        if uid in self._pods:
            self._rejected.add(uid)
        return True

    def seconds_since_the_first(self, uids: Iterable[str]) -> float | None:
        """How long it is known here that the first of these pods ended; None where none is known to have."""
        times = [self._since[uid] for uid in uids if uid in self._since]
        return self._clock() - min(times) if times else None

    def departed(self, job_uid: str, *, alive: set[str]) -> list[RawPod]:
        """Pods of a job that were seen and are not there any more."""
        return [pod for uid, pod in self._pods.items() if uid not in alive and pod.label(Label.JOB_UID) == job_uid]

    def forget(self, namespace: str, job: str) -> None:
        """Drop what is known of a job that is over or gone, by whatever uid."""
        known = {
            uid for uid, pod in self._pods.items() if (pod.metadata.namespace, pod.label(Label.JOB)) == (namespace, job)
        }
        for uid in known:
            del self._pods[uid]
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        self._since.pop(uid, None)
        self._rejected.discard(uid)


def _ended(pod: RawPod) -> bool:
    # A pod that its kubelet refused has failed without a container.
    statuses = pod.status.container_statuses or ()
    return pod.status.phase == "Failed" or any(each.state.terminated is not None for each in statuses)
