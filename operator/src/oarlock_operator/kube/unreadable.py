"""Objects that the operator cannot read: each is told of once, and none stops a list or a watch."""

from __future__ import annotations

from collections import OrderedDict

import structlog
from msgspec import Raw, Struct

from oarlock_operator import metrics
from oarlock_operator.kube.api_error import ApiError
from oarlock_operator.kube.decoding import decoded

log = structlog.get_logger(__name__)

MOST_REMEMBERED = 1024


class _Metadata(Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Named(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class Unreadable:
    """Which objects could not be read. Bounded; single-threaded."""

    def __init__(self) -> None:
        self._told: OrderedDict[_Metadata, None] = OrderedDict()

    def note(self, raw: Raw, error: ApiError) -> None:
        """Count and log an object, unless that was done before."""
        try:
            known = decoded(raw, _Named, "metadata").metadata
        except ApiError:
            known = _Metadata()
        if known in self._told:
            self._told.move_to_end(known)
            return
        self._told[known] = None
        if len(self._told) > MOST_REMEMBERED:
            self._told.popitem(last=False)
        metrics.UNREADABLE.inc()
        log.warning("an object cannot be read", namespace=known.namespace, name=known.name, why=error.message)
