"""The plan while it is being made: policies add to it, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from oarlock_api.history import Attempt, RecoveryStage
from oarlock_api.status import Ranks, TrainingJobStatus
from oarlock_operator.model.plan import Action, Event, EventType, Look, Need, Plan
from oarlock_operator.model.reasons import Reason

KEPT_ATTEMPTS = 10


@dataclass(slots=True)
class Draft:
    """Status so far, and what follows from it."""

    status: TrainingJobStatus
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    again_seconds: float | None = None
    looks: set[Look] = field(default_factory=set)
    """What the decision hangs on and was not looked at."""
    leaving: set[str] = field(default_factory=set)
    """With a look at spares: nodes that are to be left, though they would take the gang again."""

    def set(self, **fields: Any) -> None:
        """Change fields of the status."""
        self.status = self.status.model_copy(update=fields)

    def stage(self, name: str | None, now: datetime | None) -> None:
        """Enter a stage of the start, or leave the last one."""
        recovery = self.status.recovery.model_copy(update={"stage": name, "stage_start_time": now, "replacing": ()})
        if name in (None, RecoveryStage.SUSPENDED):  # no surge pod is there any more
            recovery = recovery.model_copy(update={"surging": ()})
        self.set(recovery=recovery)

    def act(self, action: Action) -> None:
        """Add an action, to be done after those before it; once."""
        if action not in self.actions:
            self.actions.append(action)

    def tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Add an Event."""
        kind = EventType.WARNING if warning else EventType.NORMAL
        self.events.append(Event(kind, reason, message))

    def answer_fault(self, action: str) -> None:
        """Say of the last fault what was done about it."""
        if fault := self.status.last_fault:
            self.set(last_fault=fault.model_copy(update={"action": action}))

    def again(self, seconds: float) -> None:
        """Look again after `seconds` at the latest."""
        self.again_seconds = seconds if self.again_seconds is None else min(self.again_seconds, seconds)

    def attempt(self, number: int) -> Attempt:
        """The record of an attempt; an empty one where it is no longer kept."""
        return next((a for a in self.status.attempts if a.number == number), Attempt(number=number))

    def before(self, number: int) -> Attempt:
        """The record of the attempt that came before one, numbers may skip; an empty one where there is none."""
        return max(
            (a for a in self.status.attempts if a.number < number), key=lambda a: a.number, default=Attempt(number=0)
        )

    def record(self, number: int, **fields: Any) -> None:
        """Change fields of an attempt's record, adding it where it is missing.

        Of many the last stay, and the last move for a slow rank: the next one is not to come within a day.
        """
        changed = self.attempt(number).model_copy(update=fields)
        others = [a for a in self.status.attempts if a.number != number]
        known = sorted([*others, changed], key=lambda a: a.number)
        last = known[-KEPT_ATTEMPTS:]
        move = next((a for a in reversed(known) if a.reason == Reason.SLOW_RANK), None)
        self.set(attempts=tuple(last if move is None or move in last else [move, *last[1:]]))

    def measure(self, number: int, stage: str, milliseconds: float) -> None:
        """Write down how long a stage of an attempt took; clamped at 0, because clocks step."""
        known = self.attempt(number).stage_milliseconds
        self.record(number, stage_milliseconds=known.model_copy(update={stage: max(0, round(milliseconds))}))

    def outcome(self, before: TrainingJobStatus) -> Plan | Need:
        """The finished plan, or what must be looked at. A status that did not change is not written."""
        if Look.POOL in self.looks:
            return Need(Look.POOL)
        plan = Plan(
            status=None if self.status == before else self.status,
            actions=tuple(self.actions),
            events=tuple(self.events),
            again_seconds=self.again_seconds,
            minor=_but_counts(self.status) == _but_counts(before),
        )
        return Need(Look.SPARES, leaving=frozenset(self.leaving), otherwise=plan) if Look.SPARES in self.looks else plan


def _but_counts(status: TrainingJobStatus) -> TrainingJobStatus:
    """The status without the counts of pods, which change a thousand times while a gang of a thousand starts."""
    summary = status.summary.model_copy(update={"nodes": None})
    return status.model_copy(update={"ranks": Ranks(), "summary": summary})


def milliseconds_since(start: datetime | None, now: datetime) -> float:
    """Time since `start`, 0 where it is not known."""
    return (now - start).total_seconds() * 1000 if start else 0.0
