"""What the watches told: lives of pods, statuses of jobs, states of nodes, in the order of their resource versions.

One store keeps all kinds, and its revisions are the resource versions: of two changes, also of different kinds, the one
with the smaller number came first. What is told late, by a list, came at some time after the last news: it counts from then
on, so that nothing is found in what nobody saw.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]
CORDONED = "oarlock.dev/cordoned"
LABEL = "oarlock.dev/"
TRAINER = "trainer"
NEWS = timedelta(seconds=2)
"""How old what an operator acts on may be."""


@dataclass(slots=True)
class Life:
    """One pod of one attempt, from its creation until its container has ended or it is out of the API."""

    name: str
    namespace: str
    uid: str
    job: str
    job_uid: str
    attempt: int
    rank: int
    created: int
    created_at: datetime
    seen_at: datetime
    """When the news of its creation came."""
    node: str = ""
    ended: int | None = None
    delete_by: datetime | None = None
    """When its kubelet was to be done with it: asked, plus the grace."""

    def lives_at(self, version: int) -> bool:
        """Whether it was there and had not ended."""
        return self.created <= version and (self.ended is None or self.ended > version)

    def is_overdue(self, at: datetime, teardown: float) -> bool:
        """Whether it was to be gone for so long that it counts as lost: its writes are fenced."""
        return self.delete_by is not None and at >= self.delete_by + timedelta(seconds=teardown)


@dataclass(slots=True)
class JobSeen:
    """One state of a job."""

    version: int
    name: str
    uid: str
    attempt: int
    phase: str
    body: Json
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """One state of a node."""

    version: int
    name: str
    uid: str
    off: bool
    mark: str
    """What Oarlock wrote why it cordoned it, empty where it did not."""
    ready: bool
    deleted: bool
    at: datetime
    """When the news of it came."""

    def words(self) -> Json:
        """The mark's fields, empty where it cannot be read."""
        try:
            said: Json = json.loads(self.mark or "{}")
        except ValueError:
            return {}
        return said


@dataclass(slots=True)
class History:
    """Everything so far. `tail`: the last events in words, for whoever looks into a violation."""

    lives: dict[str, Life] = field(default_factory=dict)
    jobs: dict[str, JobSeen] = field(default_factory=dict)
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    states: dict[str, list[NodeSeen]] = field(default_factory=dict)
    """By a node's name, whenever it came, went, or was Ready or no more."""
    bodies: dict[str, Json] = field(default_factory=dict)
    """Pods that there are, by uid."""
    attempts: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """For each job's uid since when its attempt may have risen, at which version it had, and to what."""
    reached: dict[str, int] = field(default_factory=dict)
    """How far each watch has come."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=3000))

    def note(self, words: str) -> None:
        """Remember something for the tail."""
        self.tail.append(f"{datetime.now(UTC):%H:%M:%S.%f} {words}")

    def _reach(self, kind: str, event: Json) -> int:
        """The version from which the event counts; notes how far the watch has come."""
        last, version = self.reached.get(kind, 0), int(event["object"]["metadata"]["resourceVersion"])
        self.reached[kind] = max(last, version)
        return last if event.get("late") else version

    def pod(self, event: Json) -> tuple[Life, bool] | None:
        """Take in what a watch told of a pod; its life, and whether it is new. None for pods of no job."""
        body, metadata = event["object"], event["object"]["metadata"]
        since = self._reach("pods", event)
        labels = metadata.get("labels") or {}
        if event["type"] == "BOOKMARK" or f"{LABEL}job" not in labels:
            return None
        version, uid = int(metadata["resourceVersion"]), metadata["uid"]
        life, new = self.lives.get(uid), False
        if life is None:
            new = True
            life = self.lives[uid] = Life(
                name=metadata["name"],
                namespace=metadata["namespace"],
                uid=uid,
                job=labels[f"{LABEL}job"],
                job_uid=labels[f"{LABEL}job-uid"],
                attempt=int(labels[f"{LABEL}attempt"]),
                rank=int(labels[f"{LABEL}rank"]),
                created=version,
                created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
                seen_at=datetime.now(UTC),
            )
        life.node = body["spec"].get("nodeName", "")
        if stamp := metadata.get("deletionTimestamp"):
            life.delete_by = datetime.fromisoformat(stamp)
        if life.ended is None and (event["type"] == "DELETED" or has_ended(body)):
            life.ended = since
        self.bodies[uid] = body
        if event["type"] == "DELETED":
            del self.bodies[uid]
        self.note(f"pod {event['type']} {life.namespace}/{life.name} {_state(body)} on {life.node or '-'} v{version}")
        return life, new

    def job(self, event: Json) -> tuple[JobSeen | None, JobSeen] | None:
        """Take in what a watch told of a job; its state before, and now."""
        body, metadata = event["object"], event["object"]["metadata"]
        since = self._reach("jobs", event)
        if event["type"] == "BOOKMARK":
            return None
        status = body.get("status") or {}
        now = JobSeen(
            version=int(metadata["resourceVersion"]),
            name=f"{metadata['namespace']}/{metadata['name']}",
            uid=metadata["uid"],
            attempt=status.get("attempt", 0),
            phase=status.get("phase", ""),
            body=body,
            deleted=event["type"] == "DELETED",
        )
        before = self.jobs.get(now.uid)
        self.jobs[now.uid] = now
        risen = self.attempts.setdefault(now.uid, [])
        if not risen or now.attempt > risen[-1][2]:
            risen.append((since, now.version, now.attempt))
        if before is None or (before.phase, before.attempt) != (now.phase, now.attempt) or now.deleted:
            words = f"{now.phase} attempt {now.attempt} {status.get('reason', '')}"
            self.note(f"job {event['type']} {now.name} {now.uid[:6]} {words} v{now.version}")
        return before, now

    def node(self, event: Json) -> tuple[NodeSeen | None, NodeSeen] | None:
        """Take in what a watch told of a node; its state before, and now."""
        body, metadata = event["object"], event["object"]["metadata"]
        since = self._reach("nodes", event)
        if event["type"] == "BOOKMARK":
            return None
        now = NodeSeen(
            version=since,
            name=metadata["name"],
            uid=metadata["uid"],
            off=bool((body.get("spec") or {}).get("unschedulable")),
            mark=(metadata.get("annotations") or {}).get(CORDONED, ""),
            ready=any((each["type"], each["status"]) == ("Ready", "True") for each in body["status"]["conditions"]),
            deleted=event["type"] == "DELETED",
            at=datetime.now(UTC),
        )
        before = self.nodes.get(now.uid)
        if before is None or (before.ready, before.deleted) != (now.ready, now.deleted):
            self.states.setdefault(now.name, []).append(now)
        self.nodes[now.uid] = now
        if before is None or (before.off, before.mark) != (now.off, now.mark) or now.deleted:
            self.note(f"node {event['type']} {now.name} {now.uid[:6]} off={now.off} mark={now.mark} v{now.version}")
        return before, now

    def has_lost(self, life: Life, new: Life) -> bool:
        """Whether, when `new` was made, `life` was asked to go and its machine was gone, or not Ready.

        By news that are a little old: a node may come back between an operator's look and its next request.
        """
        states = [each for each in self.states.get(life.node, []) if each.version < new.created]
        then = next((each for each in reversed(states) if each.version < life.created), None)
        if life.delete_by is None or then is None:
            return False
        ends = [*(each.at for each in states[1:]), new.seen_at]
        recent = [each for each, end in zip(states, ends, strict=True) if new.seen_at - end < NEWS]
        return any(each.deleted or not each.ready or each.uid != then.uid for each in recent)

    def living(self) -> list[JobSeen]:
        """Jobs that there are."""
        return [job for job in self.jobs.values() if not job.deleted]

    def forget(self, lives_before: int) -> None:
        """Drop what ended long ago: a run of hours must not look through all of it each time."""
        for uid in [uid for uid, life in self.lives.items() if life.ended is not None and life.ended < lives_before]:
            del self.lives[uid]


def has_ended(pod: Json) -> bool:
    """Whether its kubelet has said that the trainer's container, or the pod, is over."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    states = [each.get("state", {}) for each in status.get("containerStatuses") or () if each["name"] == TRAINER]
    return any("terminated" in state for state in states)


def _state(pod: Json) -> str:
    codes = [
        str(each["state"]["terminated"]["exitCode"])
        for each in (pod.get("status") or {}).get("containerStatuses") or ()
        if "terminated" in each.get("state", {})
    ]
    going = " deleting" if pod["metadata"].get("deletionTimestamp") else ""
    return f"{(pod.get('status') or {}).get('phase', '')}{going}{' exit ' + codes[0] if codes else ''}"


def asks_for_gpus(pod: Json) -> bool:
    """Whether its container was given GPUs."""
    limits = [each.get("resources", {}).get("limits") or {} for each in pod["spec"]["containers"]]
    return any(resource.endswith("/gpu") for each in limits for resource in each)
