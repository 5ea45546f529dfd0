"""What must never happen, looked for in the history. Pure but for the list that it writes its findings to.

Two gangs: no pod is created while one of another attempt, or of an earlier job of the same name, lives. A pod lives from
its creation until its kubelet says that its container has ended, or until it is out of the API. Two excuses: it was to be
gone, its grace included, `teardown` seconds before; or it was asked to go, and its node was gone or not Ready within the last
two seconds. Then it counts as lost, and its writes are fenced.

Attempts: a job's number never falls, and a pod of an attempt comes after the status that tells of that attempt.

Cordons: each has a mark that names a job and an attempt, and on this very node (by uid) a pod of that attempt truly
reported a broken GPU; no report pays for two, and no more are cordoned within a window than the operators were told. What
a person cordoned stays, without a mark; nobody but a person uncordons.

Ends: a job is never Succeeded, Failed or Suspended while a pod of its lives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from tests.chaos.history import History, JobSeen, Json, Life, NodeSeen
from tests.chaos.reports import Ledger

TERMINAL = {"Succeeded", "Failed", "Suspended"}
CLOCK_SECONDS = 1.0
"""The API server's times are whole seconds."""


@dataclass(slots=True)
class Judge:
    """Takes in every event, and what it finds goes to `found`."""

    history: History
    ledger: Ledger
    teardown: float
    most: int
    """Cordons within a window."""
    window: timedelta
    tell: Callable[[str], None] = lambda _: None
    """Who hears of each at once."""
    found: list[str] = field(default_factory=list)
    _cordons: list[datetime] = field(default_factory=list)
    """Times of those that count within a window."""
    _later: list[tuple[str, int, Callable[[], str]]] = field(default_factory=list)
    """Questions about another kind of object at a version that its watch has not reached yet."""

    def event(self, kind: str, event: Json) -> None:
        """One event of the watch of `kind`."""
        seen = not event.get("late")
        if kind == "pods" and (pod := self.history.pod(event)) and pod[1] and seen and event["type"] != "DELETED":
            self._pod_made(pod[0])
        elif kind == "jobs" and (job := self.history.job(event)):
            self._job_changed(*job)
        elif kind == "nodes" and (node := self.history.node(event)) and seen:
            self._node_changed(*node)
        self._ask_again()

    def say(self, words: str) -> None:
        """Write down what was found, if anything was, and tell of it."""
        if words:
            self.history.note(f"VIOLATION {words}")
            self.found.append(words)
            self.tell(words)

    def _ask_again(self) -> None:
        open_, self._later = self._later, []
        for kind, version, question in open_:
            if self.history.reached.get(kind, 0) > version:
                self.say(question())
            else:
                self._later.append((kind, version, question))

    def _pod_made(self, new: Life) -> None:
        for old in self.history.lives.values():
            same_name = (old.namespace, old.job) == (new.namespace, new.job)
            same_gang = (old.job_uid, old.attempt) == (new.job_uid, new.attempt)
            lost = old.is_overdue(new.created_at, self.teardown - CLOCK_SECONDS)
            if same_name and not same_gang and old.lives_at(new.created) and not lost:
                self._later.append(("nodes", new.created, partial(self._are_two, old, new)))
        self._later.append(("jobs", new.created, lambda: self._was_announced(new)))

    def _are_two(self, old: Life, new: Life) -> str:
        if self.history.has_lost(old, new):
            return ""
        made = f"{new.namespace}/{new.name} (job {new.job_uid[:6]}, attempt {new.attempt})"
        lives = f"{old.name} (job {old.job_uid[:6]}, attempt {old.attempt}) lives on {old.node or 'no node'}"
        return f"two gangs: {made} was made while {lives}"

    def _was_announced(self, new: Life) -> str:
        risen = self.history.attempts.get(new.job_uid, [])
        least = max((attempt for _, version, attempt in risen if version < new.created), default=0)
        most = max((attempt for since, _, attempt in risen if since < new.created), default=0)
        if least <= new.attempt <= most:
            return ""
        return f"order: {new.namespace}/{new.name} was made while its job's status was at attempt {most}"

    def _job_changed(self, before: JobSeen | None, now: JobSeen) -> None:
        if before is not None and now.attempt < before.attempt:
            self.say(f"attempts: {now.name} fell from {before.attempt} to {now.attempt}")
        if now.phase in TERMINAL and (before is None or before.phase != now.phase) and not now.deleted:
            seen = datetime.now(UTC)
            self._later.append(("pods", now.version, lambda: self._has_stopped(now, seen)))

    def _has_stopped(self, job: JobSeen, at: datetime) -> str:
        left = [
            life.name
            for life in self.history.lives.values()
            if life.job_uid == job.uid and life.lives_at(job.version) and not life.is_overdue(at, self.teardown)
        ]
        return f"ends: {job.name} is {job.phase}, and {', '.join(left)} lives" if left else ""

    def _node_changed(self, before: NodeSeen | None, now: NodeSeen) -> None:
        if before is None or now.deleted:
            return
        if before.off and not now.off:
            if now.uid not in self.ledger.uncordoned_by_hand:
                self.say(f"uncordons: {now.name} was uncordoned, and no person did it")
            self.ledger.uncordoned_by_hand.discard(now.uid)
        if now.mark and now.mark != before.mark:
            self._marked(before, now)
        elif now.off and not before.off:
            if now.uid not in self.ledger.cordoned_by_hand:
                why = f"again, for what a person had it back from: {now.mark}" if now.mark else "without a mark"
                self.say(f"cordons: {now.name} ({now.uid[:6]}) was cordoned {why}")
            self.ledger.cordoned_by_hand.discard(now.uid)

    def _marked(self, before: NodeSeen, now: NodeSeen) -> None:
        if before.off and not before.mark:
            self.say(f"cordons: a person cordoned {now.name}, and Oarlock put its mark there: {now.mark}")
            return
        said = now.words()
        proof = self.ledger.proof(job=str(said.get("job")), attempt=int(said.get("attempt") or 0), node_uid=now.uid)
        if proof is None:
            self.say(f"cordons: {now.name} ({now.uid[:6]}) without proof: {now.mark}")
        elif proof.used:
            self.say(f"cordons: {now.name} ({now.uid[:6]}) a second time for one report: {now.mark}")
        else:
            proof.used = True
        self._count(now)

    def _count(self, cordoned: NodeSeen) -> None:
        """By the arrival of the news, so that a window is a second shorter than the operator's."""
        now = datetime.now(UTC)
        within = self.window - timedelta(seconds=CLOCK_SECONDS)
        self._cordons = [*(time for time in self._cordons if now - time < within), now]
        if len(self._cordons) > self.most:
            self.say(f"brakes: {cordoned.name} is number {len(self._cordons)} within {within}, {self.most} are allowed")
