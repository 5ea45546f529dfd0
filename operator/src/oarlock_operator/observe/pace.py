"""How soon a job is looked at after something happened to it or one of its pods.

At once, if a pod of the living gang ended: the gang is dead and holds its GPUs. Otherwise after a moment in which more
events gather, because a gang of a thousand pods has thousands of them, and each look lists all its pods. The moment grows
with what the last look cost, so that looking takes a bounded share of a core at any size.

A job that trains is looked at for its figures, and each look writes them: so many jobs share so many writes a second.
"""

from __future__ import annotations

from oarlock_operator.model.job_memory import JobMemory

SHARE = 4.0
"""Moments between looks, in looks: 4 keeps routine looks below a fifth of a core a job."""
SHORTEST, LONGEST = 0.02, 2.0
"""Bounds of the moment in seconds. The longest is what the slowest stage time may be wrong by."""

COMING = 0.5
"""Seconds until a look at a job whose pods come up: placed and started within a moment, they are one look and one write."""

QUEUED, MOST_QUEUED = 0.05, 10.0
"""Seconds for each job that waits for a look, and their bound: with 200 jobs at once, a first look and start costs 0.09 s of
two cores on bench/gangs.py, nearly all of it the API server's. Until they are started, how the others come up can wait."""
MINOR = 2.0
"""Seconds between writes that change counts of pods only."""
FIGURES_A_SECOND = 10.0
"""Jobs whose figures are read and written each second, whatever their number: a status write costs an API server 11 ms
(docs/decisions/0007), so that a tenth of a core is what all figures together cost it."""
LONGEST_FIGURES = 300.0
"""Figures are not older, though more jobs than that can be served then cost more."""


def figures_seconds(training: int) -> float:
    """How often the figures of a job that trains may be written, by the number of those that do."""
    return min(training / FIGURES_A_SECOND, LONGEST_FIGURES)


def until_next_minor(memory: JobMemory, *, now: float) -> float:
    """Seconds until a status that differs in counts only may be written."""
    return max(0.0, memory.written_at + MINOR - now)


def delay(memory: JobMemory, *, attempt: int, ended: bool, coming: bool = False, waiting: int = 0) -> float:
    """Seconds until the next look at a job, after an event of a pod of `attempt`.

    `ended`: its end is news. `coming`: it does not run yet. `waiting`: how many jobs wait for a look. While many do, each of
    them gathers more before its own.
    """
    if ended and (memory.attempt is None or attempt >= memory.attempt):
        return 0.0
    least = COMING if coming else SHORTEST
    return max(min(max(SHARE * memory.look_seconds, least), LONGEST), min(QUEUED * waiting, MOST_QUEUED))
