"""Names of objects, as Kubernetes allows them."""

from __future__ import annotations

import re

MOST_CHARACTERS = 253
_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def is_name(text: str) -> bool:
    """Whether Kubernetes allows it as an object's name: an RFC 1123 subdomain."""
    return len(text) <= MOST_CHARACTERS and _NAME.fullmatch(text) is not None
