"""Times as they are written: RFC 3339. Pure; nothing here asks what time it is."""

from __future__ import annotations

from datetime import datetime


def parsed(time: str) -> datetime | None:
    """A time, None where it is none or has no zone."""
    try:
        found = datetime.fromisoformat(time)
    except ValueError:
        return None
    return found if found.tzinfo else None


def written(time: datetime) -> str:
    """A time with milliseconds; in UTC with a Z, as everywhere in Kubernetes."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
