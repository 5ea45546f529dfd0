"""Jobs that are gone, or going: whatever their pods still do is no news, and nothing is read for it.

A uid never comes back, so nothing here can be out of date; what was never told, or is forgotten, costs a look in vain.
Bounded; single-threaded.
"""

from __future__ import annotations

from collections import OrderedDict

from oarlock_operator.model.observation import Key

LIMIT = 16384


class GoneJobs:
    """Uids of jobs that were seen to go, the newest last; and which job each key last named."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._uids: OrderedDict[str, None] = OrderedDict()
        self._named: dict[Key, str] = {}

    def met(self, key: Key, uid: str) -> None:
        """A pass found this job under `key`."""
        self._named[key] = uid

    def note(self, uid: str) -> None:
        """A job has gone, or is to go."""
        self._uids[uid] = None
        while len(self._uids) > self._limit:
            self._uids.popitem(last=False)

    def missed(self, key: Key) -> None:
        """A pass found no job under `key`."""
        if uid := self._named.pop(key, ""):
            self.note(uid)

    def expects(self, key: Key) -> bool:
        """Whether a job may well be there under `key`: none was seen there, or one that was not seen to go."""
        return self._named.get(key, "") not in self._uids

    def holds(self, uid: str) -> bool:
        """Whether a job has gone, or is going."""
        return uid in self._uids
