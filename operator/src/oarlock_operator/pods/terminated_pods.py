"""What the watch saw of pods that ended: kept for a while, because the API forgets a deleted pod's last words at once.

A hint, never the truth: after a restart of the operator it is empty, and decisions still come to the same end.
Bounded in number, and kept apart by namespace: where room is short, the namespace with most gives way, so that nobody's
pods push out another's. Of a pod only what its end is judged by is kept. Single-threaded.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from oarlock_api.contract.names import Label
from oarlock_operator.model.observation import Key
from oarlock_operator.pods.pod_facts import RawPod
from oarlock_operator.schedulers.kueue import MANAGED

LIMIT = 4096
_LABELS = {*(label.value for label in Label), MANAGED}


class TerminatedPods:
    """Pods that were seen ended or deleted."""

    def __init__(self, limit: int = LIMIT, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns monotonic seconds."""
        self._limit = limit
        self._clock = clock
        self._pods: dict[str, OrderedDict[str, RawPod]] = {}
        """By namespace and uid, of each namespace the newest last."""
        self._of_job: dict[str, dict[str, RawPod]] = {}
        self._of_name: dict[Key, dict[str, RawPod]] = {}
        """The same by the job's uid, and by its name: a pass over a job asks for its own, and must not look through all."""
        self._count = 0
        self._since: dict[str, float] = {}
        self._rejected: set[str] = set()
        self._gone: set[str] = set()

    def note(self, pod: RawPod, *, deleted: bool) -> bool:
        """Remember the last state of a pod that ended or is gone. Whether that is news."""
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        if not deleted and not _ended(pod):
            return False
        known = self._pods.setdefault(namespace, OrderedDict())
        news = uid not in known
        if not news:
            self._unfile(known[uid])
        known[uid] = _slim(pod)
        known.move_to_end(uid)
        self._of_job.setdefault(pod.label(Label.JOB_UID), {})[uid] = known[uid]
        self._of_name.setdefault((namespace, pod.label(Label.JOB)), {})[uid] = known[uid]
        self._count += news
        if self._count > self._limit:
            self._forget_one()
        self._since.setdefault(uid, self._clock())
        return news

    def first_rejection(self, uid: str) -> bool:
        """Whether this pod's report is rejected for the first time since the pod is remembered."""
        if uid in self._rejected:
            return False
        if uid in self._since:
            self._rejected.add(uid)
        return True

    def seconds_since_the_first(self, uids: Iterable[str]) -> float | None:
        """How long it is known here that the first of these pods ended; None where none is known to have."""
        times = [self._since[uid] for uid in uids if uid in self._since]
        return self._clock() - min(times) if times else None

    def departed(self, namespace: str, job_uid: str, *, alive: set[str]) -> list[RawPod]:
        """Pods of a job that were seen and are not there any more.

        Of its own namespace: elsewhere anybody can make a pod with its labels, and even with its uid as owner.
        """
        seen = self._of_job.get(job_uid, {}).items()
        return [pod for uid, pod in seen if uid not in alive and pod.metadata.namespace == namespace]

    def is_gone(self, uid: str) -> bool:
        """Whether the API itself said that the pod is gone: a watch says so of one that only lost its label, too."""
        return uid in self._gone

    def note_gone(self, uids: Iterable[str]) -> None:
        """The API was asked for these pods, and does not have them."""
        self._gone.update(uid for uid in uids if uid in self._since)

    def forget(self, namespace: str, job: str) -> None:
        """Drop what is known of a job that is over or gone, by whatever uid."""
        for uid in list(self._of_name.get((namespace, job), {})):
            self._drop(namespace, uid)

    def _forget_one(self) -> None:
        """The pod that was not heard of for longest, in the namespace that has most."""
        namespace = max(self._pods, key=lambda name: len(self._pods[name]))
        self._drop(namespace, next(iter(self._pods[namespace])))

    def _drop(self, namespace: str, uid: str) -> None:
        self._unfile(self._pods[namespace].pop(uid))
        if not self._pods[namespace]:
            del self._pods[namespace]
        self._count -= 1
        self._since.pop(uid, None)
        self._rejected.discard(uid)
        self._gone.discard(uid)

    def _unfile(self, pod: RawPod) -> None:
        job, name = pod.label(Label.JOB_UID), (pod.metadata.namespace, pod.label(Label.JOB))
        del self._of_job[job][pod.metadata.uid], self._of_name[name][pod.metadata.uid]
        if not self._of_job[job]:
            del self._of_job[job]
        if not self._of_name[name]:
            del self._of_name[name]


def _slim(pod: RawPod) -> RawPod:
    """A pod without what only one that lives is asked for, and with no labels but ours."""
    labels = {name: value for name, value in (pod.metadata.labels or {}).items() if name in _LABELS}
    annotations = pod.metadata.annotations and replace(pod.metadata.annotations, avoided=frozenset())
    return replace(pod, metadata=replace(pod.metadata, labels=labels, annotations=annotations))


def _ended(pod: RawPod) -> bool:
    # A pod that its kubelet refused has failed without a container.
    statuses = pod.status.container_statuses or ()
    return pod.status.phase == "Failed" or any(each.state.terminated is not None for each in statuses)
