"""Jobs that are gone, or going: whatever their pods still do is no news, and nothing is read for it.

A uid never comes back, so nothing here can be out of date; what was never told, or is forgotten, costs a look in vain.
Bounded; single-threaded.
"""

from __future__ import annotations

from collections import OrderedDict

LIMIT = 16384


class GoneJobs:
    """Uids of jobs that were seen to go, the newest last."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._uids: OrderedDict[str, None] = OrderedDict()

    def note(self, uid: str) -> None:
        """A job has gone, or is to go."""
        self._uids[uid] = None
        while len(self._uids) > self._limit:
            self._uids.popitem(last=False)

    def holds(self, uid: str) -> bool:
        """Whether a job has gone, or is going."""
        return uid in self._uids
