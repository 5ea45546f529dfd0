"""Where events go: a key on a work queue, a note of what a watch saw, and nothing else.

A watch is a hint to look and never a source of truth; nothing here waits or asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oarlock_api.contract.names import Label
from oarlock_operator.model.observation import Key
from oarlock_operator.observe import pace
from oarlock_operator.observe.memory import Memory
from oarlock_operator.pods.pod_facts import RawPod
from oarlock_operator.process.watches import SeenJob
from oarlock_operator.process.workqueue import WorkQueue

JobEnd = tuple[Key, str]
"""Of a job that is gone: where it was, and its uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """What events are told to."""

    jobs: WorkQueue[Key]
    nodes: WorkQueue[str]
    ends: WorkQueue[JobEnd]
    """Jobs that are gone and whose pods are to go with them."""
    memory: Memory

    def pod_event(self, kind: str, pod: RawPod) -> None:
        """Something happened to a pod: its job is looked at, at once or in a moment."""
        self.memory.outputs.note_pod(pod.metadata, pod.status.phase or "", gone=kind == "DELETED")
        if self.memory.gone.holds(pod.label(Label.JOB_UID)):
            return
        coming = pod.status.phase in ("Pending", "", None) and pod.metadata.deletion_timestamp is None
        if kind == "ADDED" and coming and not pod.status.conditions:
            # The operator has made it itself, and nobody has said anything of it.
            return
        key = (pod.metadata.namespace, pod.label(Label.JOB))
        ended = self.memory.terminated.note(pod, deleted=kind == "DELETED")
        known, attempt, waiting = self.memory.of(key), pod.number(Label.ATTEMPT), len(self.jobs)
        self.jobs.add_after(key, pace.delay(known, attempt=attempt, ended=ended, coming=coming, waiting=waiting))

    def job_event(self, kind: str, job: SeenJob) -> None:
        """Something happened to a job. What we wrote ourselves is no news; of one that goes, its end is the last."""
        if kind == "DELETED" or job.metadata.deletion_timestamp is not None:
            self.memory.gone.note(job.metadata.uid)
        if kind == "DELETED" and job.metadata.deletion_timestamp is None:
            # A job that is deleted with --cascade=orphan or foreground has a time of deletion: its pods are the collector's.
            self.ends.add((job.key, job.metadata.uid))
        if self.memory.of(job.key).written != job.metadata.resource_version:
            self.jobs.add(job.key)

    def node_event(self, kind: str | None, node: dict[str, Any]) -> None:
        """Something happened to a node: where its trouble changed, its jobs are looked at."""
        if self.memory.troubled.note(node, deleted=kind == "DELETED"):
            self.nodes.add(node["metadata"]["name"])
