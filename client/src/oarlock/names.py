"""Names of objects, checked before they become part of a path: an empty one, or `.`, would mean the whole collection."""

from __future__ import annotations

import re

from oarlock.errors import RefusedError

MOST_CHARACTERS = 253
_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def is_name(text: str) -> bool:
    """Whether Kubernetes allows it as an object's name: an RFC 1123 subdomain."""
    return len(text) <= MOST_CHARACTERS and _NAME.fullmatch(text) is not None


def checked_name(text: str, what: str) -> str:
    """The name, of what `what` calls it. Raises RefusedError where it is none."""
    if not is_name(text):
        raise RefusedError(
            f"{text[:80]!r} is no name of a {what}: it has lower-case letters, digits, '-' and '.', "
            "and begins and ends with a letter or digit"
        )
    return text
