"""Jobs that are gone, or going: whatever their pods still do is no news, and nothing is read for it.

A uid never comes back, so nothing here can be out of date; what was never told, or is forgotten, costs a look in vain.
Bounded; single-threaded.
"""

from __future__ import annotations

from collections import OrderedDict

from oarlock_operator.model.observation import Key

LIMIT = 16384


class GoneJobs:
    """Uids of jobs that were seen to go, the newest last."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._uids: OrderedDict[str, None] = OrderedDict()
        self._left: dict[Key, list[str]] = {}

    def note(self, uid: str) -> None:
        """A job has gone, or is to go."""
        self._uids[uid] = None
        while len(self._uids) > self._limit:
            self._uids.popitem(last=False)

    def note_left(self, key: Key, uid: str) -> None:
        """The job has gone and nothing asked for its pods to stay: they are to go with it."""
        self._left.setdefault(key, []).append(uid)

    def take_left(self, key: Key) -> list[str]:
        """Uids of such jobs under `key`, each told once."""
        return self._left.pop(key, [])

    def holds(self, uid: str) -> bool:
        """Whether a job has gone, or is going."""
        return uid in self._uids
