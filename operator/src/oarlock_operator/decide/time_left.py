"""How long it is until the last step, by a pace that one slow step does not move. Pure.

The pace is an exponential mean over the steps that were looked at. It has no field of its own: the estimate that was written
last, over the steps that were left then, is it. What a page or a command shows is status.progress.etaSeconds.
"""

from __future__ import annotations

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.wire import finite
from oarlock_api.progress import Progress

LONGEST_SECONDS = 10 * 365 * 86_400
"""An estimate beyond it says nothing, and a pod's own figures must never break a pass."""
LOOKS = 20
"""As many as the mean reaches back."""
_FARTHEST = 2.0
"""Times the pace so far: one step that took longer, as by a stall of the storage, counts as this much."""


def seconds_left(before: Progress | None, now: Figures, *, began_at: int) -> int | None:
    """Seconds until the last step; None where the figures do not tell. `began_at`: the step that the ranks went on from."""
    seconds = finite(now.seconds_per_step)
    if now.step is None or now.total_steps is None or seconds is None:
        return None
    left = max(0, now.total_steps - now.step) * _pace(before, now.step, seconds, began_at=began_at)
    return round(left) if 0 <= left <= LONGEST_SECONDS else None


def _pace(before: Progress | None, step: int, seconds: float, *, began_at: int) -> float:
    """Seconds per step. A mean over all steps at first, but for the first, which compiles; then over the last looks."""
    known = _known(before)
    if before is None or before.step is None or not known:
        return seconds
    done = step - before.step
    if done <= 0:
        return known
    weight = min(1.0, max(1 / LOOKS, done / max(1, step - began_at - 1)))
    if weight < 1 / 2:
        seconds = min(max(seconds, known / _FARTHEST), known * _FARTHEST)
    return known + weight * (seconds - known)


def _known(before: Progress | None) -> float | None:
    """The pace by which the last estimate was made; None where there is none."""
    if before is None or before.eta_seconds is None or before.total_steps is None or before.step is None:
        return None
    left = before.total_steps - before.step
    return before.eta_seconds / left if left > 0 else None
