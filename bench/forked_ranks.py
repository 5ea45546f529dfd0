"""Ranks of a benchmark: forked from one process that has imported everything, and waited for."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def run(count: int, measure: Callable[[int], None]) -> int:
    """Have so many processes measure, each told its rank; the highest exit code: 1 where one raised, 128 + a signal."""
    pids = []
    for rank in range(count):
        pid = os.fork()
        if pid == 0:
            os._exit(_rank(rank, measure))
        pids.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return max(code if code >= 0 else 128 - code for code in codes)


def _rank(rank: int, measure: Callable[[int], None]) -> int:
    try:
        measure(rank)
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
        return 1
    return 0
