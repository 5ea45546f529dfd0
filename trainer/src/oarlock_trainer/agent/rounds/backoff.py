"""How long a gang stands by before its next round: not at all, unless the program itself fails again and again.

As with attempts, the first failure costs no wait, since most are not repeated. Further ones without a newer step wait longer
each time: what they need may come back by itself, and each one costs a restart of the program's budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.contract.exit_codes import FailureClass, failure_class

if TYPE_CHECKING:
    from oarlock_trainer.agent.rounds.model import Fault, Limits

_OWN = frozenset({FailureClass.APPLICATION, FailureClass.HANG})


def is_own(fault: Fault) -> bool:
    """Whether the program itself failed: no pod was lost, and no driver asked for new processes."""
    return failure_class(fault.code) in _OWN and not fault.lost and not fault.gpu


def seconds(failures: int, fault: Fault, limits: Limits) -> float:
    """Seconds from the end of a round by this fault to the next one, at least.

    `failures`: how many rounds before it the program has ended since the newest step that any has finished. The wait is never
    longer than `limits.patience`, for which others stand by.
    """
    if not failures or not is_own(fault):
        return 0.0
    return min(limits.backoff * 2.0 ** min(failures - 1, 30), limits.longest_backoff, limits.patience)
