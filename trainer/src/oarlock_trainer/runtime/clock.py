"""Moments as the contract writes them: RFC 3339, in UTC, on this pod's clock."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp() -> str:
    """Now, to the millisecond: 2026-01-31T12:00:00.123Z."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
