"""What this process remembers of one job. None of it may be needed after a restart: another process begins with an empty one.

Held by the job's key for as long as the job is there, forgotten in one place (observe/memory.py). Single-threaded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from oarlock_api.contract.status import PodStatus


@dataclass(frozen=True, slots=True)
class Heard:
    """What a pod's agent said when it was last asked. Times are of this process's monotonic clock.

    `warning`: what a GPU of it gives to think of, though it still works; `held`: the probes that warned.
    """

    asked: float = -math.inf
    silent_since: float | None = None
    warning: str = ""
    held: tuple[str, ...] = ()
    unmonitored: str = ""
    """Why nobody watches its GPUs."""
    unmonitored_since: float = math.inf
    not_finite: float = -math.inf
    """When its loss was last not finite."""
    refuses: bool = False
    """Whether it answered, and knows another key than we."""
    request: str = ""
    """What the question carried that it answered last."""
    request_since: float = math.inf
    """When it first answered one that carried this."""


@dataclass(slots=True)
class JobMemory:
    """`uid` names the job; a new job of the same name has a new memory. Times are of this process's monotonic clock."""

    uid: str = ""
    attempt: int | None = None
    """The current attempt, as the last look found or made it."""
    look_seconds: float = 0.0
    """What the last look cost."""
    trains: bool = False
    written: str = ""
    """The resourceVersion that the operator itself made: the watch will tell of it, and it is no news."""
    written_at: float = -math.inf
    drops_rounds: bool = False
    """The API server's schema is of an older release and drops status.rounds: by what stands there nothing is booked once."""
    heard: dict[str, Heard] = field(default_factory=dict)
    """What agents said, by their pods' uids; those of the current attempt that run."""
    answers: dict[str, PodStatus] = field(default_factory=dict)
    """Rank 0's newest answers that no pass has seen yet, by the pod's uid."""
    keys: dict[str, bytes] = field(default_factory=dict)
    """Which of the operator's keys a pod, by its uid, has signed with: no other is tried any more."""
    no_spares_at: float = -math.inf
    """When spare nodes were last looked for in vain."""
    groups_settled: tuple[int, bool] | None = None
    """The attempt, and whether it was over, for which no group was left but its own when groups were last listed."""
    refusal: str = ""
    """What the API server called invalid in what was to be made; cleared once actions went through."""
    hindrance: str = ""
    """Why it did not take the pods, where that may change by itself; cleared likewise."""
