"""Moments as the contract writes them: RFC 3339, in UTC, on this pod's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def timestamp(ago: float = 0.0) -> str:
    """Now, or so many seconds ago, to the millisecond: 2026-01-31T12:00:00.123Z."""
    moment = datetime.now(UTC) - timedelta(seconds=ago)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
