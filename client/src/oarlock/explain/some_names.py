"""Many names in a sentence: a gang may have a thousand nodes."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 8


def some(names: Sequence[str], most: int = MOST) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
