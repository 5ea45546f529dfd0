"""Names, checked before they become part of a path: an empty one, or `.`, would mean the whole collection."""

from __future__ import annotations

from oarlock.errors import RefusedError
from oarlock.names import is_name


def checked_name(text: str, what: str) -> str:
    """The name, of what `what` calls it. Raises RefusedError where it is none."""
    if not is_name(text):
        raise RefusedError(
            f"{text[:80]!r} is no name of a {what}: it has lower-case letters, digits, '-' and '.', "
            "and begins and ends with a letter or digit"
        )
    return text
