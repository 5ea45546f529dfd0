"""Who broke the gang: the earliest ending that is a cause of its own.

Peers that lost a peer are victims and never blamed. Among causes the earliest wins, by the reports' own times where there
are any (as far as the clocks of one gang agree), else by rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from oarlock_operator.faults.classify import Budget, Fault
from oarlock_operator.model.reasons import Reason

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Attribution:
    """The cause, and how many peers fell with it. `cause.victim` is True where nobody else has spoken up."""

    cause: Fault
    victims: int


def attribute(faults: Sequence[Fault]) -> Attribution:
    """Pick the cause among at least one fault of one attempt."""
    evicted = any(fault.reason == Reason.EVICTED for fault in faults)
    # A gang of which one is evicted leaves as a whole, and who is told to go is seldom the first to say so.
    causes = [fault for fault in faults if not (evicted and fault.reason == Reason.LEFT_ON_REQUEST)]
    cause = min(causes, key=_order)
    return Attribution(cause=cause, victims=sum(1 for fault in faults if fault is not cause and fault.victim))


def detected_at(fault: Fault) -> datetime | None:
    """When the fault was noticed in its pod, on the pod's clock; None where it did not say so readably."""
    report = fault.pod.report
    try:
        time = datetime.fromisoformat(report.detected_at) if report else None
    except ValueError:
        return None
    return time if time is not None and time.tzinfo else None


def _order(fault: Fault) -> tuple[bool, bool, datetime, int]:
    # What no restart can mend ends the job, whatever else fell over at the same time.
    return (
        fault.victim,
        fault.budget is not Budget.NONE,
        detected_at(fault) or _NEVER,
        fault.pod.rank,
    )
