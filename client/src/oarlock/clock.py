"""Times as they are written: RFC 3339. Pure; nothing here asks what time it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oarlock_api.contract.wire import text


def parsed(time: str) -> datetime | None:
    """A time, None where it is none or has no zone."""
    try:
        # Python 3.10, which the trainer's bundle may run on, does not know the Z.
        found = datetime.fromisoformat(f"{time[:-1]}+00:00" if time.endswith("Z") else time)
    except ValueError:
        return None
    return found if found.tzinfo else None


def written(time: datetime) -> str:
    """A time with milliseconds; in UTC with a Z, as everywhere in Kubernetes."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(event: Mapping[str, Any]) -> str:
    """When an Event happened last, empty where it does not say. Of one that is repeated as a series only that tells."""
    told = [
        (event.get("series"), "lastObservedTime"),
        (event, "lastTimestamp"),
        (event, "eventTime"),
        (event, "firstTimestamp"),
        (event.get("metadata"), "creationTimestamp"),
    ]
    times = (text(part.get(key), 40) for part, key in told if isinstance(part, Mapping))
    return next((time for time in times if time), "")
