"""Who asked last for what, as an annotation of a job or a node. Pure.

It is written in the very change, by whoever makes it: a name that the API server told, and no proof of it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from oarlock_api.contract.names import GROUP
from oarlock_api.contract.wire import text

ASKED_BY_ANNOTATION = f"{GROUP}/asked-by"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedBy:
    """An action such as Suspend, a person as the API server calls him, and a time in RFC 3339."""

    action: str
    by: str
    time: str

    def to_annotation(self) -> str:
        """As the object bears it."""
        return json.dumps(asdict(self), ensure_ascii=False)


def parse_asked_by(said: object) -> AskedBy | None:
    """Read an annotation; None where it names no action and nobody."""
    try:
        told = json.loads(said) if isinstance(said, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    action, by, time = (text(told.get(name)) for name in ("action", "by", "time"))
    return AskedBy(action=action, by=by, time=time) if action and by else None
