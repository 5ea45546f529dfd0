"""Keeping secrets out of logs and messages: addresses are shown without what may be one, known values are struck out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from oarlock_api.contract.secrets import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STRUCK = "***"
_SAYS_SO = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH)(_|$)", re.IGNORECASE)
"""How names of variables tell of secrets that the job itself brings in its environment, from whatever source."""
SHORTEST = 6
"""Characters. A shorter value is no secret, and striking it out would maim every sentence."""


def redacted(url: str) -> str:
    """Scheme, host and port of an address: path and query are often the secret, as with Discord."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return _STRUCK
    if not host:
        return _STRUCK
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "") + ("/***" if parts.path.strip("/") else "")


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of the secrets that the operator maps and of variables whose names say so; longest first: no rest is left."""
    names = [name for name in environment if name.startswith(PREFIX) or _SAYS_SO.search(name)]
    found = {environment[name].strip() for name in names}
    return tuple(sorted((value for value in found if len(value) >= SHORTEST), key=len, reverse=True))


def without_secrets(value: Any, secrets: Sequence[str]) -> Any:
    """The same JSON value with each secret struck out of its texts."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, _STRUCK)
        return value
    if isinstance(value, dict):
        return {key: without_secrets(below, secrets) for key, below in value.items()}
    if isinstance(value, list):
        return [without_secrets(below, secrets) for below in value]
    return value
